// Releases: spend once, publish for ever. The curator starts one; it runs on the server and shows how far it is.

import { pages, part } from "./api.js";
import { field, h, show } from "./dom.js";
import { percent, rough } from "./format.js";
import { decimalShare } from "./keys.js";

const LOOK_AGAIN = 1000;
const KINDS = [
  {
    name: "conjunctions",
    title: "Conjunctions: how many rows have these values, up to a width",
    columns: ["category", "flag"],
    many: true,
    width: true,
  },
  {
    name: "intervals",
    title: "Intervals: how many rows lie in any range of one number",
    columns: ["integer", "real"],
    many: false,
  },
  { name: "boxes", title: "Boxes: ranges of two or three numbers at once", columns: ["integer", "real"], many: true },
  {
    name: "halfspaces",
    title: "Halfspaces: linear combinations of numbers above any bound",
    columns: ["integer", "real"],
    many: true,
  },
  {
    name: "cuts",
    title: "Cuts: edges of a graph between any set of vertices and the rest",
    columns: ["integer"],
    many: true,
    ends: true,
  },
];
const PRICE_AFTER = 400;

export function releasesRoom(place) {
  const listed = h("div", { class: "stack" }, h("p", { class: "quiet" }, "Reading the releases…"));
  const follow = () => list(place, listed);
  follow();
  return h(
    "div",
    { class: "stack" },
    h(
      "section",
      { class: "card" },
      h("h2", {}, "New release"),
      h("p", {}, "A release spends a part of the budget once; its synopsis then answers for nothing, for ever."),
      starting(place, follow),
    ),
    h("section", { class: "card" }, h("h2", {}, "Releases"), listed),
  );
}

function starting(place, follow) {
  const kind = h("select", {}, ...KINDS.map((one) => h("option", { value: one.name }, one.title)));
  const share = h("input", { inputmode: "decimal", required: true, size: 6, placeholder: "10" });
  const columns = h("fieldset", { class: "columns-choice" });
  const width = field(
    "Width",
    h("input", { type: "number", min: 1, max: 8, value: 2, size: 4, class: "short" }),
    "How many conditions at once.",
  );
  const status = h("p", { class: "status", role: "alert" });
  const chosen = () => KINDS.find((one) => one.name === kind.value);
  const offer = () => {
    const { columns: types, many } = chosen();
    const fits = Object.entries(place.dataset.schema).filter(([, column]) => types.includes(column.type));
    width.hidden = !chosen().width;
    show(
      columns,
      h("legend", {}, many ? "Columns" : "Column"),
      ...fits.map(([name], i) =>
        h(
          "label",
          { class: "choice" },
          h("input", {
            type: many ? "checkbox" : "radio",
            name: "column",
            value: name,
            checked: chosen().width || i === 0 || (chosen().ends && i === 1),
          }),
          h("span", {}, name),
        ),
      ),
      fits.length === 0 ? h("p", { class: "quiet" }, "No column fits this kind.") : null,
    );
  };
  kind.addEventListener("change", offer);
  offer();
  const costs = h("p", { class: "quiet release-price", "aria-live": "polite" }, "State a cost to see what it buys.");
  const wanted = () => {
    const names = [...columns.querySelectorAll("input:checked")].map((input) => input.value);
    const text = share.value.trim();
    const given = /^\d+$/.test(text) ? `${text}/100` : decimalShare(text);
    const { name, many, ends, width: wide } = chosen();
    const about = ends ? { tail: names[0], head: names[1] } : many ? { columns: names } : { column: names[0] };
    const settings = { ...about, ...(wide ? { width: Number(width.querySelector("input").value) } : {}) };
    return given === null ? null : { kind: name, settings, effort: { share: given } };
  };
  const path = `/datasets/${part(place.dataset.name)}/releases`;
  let timer = 0;
  let turn = 0;
  const price = () => {
    clearTimeout(timer);
    const mine = ++turn;
    const body = share.value.trim() === "" ? null : wanted();
    if (body === null) return show(costs, "State a cost to see what it buys.");
    timer = setTimeout(async () => {
      let words;
      try {
        words = priceWords(await place.api.post(`${path}/price`, body));
      } catch (problem) {
        words = problem.message;
      }
      if (mine === turn) show(costs, words);
    }, PRICE_AFTER);
    return undefined;
  };
  const send = async (event) => {
    event.preventDefault();
    status.textContent = "";
    const body = wanted();
    if (body === null) {
      status.textContent = "The cost must be a number of per cent, such as 10 or 2.5.";
      return share.focus();
    }
    try {
      await place.api.post(path, body);
      follow();
    } catch (problem) {
      status.textContent = problem.message;
    }
    return undefined;
  };
  return h(
    "form",
    { on: { submit: send, input: price, change: price } },
    field("Kind", kind),
    columns,
    width,
    field("Cost, % of the budget", share),
    costs,
    h("div", { class: "actions" }, h("button", { class: "primary", type: "submit" }, "Start the release"), status),
  );
}

// What a release would buy, in words: cost, what is left after it, and how far off its answers are expected to be.
function priceWords({ cost, affordable, methods }) {
  const price = `Spends at most ${percent(cost.share)} of the budget (${rough(cost.amount)} ${cost.unit})`;
  if (!affordable) return `${price}, more than is left. Nothing is spent yet.`;
  const best = methods[0];
  const off = best
    ? `Expected error: about ${rough(best.error)} rows for ${best.words} (${best.method}).`
    : "Its error depends on what it counts first, and is published with it.";
  return `${price}; ${rough(cost.left)} ${cost.unit} would be left. ${off} Nothing is spent yet.`;
}

async function list(place, listed) {
  let items;
  try {
    items = await pages(place.api, `/datasets/${part(place.dataset.name)}/releases`);
  } catch (problem) {
    show(listed, h("p", { class: "teach" }, problem.message));
    return;
  }
  show(
    listed,
    ...(items.length
      ? items.map(releaseCard)
      : [h("p", { class: "quiet" }, "No release yet.")]),
  );
  if (items.some((item) => item.state === "running"))
    setTimeout(() => listed.isConnected && list(place, listed), LOOK_AGAIN);
  else if (items.length) place.refresh();
}

const STATES = { running: "running", done: "published", refused: "refused", lost: "lost; what it spent stays spent" };

function releaseCard(item) {
  const { asked, share, most: end } = item.progress;
  // Without knowing where it ends, a bar that moves back and forth is the honest one.
  const bar =
    item.state === "running"
      ? h("progress", { "aria-label": `Progress of ${item.kind}`, max: end ?? null, value: end ? share : null })
      : null;
  const words = `${asked} question${asked === 1 ? "" : "s"} asked, ${percent(share)} of the budget spent`;
  return h(
    "div",
    { class: "release" },
    h("p", {}, h("strong", {}, item.kind), ` · ${STATES[item.state] ?? item.state} · ${words}`),
    bar,
    item.detail ? h("p", { class: "teach" }, item.detail) : null,
    item.synopsis ? h("p", {}, h("a", { href: "#synopses" }, "Explore it for free")) : null,
  );
}
