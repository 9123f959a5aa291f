// Releases: spend once, publish for ever. The curator starts one; it runs on the server and shows how far it is.

import { pages, part } from "./api.js";
import { field, h, show } from "./dom.js";
import { percent, rough } from "./format.js";
import { decimalShare } from "./keys.js";

const LOOK_AGAIN = 1000;
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
      newRelease(place, follow),
    ),
    h("section", { class: "card" }, h("h2", {}, "Releases"), listed),
  );
}

/** The form, once the server has said which releases there are. */
function newRelease(place, follow) {
  const form = h("div", {}, h("p", { class: "quiet" }, "Reading which releases there are…"));
  pages(place.api, `/datasets/${part(place.dataset.name)}/releases/kinds`).then(
    (kinds) => show(form, starting(place, follow, kinds)),
    (problem) => show(form, h("p", { class: "teach" }, problem.message)),
  );
  return form;
}

const NUMBERS = ["whole", "number", "bits"];

/** What one setting asks for: `read` gives its value, undefined where it is left out. Null where no form can ask. */
function asking(setting, schema) {
  const { name, kind, words, start, required, least, most } = setting;
  if (kind === "columns" || kind === "column") {
    const fits = Object.keys(schema).filter((column) => setting.types.includes(schema[column].type));
    const first = start === "second" ? 1 : 0;
    const checked = (i) => (kind === "column" ? i === first : start === "all" || i < (least ?? 1));
    const choices = fits.map((column, i) =>
      h(
        "label",
        { class: "choice" },
        h("input", { type: kind === "column" ? "radio" : "checkbox", name, value: column, checked: checked(i) }),
        h("span", {}, column),
      ),
    );
    const none = fits.length === 0 ? h("p", { class: "quiet" }, "No column fits this kind.") : null;
    const node = h("fieldset", { class: "columns-choice" }, h("legend", {}, words), ...choices, none);
    const names = () => [...node.querySelectorAll("input:checked")].map((input) => input.value);
    return { node, main: required || start !== null, read: () => (kind === "column" ? names()[0] : names()) };
  }
  const label = name[0].toUpperCase() + name.slice(1);
  if (NUMBERS.includes(kind)) {
    const limits = { min: least, max: most, value: start, step: kind === "number" ? "any" : 1, size: 4 };
    const input = h("input", { type: "number", class: "short", required, ...limits });
    const read = () => (input.value.trim() === "" ? undefined : Number(input.value));
    return { node: field(label, input, words), main: required, read };
  }
  if (kind === "edges") {
    const input = h("input", { type: "number", class: "short", min: 1, max: 1000, size: 4, placeholder: "none" });
    const read = () => (input.value.trim() === "" ? undefined : Number(input.value));
    return { node: field(label, input, words), main: false, read };
  }
  if (kind === "names") {
    const input = h("textarea", { rows: 4, required, spellcheck: false });
    const read = () => {
      const lines = input.value.split("\n").filter((line) => line.includes(":"));
      const pairs = lines.map((line) => [line.slice(0, line.lastIndexOf(":")), line.slice(line.lastIndexOf(":") + 1)]);
      const value = (text) => (/^\d+$/.test(text) ? Number(text) : text);
      return pairs.length ? Object.fromEntries(pairs.map(([name, text]) => [name.trim(), value(text.trim())])) : undefined;
    };
    return { node: field(label, input, words), main: required, read };
  }
  if (kind === "choice") {
    const input = h("select", {}, ...setting.choices.map((one) => h("option", { value: one }, one)));
    return { node: field(label, input, words), main: required, read: () => input.value };
  }
  return null;
}

function starting(place, follow, kinds) {
  const kind = h("select", {}, ...kinds.map((one) => h("option", { value: one.name }, one.title)));
  const share = h("input", { inputmode: "decimal", required: true, size: 6, placeholder: "10" });
  const settings = h("div", { class: "stack" });
  const status = h("p", { class: "status", role: "alert" });
  let asked = [];
  const offer = () => {
    const chosen = kinds.find((one) => one.name === kind.value);
    asked = chosen.settings
      .map((setting) => ({ name: setting.name, ...(asking(setting, place.dataset.schema) ?? { node: null }) }))
      .filter(({ node }) => node !== null);
    const [main, rest] = [true, false].map((wanted) => asked.filter((one) => one.main === wanted));
    const more = rest.length
      ? h("details", {}, h("summary", {}, "More settings"), ...rest.map(({ node }) => node))
      : null;
    show(settings, ...main.map(({ node }) => node), more);
  };
  kind.addEventListener("change", offer);
  offer();
  const costs = h("p", { class: "quiet release-price", "aria-live": "polite" }, "State a cost to see what it buys.");
  const wanted = () => {
    const text = share.value.trim();
    const given = /^\d+$/.test(text) ? `${text}/100` : decimalShare(text);
    const stated = asked.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined);
    return given === null ? null : { kind: kind.value, settings: Object.fromEntries(stated), effort: { share: given } };
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
    settings,
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
  const off = best && best.error !== null
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
