// Surveys, for the curator: define one, hand out its link, watch its estimates.

import { pages } from "./api.js";
import { CAP } from "./account.js";
import { field, freshId, h, paused, show, table } from "./dom.js";
import { save } from "./download.js";
import { estimatesOf } from "./estimates.js";
import { moment } from "./format.js";

const KINDS = [
  ["yes-no", "Yes or no"],
  ["choice", "One of several"],
  ["number", "A number, in ranges"],
  ["text", "A word or short text"],
];

export function surveysRoom(place) {
  const listed = h("div", {}, h("p", { class: "quiet" }, "Reading the surveys…"));
  const watched = h("div", {});
  const reload = () => list(place, listed, watched);
  reload();
  return h(
    "div",
    { class: "stack" },
    h(
      "section",
      { class: "card" },
      h("h2", {}, "New survey"),
      h(
        "p",
        {},
        "Respondents trust nobody here: their own browser randomises an answer before it is sent. You get reports and, from many of them, estimates.",
      ),
      defining(place, reload),
    ),
    h("section", { class: "card" }, h("h2", {}, "Surveys"), listed),
    watched,
  );
}

function defining(place, reload) {
  const title = h("input", { required: true, maxlength: 120 });
  const about = h("textarea", { rows: 2, maxlength: 2000 });
  const epsilon = h("input", { required: true, inputmode: "decimal", size: 6, pattern: "[0-9]+([.\\/][0-9]+)?" });
  const links = h("input", { type: "number", min: 0, max: 10000, value: 0 });
  const batch = h("input", { type: "number", min: 0, max: 100000, value: 0 });
  const questions = h("ol", { class: "questions" });
  const status = h("p", { class: "status", role: "alert" });
  const made = h("div", { "aria-live": "polite" });
  const add = () => questions.append(oneQuestion());
  add();
  const needs = h("p", { class: "quiet", role: "status" }, "Once it is written down, this says how many people it takes.");
  const whole = () => ({
    title: title.value,
    about: about.value,
    epsilon: epsilon.value.trim(),
    questions: [...questions.children].map(readQuestion),
    tokens: Number(links.value),
    batch: Number(batch.value),
  });
  let asked = 0;
  const foresee = paused(400, async () => {
    const mine = (asked += 1);
    const stated = whole();
    if (stated.epsilon === "" || stated.questions.some((one) => one.text.trim() === "")) return;
    let told;
    try {
      told = peopleWords(await place.api.post("/surveys/plan", { ...stated, title: stated.title || "a survey" }));
    } catch (problem) {
      told = problem.message;
    }
    if (mine === asked) show(needs, told);
  });
  const send = async (event) => {
    event.preventDefault();
    status.textContent = "";
    const stated = whole();
    try {
      const survey = await place.api.post("/surveys", stated);
      event.target.reset();
      show(questions);
      add();
      show(made, madeNotice(survey, stated.batch));
      reload();
    } catch (problem) {
      status.textContent = problem.message;
    }
  };
  return h(
    "form",
    { on: { submit: send, input: foresee, change: foresee } },
    field("Title", title),
    field("About", about, "What it is for, and who runs it."),
    h("h3", {}, "Questions"),
    questions,
    h(
      "button",
      {
        type: "button",
        class: "small",
        on: {
          click: () => {
            add();
            questions.lastChild.querySelector("input").focus();
          },
        },
      },
      "Add a question",
    ),
    h(
      "div",
      { class: "row-form" },
      field(
        "Epsilon for each respondent",
        epsilon,
        `Smaller protects more. Browsers refuse more than ${CAP.epsilon} in all.`,
      ),
      field("One-time links", links, "0: anyone may answer, once per browser."),
      field("Batch", batch, "Reports that a shuffler hands on at a time, at least 10; 0: none stands between."),
    ),
    needs,
    h("button", { class: "primary", type: "submit" }, "Make the survey"),
    status,
    made,
  );
}

/** How many people until every share is known well enough. */
function peopleWords({ margin, questions }) {
  const within = `± ${(100 * margin).toLocaleString("en")} %`;
  const most = questions.map(({ people }) => people ?? Infinity).reduce((a, b) => Math.max(a, b), 0);
  if (!Number.isFinite(most)) return `At this epsilon no number of people makes shares known within ${within}. Raise it.`;
  const rounded = Number(most.toPrecision(2)).toLocaleString("en");
  return `For shares within ${within} it takes about ${rounded} people; each answers one question, drawn by lot.`;
}

