// Asking: the question box, the slider from cheap to accurate, the price before anything is spent, and the answers.

import { answerCard } from "./answer.js";
import { part } from "./api.js";
import { field, freshId, h, paused, show } from "./dom.js";
import { percent, rough } from "./format.js";
import { described, examples, FUNCTIONS, isSelect, literal, quoted } from "./language.js";
import { meter } from "./meter.js";
import { completing } from "./suggest.js";

const DECADES = 3; // the slider's left end is a thousandth of what is left
const PAUSE = 250;
const STEPS = 100;

/** The share of the whole budget at a slider's place, as text: never above `most`, three digits. */
export function shareAt(place, most) {
  const exact = most * 10 ** (DECADES * (place / STEPS - 1));
  const digits = 2 - Math.floor(Math.log10(exact));
  const floored = Math.floor(exact * 10 ** digits) / 10 ** digits;
  return floored.toFixed(Math.max(0, Math.min(20, digits)));
}

/** The room. `place` has api, dataset and refresh(). */
export function askRoom(place) {
  const answers = h("section", {
    class: "answers",
    "aria-label": "Answers",
    "aria-live": "polite",
    "aria-relevant": "additions",
  });
  const box = h("textarea", {
    rows: 4,
    spellcheck: "false",
    class: "code",
    "data-first": true,
    placeholder: examples(place.dataset.name, place.dataset.schema)[0]?.[1] ?? "",
  });
  const asking = new Asking(place, box, answers);
  for (const [text, reply] of keptAnswers(place)) answers.append(answerCard(text, reply));
  asking.restore();
  return h(
    "div",
    { class: "ask-room" },
    h("div", { class: "main-column" }, asking.node, answers),
    h(
      "aside",
      { class: "side-column", "aria-label": "What there is to ask about" },
      schemaCard(place.dataset, box),
      lossesCard(place, answers),
      functionCard(box),
    ),
  );
}

const KEPT = 20;
const LARGEST = 200_000;

/** The answers of this tab, newest first: they survive a reload, and are gone when the tab is closed or one signs out. */
function keptAnswers(place) {
  try {
    return JSON.parse(sessionStorage.getItem(`dodona.answers.${place.dataset.name}`) ?? "[]");
  } catch {
    return [];
  }
}

function keep(place, text, reply) {
  const all = [[text, reply], ...keptAnswers(place)].slice(0, KEPT);
  while (all.length > 0 && JSON.stringify(all).length > LARGEST) all.pop();
  sessionStorage.setItem(`dodona.answers.${place.dataset.name}`, JSON.stringify(all));
}

