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

/** The numbers of a question's randomiser, checked: a form that does not make sense draws nothing. */
export function randomiserOf(question) {
  const told = question.randomiser;
  const [a, c] = told.odds.map(BigInt);
  const size = BigInt(told.size);
  const favoured = BigInt(told.favoured);
  const symbols = BigInt(told.symbols);
  const sound = c >= 1n && a > c && favoured >= 1n && favoured < size && symbols >= 2n && symbols <= size;
  const known = told.shape === "window" ? isPrime(size) : told.shape === "bit" && size === 2n && symbols === 2n;
  // An answer beyond the symbols could not be reported, and a symbol without an answer would be somebody else's.
  const counted = BigInt(answersOf(question).length) === symbols;
  const ranged = question.kind !== "number" || question.edges.length === question.labels.length + 1;
  if (!sound || !known || !counted || !ranged)
    throw new Error("This form's randomiser is not one this page can check.");
  return { shape: told.shape, a, c, size, favoured, symbols, total: favoured * a + (size - favoured) * c };
}

// Multipliers are uniform over the circle only where its size is prime (mechanisms/window.md).
function isPrime(n) {
  if (n < 2n || n > 4096n) return false; // no question has as many answers, and a hostile form must not stall the page
  for (let f = 2n; f * f <= n; f += 1n) if (n % f === 0n) return false;
  return true;
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
  const multiplier = randomiser.shape === "window" ? 1n + uniform(randomiser.size - 1n) : 0n;
  return { lot, multiplier, position: position(randomiser, uniform(randomiser.total)) };
}

/**
 * The report's fields for the answer `symbol` (its place in the list of answers).
 * window: (0, multiplier, multiplier * symbol + position mod size); bit: (0, 0, symbol flipped or not).
 */
export function fields(randomiser, drawn, symbol) {
  const held = BigInt(symbol);
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

/** A report as bytes: mark "dR", version, group 0, the scheme's name, then each field as eight bytes, low byte first. */
export function packed(version, scheme, report) {
  const bytes = new Uint8Array(12 + 8 * report.length);
  bytes.set([0x64, 0x52, version, 0]);
  for (let i = 0; i < 8; i += 1) bytes[4 + i] = Number.parseInt(scheme.slice(2 * i, 2 * i + 2), 16);
  const view = new DataView(bytes.buffer);
  report.forEach((field, i) => view.setBigInt64(12 + 8 * i, field, true));
  return bytes;
}

/** Bytes as text for JSON. */
export function base64(bytes) {
  return btoa(String.fromCharCode(...bytes));
}
