// The respondent's page: read the form, check what it would cost, ask, draw, show what will be sent, send once.

import { affordable, asNumber, CAP, claim, freshToken, sentBefore, settle, spentFactor, worstFactor } from "./account.js";
import { Api } from "./api.js";
import { h, show } from "./dom.js";
import { estimatesOf } from "./estimates.js";
import { chancePicture, epsilonOf, inWords, prefixInWords, revelations, times } from "./meaning.js";
import { answersOf, base64, countedOf, draw, fields, numberOf, packed, randomiserOf } from "./randomiser.js";

const api = new Api();
const main = document.getElementById("survey");
const id = decodeURIComponent(location.pathname.split("/").filter(Boolean).pop() ?? "");
// A link the curator gave out carries its token behind the #, which browsers never send.
const issued = /^#token=([0-9a-f]{32})$/.exec(location.hash)?.[1] ?? null;

const UNREADABLE = "What this browser keeps about the reports it sent can't be read, so it can't tell what is left.";
const ELSEWHERE =
  "Its reports go to a shuffler, and this page is the collector's. Open the shuffler's link. Nothing was drawn and nothing was sent.";
const ALLOWED = times(Number(CAP.top) / Number(CAP.bottom), Math.floor);

async function start() {
  let form;
  try {
    form = await api.get(`/surveys/${encodeURIComponent(id)}`);
  } catch (problem) {
    show(main, h("h1", {}, "No survey here"), h("p", { class: "notice bad", role: "alert" }, problem.message));
    return;
  }
  document.title = `${form.title} · Dodona`;
  // The collector has this page too, and would itself get a report that is promised a crowd.
  if (form.shuffler && !form.shuffler.here) return refused(form, ELSEWHERE);
  let kept;
  try {
    kept = await sentBefore();
  } catch {
    return refused(form, `${UNREADABLE} Nothing was drawn and nothing was sent.`);
  }
  const before = kept[id];
  if (before?.sent) return finished(form, "You have already sent your report to this survey.");
  let randomisers;
  try {
    randomisers = form.questions.map(randomiserOf);
  } catch (fault) {
    return refused(form, fault.message);
  }
  const factor = worstFactor(randomisers);
  // A report that was kept but whose arrival is unknown is sent as it is: drawing again would give away more.
  if (before) return resend(form, before);
  if (!affordable(factor, kept)) return refused(form, tooDear(factor, spentFactor(kept)));
  ask(form, randomisers, factor);
}

function tooDear(factor, spent) {
  const asked = times(asNumber(factor.a, factor.c));
  const earlier = spent > 1 ? ` Reports this browser sent here before already allow ${times(spent)}.` : "";
  return (
    `This survey asks for a report that could be up to ${asked} likelier for one answer than for another. ` +
    `This page allows at most ${ALLOWED} (epsilon ${CAP.epsilon}) for all reports together.${earlier} Nothing was drawn and nothing was sent.`
  );
}

function refused(form, why) {
  show(
    main,
    h("h1", {}, form.title),
    h("div", { class: "notice bad", role: "alert" }, h("h2", {}, "Your browser refuses this survey"), h("p", {}, why)),
  );
}

function head(form) {
  return [h("h1", {}, form.title), form.about ? h("p", { class: "about" }, form.about) : null];
}

/** The questions. Chance is drawn once, when first needed, and stays: going back changes an answer, never the dice. */
function ask(form, randomisers, factor) {
  let drawn = null;
  const ratio = asNumber(factor.a, factor.c);
  const asked = form.questions.map(askOne);
  const review = h("section", { class: "card review", "aria-live": "polite", hidden: true });
  const sheet = h(
    "form",
    {
      class: "sheet",
      novalidate: true,
      on: {
        submit: (event) => {
          event.preventDefault();
          const missing = asked.find((one) => one.read() === null);
          asked.forEach((one) => one.mark());
          if (missing) return missing.focus();
          drawn ??= draw(form.questions);
          const report = fields(randomisers[drawn.lot], drawn, asked[drawn.lot].read());
          const group = drawn.group ?? 0;
          const back = () => {
            review.hidden = true;
            sheet.hidden = false;
            asked[0].focus();
          };
          sheet.hidden = true;
          told.open = false;
          reviewed(review, form, randomisers, factor, { lot: drawn.lot, group }, report, back);
        },
      },
    },
    ...asked.map((one) => one.node),
    h(
      "div",
      { class: "actions" },
      h("button", { class: "primary", type: "submit" }, "Prepare my report"),
      h("span", { class: "quiet" }, "Nothing is sent yet."),
    ),
  );
  const told = promise(form, ratio);
  show(main, ...head(form), told, sheet, review);
}

