// What is published: synopses answer their own kind of question for ever, for nothing, without touching a row.

import { answerCard } from "./answer.js";
import { pages, part } from "./api.js";
import { field, h, show, table } from "./dom.js";
import { csv, save } from "./download.js";
import { percent } from "./format.js";
import { isSelect } from "./language.js";

export function synopsesRoom(place) {
  const listed = h("div", { class: "stack" }, h("p", { class: "quiet" }, "Reading what is published…"));
  load(place, listed);
  return h(
    "div",
    { class: "stack" },
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Published"),
      h("p", {}, "A synopsis was paid for once. Asking it is free, as often as you like."),
    ),
    listed,
  );
}

async function load(place, listed) {
  try {
    const items = await pages(place.api, `/datasets/${part(place.dataset.name)}/synopses`);
    show(
      listed,
      ...(items.length
        ? items.map((item) => synopsisCard(place, item))
        : [h("p", { class: "card quiet" }, "Nothing is published yet.")]),
    );
  } catch (problem) {
    show(listed, h("p", { class: "teach" }, problem.message));
  }
}

function synopsisCard(place, item) {
  const path = `/datasets/${part(place.dataset.name)}/synopses/${part(item.id)}`;
  const box = h("textarea", { rows: 2, spellcheck: "false", class: "code" });
  const answers = h("div", { "aria-live": "polite" });
  const status = h("p", { class: "status", role: "alert" });
  const ask = async (event) => {
    event.preventDefault();
    const text = box.value.trim();
    if (text === "") return box.focus();
    status.textContent = "";
    try {
      const reply = await place.api.post(`${path}/ask`, { [isSelect(text) ? "sql" : "question"]: text });
      answers.prepend(answerCard(text, reply, { free: true }));
    } catch (problem) {
      status.textContent = problem.message;
    }
  };
  const fetchFile = async () => {
    try {
      const response = await place.api.fetch("GET", path);
      save(`${item.id}.synopsis`, await response.blob(), "application/octet-stream");
    } catch (problem) {
      status.textContent = problem.message;
    }
  };
  const count = h("input", { type: "number", class: "short", min: 1, max: 100000, value: 1000, size: 6 });
  const made = h("div", { "aria-live": "polite" });
  const drawn = (rows) => place.api.get(`${path}/rows?rows=${rows}`);
  const preview = async () => {
    status.textContent = "";
    try {
      const { columns, rows, left_out: left } = await drawn(10);
      const cells = rows.map((row) => row.map((value) => (value === null ? "" : String(value))));
      const words = left.length ? `It knows nothing of ${left.join(", ")}.` : "";
      show(
        made,
        h("p", { class: "quiet" }, `Ten made-up rows: nobody's, and as free as every answer here. ${words}`),
        table("Made-up rows", columns, cells),
      );
    } catch (problem) {
      status.textContent = problem.message;
    }
  };
  const fetchRows = async () => {
    status.textContent = "Drawing…";
    try {
      const { columns, rows } = await drawn(Number(count.value) || 1000);
      save(`made-up-${item.id}.csv`, csv(columns, rows), "text/csv");
      status.textContent = "";
    } catch (problem) {
      status.textContent = problem.message;
    }
  };
  const facts = [
    ["Accuracy", item.accuracy],
    ["Made by", item.method],
    ["Cost, once", percent(item.cost.share)],
  ];
  return h(
    "section",
    { class: "card" },
    h("h3", {}, item.about),
    h("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
    h(
      "form",
      { class: "free", on: { submit: ask } },
      field("Ask it, for free", box),
      h(
        "div",
        { class: "actions" },
        h("button", { class: "primary", type: "submit" }, "Ask for free"),
        h("button", { type: "button", class: "small", on: { click: fetchFile } }, "Download the synopsis"),
        status,
      ),
    ),
    answers,
    item.draws
      ? h(
          "details",
          {},
          h("summary", {}, "Made-up rows"),
          h(
            "div",
            { class: "actions" },
            h("button", { type: "button", class: "small", on: { click: preview } }, "Preview"),
            field("Rows", count),
            h("button", { type: "button", class: "small", on: { click: fetchRows } }, "Download made-up rows"),
          ),
          made,
        )
      : null,
  );
}