function oneQuestion() {
  const text = h("input", { required: true, maxlength: 500, name: "text" });
  const kind = h("select", { name: "kind" }, ...KINDS.map(([value, name]) => h("option", { value }, name)));
  const values = h("textarea", { rows: 3, name: "values" });
  const edges = h("input", { name: "edges", placeholder: "0, 18, 30, 45, 60, 120" });
  const length = h("input", { name: "length", type: "number", min: 1, max: 9, value: 6 });
  const more = {
    "yes-no": null,
    choice: field("Answers, one a line", values),
    number: field("Ends of the ranges", edges, "Increasing, separated by commas."),
    text: field("Letters that count", length, "Of a to z; all others count as a space. Frequent texts are found later."),
  };
  const extra = h("div", {});
  kind.addEventListener("change", () => show(extra, more[kind.value]));
  const remove = (event) => {
    const item = event.currentTarget.closest("li");
    if (item.parentNode.children.length > 1) item.remove();
  };
  return h(
    "li",
    {},
    field("Question", text),
    h(
      "div",
      { class: "row-form" },
      field("Kind", kind),
      h("button", { type: "button", class: "small", on: { click: remove } }, "Remove"),
    ),
    extra,
  );
}

function readQuestion(item) {
  const at = (name) => item.querySelector(`[name=${name}]`)?.value ?? "";
  const question = { text: at("text"), kind: at("kind") };
  if (question.kind === "choice")
    question.values = at("values")
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean);
  if (question.kind === "number")
    question.edges = at("edges")
      .split(",")
      .map((edge) => Number(edge.trim()));
  if (question.kind === "text") {
    question.alphabet = " abcdefghijklmnopqrstuvwxyz";
    question.length = Number(at("length"));
  }
  return question;
}

function madeNotice(survey, batch) {
  const link = `${batch ? "SHUFFLER" : location.origin}${survey.path}`;
  const all = survey.tokens.map((token) => `${link}#token=${token}`);
  return h(
    "div",
    { class: "notice good" },
    batch
      ? h(
          "p",
          {},
          "Its reports come from a shuffler alone, which somebody else should run: ",
          h("code", {}, `dodona shuffle ${location.origin} --survey ${survey.id}`),
          `. Respondents answer there, at ${link}.`,
        )
      : h("p", {}, "The survey is open at ", h("a", { href: survey.path, target: "_blank", rel: "noopener" }, link), "."),
    all.length
      ? h(
          "p",
          {},
          `${all.length} one-time links were made; they are shown here once. `,
          h(
            "button",
            {
              type: "button",
              class: "small",
              on: { click: () => save("links.txt", `${all.join("\n")}\n`, "text/plain") },
            },
            "Download the links",
          ),
        )
      : null,
  );
}

async function list(place, listed, watched) {
  try {
    const items = await pages(place.api, "/surveys");
    if (items.length === 0) return show(listed, h("p", { class: "quiet" }, "No survey yet."));
    const rows = items.map((survey) => [
      h("a", { href: `/survey/${survey.id}`, target: "_blank", rel: "noopener" }, survey.title),
      survey.epsilon,
      survey.reports.toLocaleString("en"),
      moment(survey.made),
      survey.closed ? "closed" : "open",
      h(
        "div",
        { class: "actions" },
        h(
          "button",
          {
            type: "button",
            class: "small",
            "aria-label": `Estimates of ${survey.title}`,
            on: { click: () => watch(place, survey, watched) },
          },
          "Estimates",
        ),
        survey.closed
          ? null
          : h(
              "button",
              {
                type: "button",
                class: "small",
                "aria-label": `Close ${survey.title}`,
                on: {
                  click: async () => {
                    await place.api.post(`/surveys/${survey.id}/close`);
                    list(place, listed, watched);
                  },
                },
              },
              "Close",
            ),
      ),
    ]);
    return show(listed, table("Surveys", ["Title", "Epsilon", "Reports", "Made", "State", ""], rows, new Set([1, 2])));
  } catch (problem) {
    return show(listed, h("p", { class: "teach" }, problem.message));
  }
}

function watch(place, survey, watched) {
  const section = estimatesOf(survey.id, place.api);
  section.id = freshId("watched");
  show(watched, section);
  section.scrollIntoView({ block: "nearest" });
}