/** Puts text where the cursor is. */
function insert(box, text) {
  box.setRangeText(text, box.selectionStart, box.selectionEnd, "end");
  box.focus();
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

class Asking {
  constructor(place, box, answers) {
    Object.assign(this, { place, box, answers, request: null, asked: 0 });
    this.slider = h("input", { type: "range", min: 0, max: STEPS, step: 1, value: 45 });
    this.price = h("div", { class: "price", role: "status", "aria-live": "polite" });
    this.button = h("button", { class: "primary", type: "submit", disabled: true }, "Ask");
    this.status = h("p", { class: "status", role: "alert" });
    const later = paused(PAUSE, () => this.update());
    const changed = () => {
      this.button.disabled = true;
      place.remember(this.box.value.trim() === "" ? {} : { question: this.box.value, effort: this.slider.value });
      later();
    };
    box.addEventListener("input", changed);
    this.slider.addEventListener("input", () => {
      this.tellShare();
      changed();
    });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !this.button.disabled) this.node.requestSubmit();
    });
    this.node = this.form();
    this.tellShare();
    this.idle();
  }

  /** The question and the effort of the address. */
  restore() {
    const question = this.place.state?.get("question");
    if (!question) return;
    this.box.value = question;
    const effort = Number(this.place.state.get("effort"));
    if (effort >= 0 && effort <= STEPS) this.slider.value = effort;
    this.tellShare();
    this.update();
  }

  get most() {
    const { budget, analyst } = this.place.dataset;
    return analyst.left / budget.total;
  }

  get share() {
    return shareAt(Number(this.slider.value), this.most);
  }

  tellShare() {
    this.slider.setAttribute("aria-valuetext", `spends ${percent(Number(this.share))} of the budget`);
  }

  form() {
    const { dataset } = this.place;
    const list = completing(this.box, dataset.schema, freshId("completions"));
    const shown = examples(dataset.name, dataset.schema).map(([name, text]) =>
      h(
        "button",
        {
          type: "button",
          class: "small chip",
          title: text,
          on: {
            click: () => {
              this.box.value = text;
              this.box.dispatchEvent(new Event("input", { bubbles: true }));
              this.box.focus();
            },
          },
        },
        name,
      ),
    );
    const question = field("Your question", this.box, "A condition, a number per row, or a SELECT. Ctrl + Enter asks.");
    question.insertBefore(list, question.lastChild);
    const slider = field("Cheap and rough, or dear and accurate", this.slider);
    slider.classList.add("slide");
    slider.append(
      h("div", { class: "ends", "aria-hidden": "true" }, h("span", {}, "cheap"), h("span", {}, "accurate")),
    );
    const node = h(
      "form",
      { class: "card asking" },
      h("h2", {}, "Ask ", h("span", { class: "data-name" }, dataset.name)),
      question,
      h(
        "div",
        { class: "chips", role: "group", "aria-label": "Examples" },
        h("span", { class: "quiet" }, "Examples:"),
        ...shown,
      ),
      slider,
      this.price,
      h("div", { class: "actions" }, this.button, this.status),
    );
    node.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.button.disabled) this.ask();
    });
    return node;
  }

  idle() {
    show(
      this.price,
      h(
        "p",
        { class: "quiet" },
        this.most > 0
          ? "The price appears here while you type. Nothing is spent until you press Ask."
          : "Your share of the budget is spent. Published synopses stay free.",
      ),
    );
  }

  /** What is in the box, as the API takes it. */
  body() {
    const text = this.box.value.trim();
    return { [isSelect(text) ? "sql" : "question"]: text, effort: { share: this.share, confidence: "0.95" } };
  }

  async update() {
    const mine = (this.asked += 1);
    this.status.textContent = "";
    if (this.box.value.trim() === "" || !(this.most > 0)) return this.idle();
    const body = this.body();
    try {
      const price = await this.place.api.post(`/datasets/${part(this.place.dataset.name)}/price`, body);
      if (mine !== this.asked) return; // typed on meanwhile
      this.tell(price);
      this.button.disabled = !price.affordable;
    } catch (problem) {
      if (mine === this.asked) show(this.price, h("p", { class: "teach" }, problem.message));
    }
  }

  tell(price) {
    const { budget, analyst } = this.place.dataset;
    const after = Math.max(0, analyst.left / budget.total - price.cost.share);
    const figure = (name, value, more) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, more) : null));
    const errors = price.columns.length > 0 ? price.columns.map(columnError) : [errorOf(price)];
    show(
      this.price,
      h(
        "dl",
        { class: "figures" },
        ...errors.map(([error, detail, name]) => figure(name ?? "Expected error", error, detail)),
        figure("Cost", percent(price.cost.share), "of the whole budget"),
        figure(
          "Left for you after",
          percent(after),
          price.affordable ? "of the whole budget" : "this is more than you have left",
        ),
      ),
      meter(1 - analyst.left / budget.total, price.cost.share),
      h("p", { class: "quiet" }, "Nothing is spent until you press Ask."),
    );
  }

  async ask() {
    const body = this.body();
    const text = body.sql ?? body.question;
    // The same request sent again after a lost connection has the same name: charged once, answered alike.
    const print = JSON.stringify(body);
    if (this.request?.print !== print) this.request = { print, name: crypto.randomUUID() };
    this.button.disabled = true;
    this.status.textContent = "Asking…";
    const path = `/datasets/${part(this.place.dataset.name)}/${body.sql ? "sql" : "ask"}`;
    try {
      const reply = await this.place.api.post(path, body, { "Idempotency-Key": this.request.name });
      this.request = null;
      this.answers.prepend(answerCard(text, reply));
      keep(this.place, text, reply);
      this.status.textContent = "";
      await this.place.refresh();
      this.tellShare();
      await this.update();
    } catch (problem) {
      const charged =
        problem.charged === true ? " It was charged." : problem.charged === false ? " Nothing was charged." : "";
      this.status.textContent = problem.message + charged;
      if (problem.charged === null) this.button.disabled = false;
    }
  }
}

/** The error of one printed column of a SELECT: its size, for which groups, and its name. */
function columnError({ column, margin, size, lost }) {
  const rows = size === null ? "" : `in a group of ${size.toLocaleString("en")} ${size === 1 ? "row" : "rows"}`;
  return [lost ? "lost in noise" : `± ${rough(margin)}`, rows || "in every group", `Error of ${column}`];
}