function promise(form, ratio) {
  const several = form.questions.length > 1;
  return h(
    "details",
    { class: "card promise", open: true },
    h("summary", {}, "How your answers stay yours"),
    h(
      "ol",
      { class: "steps" },
      several
        ? h("li", {}, `By lot, your browser picks one of the ${form.questions.length} questions. The other answers stay here.`)
        : null,
      h("li", {}, "It blurs that answer with dice of its own, before anything leaves this page."),
      h("li", {}, "It shows you exactly what would be sent. You decide."),
      form.shuffler
        ? h(
            "li",
            {},
            `This page belongs to a shuffler. It keeps your report, without your address or the time, until there are at least ${Number(form.shuffler.batch).toLocaleString("en")}, and hands all of them on at once, in no order.`,
          )
        : null,
    ),
    h(
      "p",
      {},
      `A report is at most ${times(ratio)} likelier for one answer than for any other (epsilon ${epsilonOf(ratio)}). `,
      `This page refuses anything above ${ALLOWED} (epsilon ${CAP.epsilon}) for all reports from this browser together.`,
    ),
    form.shuffler ? h("p", {}, shuffledWords(form.shuffler)) : null,
  );
}

/** What the crowd adds. */
function shuffledWords({ central, delta }) {
  const factor = Math.exp(Number(asFraction(central)));
  return (
    `Who sees only what the shuffler hands on finds it at most ${times(factor)} likelier for one answer of yours than for another, ` +
    `but for a chance of ${Number(asFraction(delta)).toPrecision(1)}. That rests on the shuffler's keeping quiet, and on the others of its batch being people. If it doesn't, the first promise still holds.`
  );
}

function asFraction(text) {
  const [top, bottom] = text.split("/").map(Number);
  return top / (bottom ?? 1);
}

/** One question: its fieldset, and the place of the answer in the list (null while there is none). */
function askOne(question, index) {
  const answers = answersOf(question);
  const wrong = h("p", { class: "wrong", id: `wrong-${index}`, hidden: true }, "Please choose an answer.");
  const entry = question.kind === "number" ? numbers : question.kind === "text" ? texts : choices;
  const group = entry(question, index, answers);
  const node = h(
    "fieldset",
    { class: "card", "aria-describedby": wrong.id },
    h("legend", {}, question.text),
    ...group.nodes,
    wrong,
  );
  node.addEventListener("input", () => {
    if (group.read() !== null) wrong.hidden = true;
  });
  return {
    node,
    read: group.read,
    focus: () => node.querySelector("input").focus(),
    mark: () => {
      wrong.hidden = group.read() !== null;
    },
  };
}

function choices(_, index, names) {
  const inputs = names.map((_, symbol) => h("input", { type: "radio", name: `q${index}`, value: symbol }));
  const labels = inputs.map((input, i) => h("label", { class: "choice" }, input, h("span", {}, names[i])));
  return {
    nodes: [h("div", { class: "choices" }, ...labels)],
    read: () => inputs.map((input, symbol) => (input.checked ? symbol : null)).find((one) => one !== null) ?? null,
  };
}

/** A typed number counts as its bucket; one outside the ends as the nearest end. */
function numbers(question, index, answers) {
  const { edges } = question;
  const last = answers.length - 1;
  const bucket = (value) => Math.max(0, Math.min(last - 1, edges.findLastIndex((edge) => value >= edge)));
  const entry = h("input", {
    type: "number",
    step: "any",
    inputmode: "decimal",
    "aria-label": `${question.text} A number.`,
    "aria-describedby": `bucket-${index}`,
  });
  const skip = h("input", { type: "checkbox" });
  const ranged = "Only the range your number is in will be used.";
  const told = h("p", { class: "quiet", id: `bucket-${index}`, "aria-live": "polite" }, ranged);
  const read = () =>
    skip.checked
      ? last
      : entry.value !== "" && Number.isFinite(entry.valueAsNumber)
        ? bucket(entry.valueAsNumber)
        : null;
  const update = () => {
    entry.disabled = skip.checked;
    const symbol = read();
    told.textContent = symbol === null || symbol === last ? ranged : `Counts as: ${answers[symbol]}.`;
  };
  entry.addEventListener("input", update);
  skip.addEventListener("change", update);
  return { nodes: [entry, told, h("label", { class: "choice" }, skip, h("span", {}, answers[last]))], read };
}

/** A typed text counts as far as the question's letters and length reach; what counts is shown. */
function texts(question, index) {
  const entry = h("input", {
    type: "text",
    maxlength: 200,
    autocomplete: "off",
    "aria-label": question.text,
    "aria-describedby": `counts-${index}`,
  });
  const none = h("input", { type: "checkbox" });
  const told = h("p", { class: "quiet", id: `counts-${index}`, "aria-live": "polite" }, tellLength(question));
  const read = () => (none.checked ? 0n : entry.value.trim() === "" ? null : numberOf(question, entry.value));
  const update = () => {
    entry.disabled = none.checked;
    const number = read();
    told.textContent =
      number === null || none.checked ? tellLength(question) : `Counts as: “${countedOf(question, number)}”.`;
  };
  entry.addEventListener("input", update);
  none.addEventListener("change", update);
  return { nodes: [entry, told, h("label", { class: "choice" }, none, h("span", {}, "Nothing, or rather not say"))], read };
}

