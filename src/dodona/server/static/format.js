// Numbers for people. Everything here is display: no privacy decision hangs on it.

/** A value with as many digits as its margin makes meaningful (two digits of the margin). */
export function withMargin(value, margin) {
  const digits = margin > 0 ? Math.max(0, Math.min(12, 1 - Math.floor(Math.log10(margin)))) : undefined;
  const style =
    digits === undefined
      ? { maximumFractionDigits: 10 }
      : { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return { value: spaced(value, style), margin: spaced(margin, style) };
}

/** "1,234.5 ± 0.3". */
export function estimate(value, margin) {
  const told = withMargin(value, margin);
  return margin > 0 ? `${told.value} ± ${told.margin}` : `${told.value}`;
}

function spaced(value, style) {
  return new Intl.NumberFormat("en", style).format(Object.is(value, -0) ? 0 : value);
}

/** About three digits. */
export function rough(value) {
  return new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }).format(value);
}

/** A share of 1 as per cent, about two digits, never "0 %" for something. */
export function percent(share) {
  const hundredfold = share * 100;
  if (hundredfold > 0 && hundredfold < 0.0001) return "under 0.0001 %";
  const digits = hundredfold >= 99 && hundredfold < 100 ? 4 : 2;
  return `${new Intl.NumberFormat("en", { maximumSignificantDigits: digits }).format(hundredfold)} %`;
}

/** A moment as the reader's own clock has it. */
export function moment(text) {
  const when = new Date(text);
  return Number.isNaN(when.getTime())
    ? String(text)
    : when.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** A label of a result as text: keys may be text, numbers or true and false. */
export function label(key) {
  return key === true ? "yes" : key === false ? "no" : key === null ? "NULL" : String(key);
}
