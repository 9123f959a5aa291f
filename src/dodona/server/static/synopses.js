// What is published: synopses answer their own kind of question for ever, for nothing, without touching a row.

import { answerCard } from "./answer.js";
import { pages, part } from "./api.js";
import { field, h, show } from "./dom.js";
import { save } from "./download.js";
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
  );
}