function tellLength(question) {
  return `Only the first ${question.length} letters will be used.`;
}

/** What will be sent, and what it means; sending is a decision of its own. */
function reviewed(review, form, randomisers, factor, { lot, group }, report, back) {
  const question = form.questions[lot];
  const randomiser = randomisers[lot];
  const bytes = packed(form.version, question.scheme, report, group);
  const body = { reports: [{ question: question.id, report: base64(bytes) }], token: issued ?? freshToken() };
  const { can, cannot } = revelations(randomiser, asNumber(randomiser.a, randomiser.c), form.questions.length);
  const status = h("p", { role: "status", class: "status" });
  const title = h("h2", { tabindex: "-1" }, "This is what will be sent");
  const send = h("button", { class: "primary", type: "button" }, "Send this report");
  const again = h("button", { type: "button", on: { click: back } }, "Go back");
  send.addEventListener("click", () => {
    send.disabled = again.disabled = true;
    // The odds of the worst question, not of the one drawn: the account must not tell which one it was.
    const entry = { body, odds: [String(factor.a), String(factor.c)], sent: false };
    sendOnce(form, entry, status, () => {
      send.disabled = false;
    });
  });
  review.hidden = false;
  show(
    review,
    title,
    form.questions.length > 1
      ? h("p", { class: "quiet" }, `The lot fell on question ${lot + 1} of ${form.questions.length}: ${question.text}`)
      : h("p", { class: "quiet" }, question.text),
    ...(question.kind === "text"
      ? prefixInWords(question, randomiser.groups[group])
      : [
          h("p", { class: "report" }, inWords(question, randomiser, report)),
          h(
            "p",
            {},
            "It may or may not be what you answered: chance had its say. Of 100 people who drew the same lots and gave each answer, this many would send this very report:",
          ),
          chancePicture(question, randomiser, report),
        ]),
    h(
      "div",
      { class: "two" },
      h("div", {}, h("h3", {}, "What it can reveal"), h("ul", {}, ...can.map((line) => h("li", {}, line)))),
      h("div", {}, h("h3", {}, "What it can't"), h("ul", {}, ...cannot.map((line) => h("li", {}, line)))),
    ),
    h(
      "details",
      {},
      h("summary", {}, `The exact message, all ${JSON.stringify(body).length} characters of it`),
      h("pre", { class: "bytes", tabindex: "0" }, JSON.stringify(body, null, 2)),
    ),
    h("div", { class: "actions" }, send, again),
    status,
  );
  title.focus();
}

/** Kept before it is sent, so that whatever happens to the connection, this browser never sends another. */
async function sendOnce(form, entry, status, retry) {
  let free;
  try {
    free = await claim(id, entry);
  } catch {
    status.textContent = `${UNREADABLE} It can't promise to send only once. Nothing was sent.`;
    return;
  }
  if (!free) {
    status.textContent = "This browser has sent another report since this page was opened. Nothing was sent.";
    return;
  }
  status.textContent = "Sending…";
  try {
    await api.post(`/surveys/${encodeURIComponent(id)}/reports`, entry.body);
  } catch (problem) {
    if (problem.reason !== "already-counted") {
      status.textContent = `${problem.message} Your report is kept; sending again sends the very same one.`;
      retry();
      return;
    }
  }
  // Where this fails the report stays kept as it is: sent again, it is told to be counted already.
  await settle(id, entry).catch(() => null);
  finished(
    form,
    form.shuffler
      ? "Thank you. Your report waits for its batch, and will count once."
      : "Thank you. Your report was counted once.",
  );
}

function resend(form, entry) {
  const status = h("p", { role: "status", class: "status" });
  const send = h("button", { class: "primary", type: "button" }, "Send the same report again");
  send.addEventListener("click", () => {
    send.disabled = true;
    sendOnce(form, entry, status, () => {
      send.disabled = false;
    });
  });
  show(
    main,
    ...head(form),
    h(
      "section",
      { class: "card" },
      h("h2", {}, "A report from this browser is on its way"),
      h(
        "p",
        {},
        "It was drawn before, but it is not certain that it arrived. It will be sent as it is: drawing a new one would give away more about you. It counts once, however often it is sent.",
      ),
      h("div", { class: "actions" }, send),
      status,
    ),
  );
}

function finished(form, words) {
  const thanks = h("p", { class: "notice good", role: "status", tabindex: "-1" }, words);
  show(main, ...head(form), thanks, estimatesOf(id, api));
  thanks.focus();
}

await start();
