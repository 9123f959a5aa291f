// A survey's randomiser: one answer in, one randomised report out, in whole numbers only.
//
// The same draw as dodona/mechanisms/response.py: one integer, exactly uniform below
//   T = favoured * A + (size - favoured) * C,
// names a position: A integers for each of the first `favoured` positions, C for each other. Which position an answer
// relabels to which report depends on the answer, how many are favoured never does; so any report is at most A/C times
// likelier from one answer than from another. No float and no Math.random decides anything here: BigInt throughout.

/** Uniform bits from the browser's own secure source: `width` bits as a BigInt. */
export function secureBits(width) {
  const bytes = new Uint8Array(Math.max(16, Math.ceil(width / 8)));
  crypto.getRandomValues(bytes);
  // A stuck source would publish the truth or a constant: sixteen equal bytes come from a sound one once in 2^120.
  if (bytes.every((byte) => byte === bytes[0])) throw new Error("The browser's source of randomness is stuck.");
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return value >> BigInt(8 * bytes.length - width);
}

/** An integer exactly uniform on 0..bound-1: bits of just enough width, rejected while too large. No modulus, no bias. */
export function below(bound, bits = secureBits) {
  if (bound < 1n) throw new RangeError("bound must be at least 1");
  const width = bound === 1n ? 0 : (bound - 1n).toString(2).length;
  if (width === 0) return 0n;
  for (;;) {
    const value = bits(width);
    if (value < bound) return value;
  }
}

export const NO_ANSWER = "Rather not say";

/** The answers a question knows, in the order the randomiser counts them. */
export function answersOf(question) {
  if (question.kind === "yes-no") return ["Yes", "No"];
  return [...question.labels, NO_ANSWER];
}

/** A text as the number that is reported on, letter by letter; letters the alphabet lacks count as its first. */
export function numberOf(question, text) {
  const { alphabet, length } = question;
  const width = BigInt((alphabet.length - 1).toString(2).length);
  const plain = /[A-Z]/.test(alphabet) ? text : text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
  const letters = Array.from(plain.replace(/^ +/, "")).slice(0, length);
  let number = 0n;
  for (let i = 0; i < length; i += 1)
    number = (number << width) | BigInt(Math.max(0, i < letters.length ? alphabet.indexOf(letters[i]) : 0));
  return number;
}

/** What of a text counts: as its number is read back. */
export function countedOf(question, number) {
  const { alphabet, length } = question;
  const width = BigInt((alphabet.length - 1).toString(2).length);
  const letters = Array.from({ length }, (_, i) => alphabet[Number((number >> (width * BigInt(length - 1 - i))) & ((1n << width) - 1n))]);
  return letters.join("").replace(new RegExp(`${alphabet[0].replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")}+$`), "");
}

/** A text question's randomisers, a window for each length of prefix; the odds told are those of the worst. */
function prefixesOf(question) {
  const { bits, shares, windows } = question.randomiser;
  const width = (question.alphabet.length - 1).toString(2).length;
  const drawn = windows.map((told) => windowOf(told, MOST_HASHED));
  const sound =
    bits === width * question.length &&
    bits <= 48 &&
    new Set(question.alphabet).size === question.alphabet.length &&
    windows.length === shares.length &&
    shares.every((share) => Number.isInteger(share) && share > 0) &&
    windows.every((told, i) => drawn[i] && told.length <= bits && drawn[i].symbols === 1n << BigInt(told.length));
  if (!sound) throw new Error("This form's randomiser is not one this page can check.");
  const worst = drawn.reduce((one, next) => (next.a * one.c > one.a * next.c ? next : one));
  const groups = drawn.map((window, i) => ({ ...window, dropped: BigInt(bits - windows[i].length), bits: windows[i].length }));
  return { shape: "prefixes", groups, shares, bits, a: worst.a, c: worst.c, total: worst.total };
}

const MOST_HASHED = 1n << 49n;

function windowOf(told, most) {
  const [a, c] = told.odds.map(BigInt);
  const [size, favoured, symbols] = [told.size, told.favoured, told.symbols].map(BigInt);
  const sound = c >= 1n && a > c && favoured >= 1n && favoured < size && symbols >= 2n && symbols <= size;
  if (told.shape !== "window" || !sound || size > most || !isPrime(size)) return null;
  return { shape: "window", a, c, size, favoured, symbols, total: favoured * a + (size - favoured) * c };
}

/** The numbers of a question's randomiser, checked: a form that does not make sense draws nothing. */
export function randomiserOf(question) {
  const told = question.randomiser;
  if (question.kind === "text") return prefixesOf(question);
  const [a, c] = told.odds.map(BigInt);
  const size = BigInt(told.size);
  const favoured = BigInt(told.favoured);
  const symbols = BigInt(told.symbols);
  const sound = c >= 1n && a > c && favoured >= 1n && favoured < size && symbols >= 2n && symbols <= size;
  const known = told.shape === "window" ? size <= 4096n && isPrime(size) : told.shape === "bit" && size === 2n && symbols === 2n;
  // An answer beyond the symbols could not be reported, and a symbol without an answer would be somebody else's.
  const counted = BigInt(answersOf(question).length) === symbols;
  const ranged = question.kind !== "number" || question.edges.length === question.labels.length + 1;
  if (!sound || !known || !counted || !ranged)
    throw new Error("This form's randomiser is not one this page can check.");
  return { shape: told.shape, a, c, size, favoured, symbols, total: favoured * a + (size - favoured) * c };
}

