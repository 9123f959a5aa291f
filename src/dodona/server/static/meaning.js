// What a report can and can't reveal, in plain words and small pictures, computed from the report's own odds.

import { asNumber } from "./account.js";
import { h } from "./dom.js";
import { answersOf, weight } from "./randomiser.js";

/** The epsilon that odds of A to C amount to, rounded up in the second digit: computed here, never taken on trust. */
export function epsilonOf(factor) {
  return Number((Math.ceil(Math.log(factor) * 100 - 1e-9) / 100).toFixed(2));
}

/** "2.72 times"; more digits where it is close to one. What a report can reveal is rounded up, what is allowed down. */
export function times(factor, round = Math.ceil) {
  const digits = factor < 1.1 ? 4 : 2;
  return `${(round(factor * 10 ** digits) / 10 ** digits).toFixed(digits)} times`;
}

/** "A", "A or B", "A, B or C". */
export function either(names) {
  const quoted = names.map((name) => `“${name}”`);
  return quoted.length < 2 ? quoted.join("") : `${quoted.slice(0, -1).join(", ")} or ${quoted[quoted.length - 1]}`;
}

/** The answers that make this report likelier. */
export function pointedAt(question, randomiser, report) {
  return answersOf(question).filter((_, symbol) => weight(randomiser, report, symbol) === randomiser.a);
}

/** The report itself, as one sentence. */
export function inWords(question, randomiser, report) {
  const likelier = pointedAt(question, randomiser, report);
  if (likelier.length === 0) return "This report points at none of the answers.";
  return `This report says: ${either(likelier)}.`;
}

/** What a report on a text's prefix says, as sentences: which texts it fits is a list nobody could read. */
export function prefixInWords(question, window) {
  const width = (question.alphabet.length - 1).toString(2).length;
  const letters = Math.ceil(window.bits / width);
  const part = window.bits % width ? `the first ${letters - 1} letters and part of the next` : `the first ${letters} letters`;
  const one = Math.round(asNumber(window.size, window.favoured));
  const fits = asNumber(window.favoured * window.a, window.total);
  return [
    h("p", { class: "report" }, `This report is about ${part} of a text. It fits about one of every ${one} texts there are.`),
    h(
      "p",
      {},
      `Yours may be one of them or not: chance had its say. Of 100 people who drew the same lots, ${Math.round(100 * fits)} would send a report that fits their own text, and the others one that doesn't. Nobody can tell the two apart.`,
    ),
  ];
}

/** For each answer, how often people who gave it would send this very report. */
export function chances(question, randomiser, report) {
  return answersOf(question).map((name, symbol) => ({
    name,
    share: asNumber(weight(randomiser, report, symbol), randomiser.total),
  }));
}

/** A picture of `chances`, as a list with meters that are read out as text. */
export function chancePicture(question, randomiser, report) {
  const rows = chances(question, randomiser, report);
  const most = Math.max(...rows.map((row) => row.share));
  return h(
    "ul",
    { class: "chances" },
    ...rows.map((row) =>
      h(
        "li",
        {},
        h("span", { class: "name" }, row.name),
        gauge(row.share / most),
        h("span", { class: "number" }, `${(100 * row.share).toFixed(row.share < 0.1 ? 1 : 0)} of 100`),
      ),
    ),
  );
}

/** A bar beside a number that says the same; its width is set from script, which the page's policy allows. */
function gauge(share) {
  const filled = h("span");
  filled.style.width = `${100 * share}%`;
  return h("span", { class: "gauge", "aria-hidden": "true" }, filled);
}

/** What an even guess about someone can become: factor/(1 + factor), in per cent, rounded up. */
export function evenGuess(factor) {
  return Math.ceil((1000 * factor) / (1 + factor)) / 10;
}

/** What anyone who sees the report learns, and what nobody can. */
export function revelations(randomiser, factor, questions) {
  const can = [
    `Whatever you answered, this report is at most ${times(factor)} likelier than if you had answered anything else.`,
    `Someone who thought the odds about you were even can now be at most ${evenGuess(factor)} % sure.`,
    "Reports to several surveys add up: what each can reveal multiplies, and whoever keeps them apart by sender sees that they are one person's. The same report sent again reveals nothing more.",
  ];
  const cannot = [
    "It can't prove what you answered. You can truthfully say that chance may have chosen it: nobody, not even those who run this survey, can tell.",
    questions > 1
      ? "Your answers to the other questions are not in it, in any form. A lot that ignores your answers picked the question."
      : "Nothing else about you is in it: no name, no account, no other answer.",
    "Opening this page shows your network address to the server, as with any page. The report doesn't contain it.",
  ];
  return { can, cannot };
}
