// The budget: what is left, how it burned down, and who asked what (analysts see their own charges).

import { pages, part } from "./api.js";
import { burnDown } from "./chart.js";
import { fitted, h, show, table } from "./dom.js";
import { downloads } from "./download.js";
import { moment, percent, rough } from "./format.js";
import { meter } from "./meter.js";

const MOST_SHOWN = 200;

export function budgetRoom(place) {
  const { dataset } = place;
  const all = dataset.analyst.role === "curator";
  const body = h("div", {}, h("p", { class: "quiet" }, "Reading the ledger…"));
  load(place, all, body);
  const total = dataset.budget.total;
  const facts = [
    ["Whole budget", budgetWords(dataset)],
    ["Left of it", percent(dataset.left / total)],
    ...(dataset.analyst.share === null
      ? []
      : [
          ["Your share", percent(fraction(dataset.analyst.share))],
          ["Left of your share", `${percent(dataset.analyst.left / total)} of the whole`],
        ]),
    ...(dataset.budget.keys
      ? [["Delta left for keys", `${rough(dataset.analyst.keys_left)} of ${rough(fraction(dataset.budget.keys))}`]]
      : []),
  ];
  return h(
    "div",
    { class: "stack" },
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Budget of ", h("span", { class: "data-name" }, dataset.name)),
      meter(1 - (all ? dataset.left : dataset.analyst.left) / total, 0),
      h(
        "dl",
        { class: "figures" },
        ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
      ),
    ),
    h("section", { class: "card" }, h("h2", {}, all ? "Who asked what" : "What you asked"), body),
  );
}

function budgetWords({ budget, unit }) {
  const small = budget.delta ? fraction(budget.delta) : 0;
  const delta = small ? `, delta ${rough(small)}` : "";
  return budget.epsilon ? `epsilon ${budget.epsilon}${delta}` : `${unit} ${rough(budget.total)}`;
}

/** "3/10" as a number, for showing. */
function fraction(text) {
  const [top, bottom = "1"] = String(text).split("/");
  return Number(top) / Number(bottom);
}

async function load(place, all, body) {
  let items;
  try {
    items = await pages(place.api, `/datasets/${part(place.dataset.name)}/ledger?limit=500`);
  } catch (problem) {
    show(body, h("p", { class: "teach" }, problem.message));
    return;
  }
  if (items.length === 0) {
    show(body, h("p", { class: "quiet" }, "Nothing was spent yet."));
    return;
  }
  // An analyst's own share burns down by their own charges; the curator sees the whole.
  const own = place.dataset.analyst.share === null ? 1 : fraction(place.dataset.analyst.share);
  let left = 1;
  const points = items.map((item) => ({ when: Date.parse(item.time), left: Math.max(0, (left -= item.share / own)) }));
  const ends = [
    { when: points[0].when, left: 1 },
    { when: Math.max(Date.now(), points[points.length - 1].when), left: points[points.length - 1].left },
  ];
  const title = all ? "Budget left after each charge" : "Your share left after each of your charges";
  const frame = fitted(h("div", { class: "chart-frame" }), (width) =>
    burnDown([ends[0], ...points, ends[1]], title, width),
  );
  const newest = items.slice(-MOST_SHOWN).reverse();
  const rows = newest.map((item) => [
    String(item.entry),
    moment(item.time),
    ...(all ? [item.analyst] : []),
    h("code", {}, item.text),
    item.keys ? `${percent(item.share)}, delta ${rough(item.keys)}` : percent(item.share),
  ]);
  const head = ["Entry", "When", ...(all ? ["Who"] : []), "What", "Cost"];
  const result = {
    head: ["entry", "time", "analyst", "text", "cost", "share"],
    rows: items.map((i) => [i.entry, i.time, i.analyst, i.text, i.cost, i.share]),
    data: items,
  };
  show(
    body,
    frame,
    h(
      "p",
      { class: "quiet" },
      all
        ? "Each step down is one charge."
        : "This is your own share of the budget. Others' questions are not shown to you, nor yours to them.",
    ),
    table("Charges, newest first", head, rows, new Set([0, head.length - 1])),
    items.length > MOST_SHOWN
      ? h("p", { class: "quiet" }, `The newest ${MOST_SHOWN} of ${items.length}; the files have all.`)
      : null,
    downloads("ledger", result),
  );
}
