// The respondent's own account: what all reports from this browser to this site may reveal together.
//
// KLNRS Definition 5.3: over all reports a person makes, epsilon in total. It is kept as odds, exactly: reports with
// factors A1/C1, A2/C2, ... together make anything at most (A1/C1)(A2/C2)... times likelier. The factor is read off the
// integers that the randomiser will really use, never off what the server says epsilon is.

/** The most that all reports together may multiply odds by: e^4 = 54.598..., rounded up in the fifth digit. */
export const CAP = { epsilon: 4, top: 5459816n, bottom: 100000n };

const PLACE = "dodona.reports";

/** The largest factor any question of a form can have: which one is drawn must not matter. */
export function worstFactor(randomisers) {
  return randomisers.reduce((worst, next) => (next.a * worst.c > worst.a * next.c ? next : worst));
}

/** What was sent from here before, by survey: {token, report, question, odds: [A, C], sent}. No answer is ever kept. */
export function sentBefore(storage = localStorage) {
  try {
    const kept = JSON.parse(storage.getItem(PLACE) ?? "{}");
    return kept !== null && typeof kept === "object" ? kept : {};
  } catch {
    return {};
  }
}

/** Keep a report before it is sent: a page loaded again must send the same one, never draw another. */
export function keep(survey, entry, storage = localStorage) {
  storage.setItem(PLACE, JSON.stringify({ ...sentBefore(storage), [survey]: entry }));
}

/** Whether one more report with odds A to C stays within the cap; exact. */
export function affordable(factor, storage = localStorage) {
  let top = factor.a * CAP.bottom;
  let bottom = factor.c * CAP.top;
  for (const entry of Object.values(sentBefore(storage))) {
    top *= BigInt(entry.odds[0]);
    bottom *= BigInt(entry.odds[1]);
  }
  return top <= bottom;
}

/** The factor that has been spent so far, for showing. */
export function spentFactor(storage = localStorage) {
  return Object.values(sentBefore(storage)).reduce((all, entry) => all * asNumber(entry.odds[0], entry.odds[1]), 1);
}

/** A/C as a number, for showing only. */
export function asNumber(a, c) {
  return Number((BigInt(a) * 1000000n) / BigInt(c)) / 1000000;
}

/** A token that names this one report: 128 bits, made here. */
export function freshToken() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