// Multipliers are uniform over the circle only where its size is prime (mechanisms/window.md). Miller and Rabin's test,
// of which the first seven primes suffice below 3.4 10^14; a hostile form must not stall the page.
export function isPrime(n) {
  const witnesses = [2n, 3n, 5n, 7n, 11n, 13n, 17n];
  if (n < 2n || n > 341550071728320n) return false;
  if (witnesses.includes(n)) return true;
  if (witnesses.some((f) => n % f === 0n)) return false;
  let [odd, halvings] = [n - 1n, 0];
  while (odd % 2n === 0n) [odd, halvings] = [odd / 2n, halvings + 1];
  return witnesses.every((base) => {
    let value = power(base, odd, n);
    if (value === 1n || value === n - 1n) return true;
    for (let i = 1; i < halvings; i += 1) {
      value = (value * value) % n;
      if (value === n - 1n) return true;
    }
    return false;
  });
}

function power(base, exponent, n) {
  let [found, square] = [1n, base % n];
  for (let left = exponent; left > 0n; left >>= 1n) {
    if (left & 1n) found = (found * square) % n;
    square = (square * square) % n;
  }
  return found;
}

/** The position that an integer below T stands for. */
export function position(randomiser, drawn) {
  const edge = randomiser.favoured * randomiser.a;
  return drawn < edge ? drawn / randomiser.a : randomiser.favoured + (drawn - edge) / randomiser.c;
}

/** All the chance there is, from uniform integers alone: drawn once, before and whatever is answered. */
export function draw(questions, uniform = below) {
  const lot = Number(uniform(BigInt(questions.length)));
  const randomiser = randomiserOf(questions[lot]);
  if (randomiser.shape === "prefixes") {
    const all = randomiser.shares.reduce((sum, share) => sum + share, 0);
    let [group, at] = [0, Number(uniform(BigInt(all)))];
    while (at >= randomiser.shares[group]) at -= randomiser.shares[group++];
    const window = randomiser.groups[group];
    return { lot, group, multiplier: 1n + uniform(window.size - 1n), position: position(window, uniform(window.total)) };
  }
  const multiplier = randomiser.shape === "window" ? 1n + uniform(randomiser.size - 1n) : 0n;
  return { lot, multiplier, position: position(randomiser, uniform(randomiser.total)) };
}

/**
 * The report's fields for the answer `symbol` (its place in the list of answers).
 * window: (0, multiplier, multiplier * symbol + position mod size); bit: (0, 0, symbol flipped or not); of a text, whose
 * symbol is its number: (multiplier, multiplier * prefix + position mod size).
 */
export function fields(randomiser, drawn, symbol) {
  const held = BigInt(symbol);
  if (randomiser.shape === "prefixes") {
    const window = randomiser.groups[drawn.group];
    if (held < 0n || held >> window.dropped >= window.symbols) throw new RangeError("no such answer");
    return [drawn.multiplier, (drawn.multiplier * (held >> window.dropped) + drawn.position) % window.size];
  }
  if (held < 0n || held >= randomiser.symbols) throw new RangeError("no such answer");
  if (randomiser.shape === "bit") return [0n, 0n, held ^ drawn.position];
  return [0n, drawn.multiplier, (drawn.multiplier * held + drawn.position) % randomiser.size];
}

/** Weight of this very report, given that the answer was `symbol`: A or C, out of T (and the public multiplier's odds). */
export function weight(randomiser, report, symbol) {
  const held = BigInt(symbol);
  if (randomiser.shape === "bit") return report[2] === held ? randomiser.a : randomiser.c;
  const place = (((report[2] - report[1] * held) % randomiser.size) + randomiser.size) % randomiser.size;
  return place < randomiser.favoured ? randomiser.a : randomiser.c;
}

/** A report as bytes: mark "dR", version, group, the scheme's name, then each field as eight bytes, low byte first. */
export function packed(version, scheme, report, group = 0) {
  const bytes = new Uint8Array(12 + 8 * report.length);
  bytes.set([0x64, 0x52, version, group]);
  for (let i = 0; i < 8; i += 1) bytes[4 + i] = Number.parseInt(scheme.slice(2 * i, 2 * i + 2), 16);
  const view = new DataView(bytes.buffer);
  report.forEach((field, i) => view.setBigInt64(12 + 8 * i, field, true));
  return bytes;
}

/** Bytes as text for JSON. */
export function base64(bytes) {
  return btoa(String.fromCharCode(...bytes));
}