/** The margin a price promises, in words: of a share of rows where one number is asked, of totals otherwise. */
function errorOf(price) {
  const margins = [price.margin].flat(Infinity);
  const worst = Math.max(...margins);
  const least = Math.min(...margins);
  const count = price.shape.reduce((all, side) => all * side, 1);
  const many = count > 1;
  if (!many && price.rows) return [`± ${rough(worst / price.rows)}`, `per row; ± ${rough(worst)} in total`];
  const span = least === worst ? `± ${rough(worst)}` : `± ${rough(least)} to ± ${rough(worst)}`;
  return [span, many ? `for each of ${count} sums` : "in total"];
}

function schemaCard(dataset, box) {
  const entries = Object.entries(dataset.schema).map(([name, column]) =>
    h(
      "li",
      {},
      h(
        "button",
        {
          type: "button",
          class: "column",
          title: `Put ${name} into the question`,
          on: { click: () => insert(box, quoted(name)) },
        },
        h("code", {}, name),
      ),
      h("span", { class: "told" }, described(column), column.public ? " · public" : ""),
      column.values ? valuesOf(column.values, box) : null,
    ),
  );
  const facts = [
    `${dataset.rows === null ? "a private number of" : dataset.rows.toLocaleString("en")} rows`,
    protectedWords(dataset.neighbours, dataset.whose),
  ];
  return h(
    "details",
    { class: "card schema", open: matchMedia("(min-width: 60rem)").matches },
    h("summary", {}, h("h2", {}, `Columns of `, h("span", { class: "data-name" }, dataset.name))),
    h("p", { class: "quiet" }, facts.join(" · ")),
    h("ul", { class: "columns" }, ...entries),
  );
}

/** Whom the promise is about, in words. */
function protectedWords(neighbours, whose) {
  const who = whose ? `a person (${whose})` : "a row";
  return neighbours === "replace"
    ? `nobody can tell what ${who} holds`
    : `nobody can tell whether ${who} is there, or what it holds`;
}

/** What the schema leaves out, counted for one per cent of the budget, or of less where less is left. */
function lossesCard(place, answers) {
  const { budget, analyst, name } = place.dataset;
  const share = shareAt(STEPS, Math.min(0.01, analyst.left / budget.total));
  const status = h("p", { class: "status", role: "alert" });
  const request = crypto.randomUUID();
  const button = h("button", { type: "button", class: "small", disabled: !(analyst.left > 0) }, "Count what is left out");
  button.addEventListener("click", async () => {
    button.disabled = true;
    status.textContent = "Counting…";
    try {
      const body = { effort: { share, confidence: "0.95" } };
      const reply = await place.api.post(`/datasets/${part(name)}/losses`, body, { "Idempotency-Key": request });
      answers.prepend(answerCard("What the schema leaves out", reply));
      status.textContent = "";
      await place.refresh();
    } catch (problem) {
      status.textContent = problem.message;
      button.disabled = problem.charged === true;
    }
  });
  return h(
    "details",
    { class: "card losses" },
    h("summary", {}, h("h2", {}, "What is left out?")),
    h(
      "p",
      { class: "quiet" },
      "Error bars speak of noise only. Values beyond the stated bounds, missing or not listed, and rows beyond a " +
        `person's limit, are another matter: how many there are can be counted, with noise. It spends ${percent(Number(share))} of the budget.`,
    ),
    h("div", { class: "actions" }, button, status),
  );
}

function valuesOf(values, box) {
  const shown = values.slice(0, 24);
  const more = values.length - shown.length;
  return h(
    "div",
    { class: "values" },
    ...shown.map((value) =>
      h("button", { type: "button", class: "value", on: { click: () => insert(box, literal(value)) } }, String(value)),
    ),
    more > 0 ? h("span", { class: "quiet" }, `and ${more} more`) : null,
  );
}

function functionCard(box) {
  const items = FUNCTIONS.map(([shape, told]) =>
    h(
      "li",
      {},
      h("button", { type: "button", class: "column", on: { click: () => insert(box, shape) } }, h("code", {}, shape)),
      h("span", { class: "told" }, told),
    ),
  );
  return h(
    "details",
    { class: "card functions" },
    h("summary", {}, h("h2", {}, "Functions")),
    h("ul", { class: "columns" }, ...items),
    h(
      "p",
      { class: "quiet" },
      "GROUP BY takes categories, conditions, BUCKET and whole numbers of small range. A row whose value is unknown counts as 0.",
    ),
  );
}
