// Releases: spend once, publish for ever. The curator starts one; it runs on the server and shows how far it is.

import { pages, part } from "./api.js";
import { field, h, show } from "./dom.js";
import { percent } from "./format.js";
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
];

export function releasesRoom(place) {
  const listed = h("div", { class: "stack" }, h("p", { class: "quiet" }, "Reading the releases…"));
  const asked = new Map(); // what was asked for here, so that a bar knows its end
  const follow = () => list(place, listed, asked);
  follow();
  return h(
    "div",
    { class: "stack" },
    h(
      "section",
      { class: "card" },
      h("h2", {}, "New release"),
      h("p", {}, "A release spends a part of the budget once; its synopsis then answers for nothing, for ever."),
      starting(place, asked, follow),
    ),
    h("section", { class: "card" }, h("h2", {}, "Releases"), listed),
  );
}

function starting(place, asked, follow) {
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
            checked: chosen().width || i === 0,
          }),
          h("span", {}, name),
        ),
      ),
      fits.length === 0 ? h("p", { class: "quiet" }, "No column fits this kind.") : null,
    );
  };
  kind.addEventListener("change", offer);
  offer();
  const send = async (event) => {
    event.preventDefault();
    status.textContent = "";
    const names = [...columns.querySelectorAll("input:checked")].map((input) => input.value);
    const part_ = /^\d+$/.test(share.value.trim()) ? `${share.value.trim()}/100` : decimalShare(share.value.trim());
    if (part_ === null) {
      status.textContent = "The cost must be a number of per cent, such as 10 or 2.5.";
      return share.focus();
    }
    const { many } = chosen();
    const settings = {
      ...(many ? { columns: names } : { column: names[0] }),
      ...(chosen().width ? { width: Number(width.querySelector("input").value) } : {}),
    };
    try {
      const { id } = await place.api.post(`/datasets/${part(place.dataset.name)}/releases`, {
        kind: kind.value,
        settings,
        effort: { share: part_ },
      });
      asked.set(id, Number(share.value) / 100);
      follow();
    } catch (problem) {
      status.textContent = problem.message;
    }
    return undefined;
  };
  return h(
    "form",
    { on: { submit: send } },
    field("Kind", kind),
    columns,
    width,
    field("Cost, % of the budget", share),
    h("div", { class: "actions" }, h("button", { class: "primary", type: "submit" }, "Start the release"), status),
  );
}

async function list(place, listed, asked) {
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
      ? items.map((item) => releaseCard(item, asked.get(item.id)))
      : [h("p", { class: "quiet" }, "No release yet.")]),
  );
  if (items.some((item) => item.state === "running"))
    setTimeout(() => listed.isConnected && list(place, listed, asked), LOOK_AGAIN);
  else if (items.length) place.refresh();
}

const STATES = { running: "running", done: "published", refused: "refused", lost: "lost; what it spent stays spent" };

function releaseCard(item, end) {
  const { asked, share } = item.progress;
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
