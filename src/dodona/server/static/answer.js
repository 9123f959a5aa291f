// An answer as people read it: the number with its error, a chart where there are several, a table beside it, files.

import { bars, curve } from "./chart.js";
import { fitted, h, sifted, table } from "./dom.js";
import { downloads } from "./download.js";
import { estimate, label, percent, withMargin } from "./format.js";

const MOST_BARS = 40;
const MOST_ROWS = 1000;

/** A card for one answer. `reply`: what the server sent to /ask or /sql; `text`: what was asked. */
export function answerCard(text, reply, { free = false } = {}) {
  const body = reply.columns ? rowsOf(text, reply) : numberOf(text, reply);
  const cost = reply.cost;
  return h(
    "article",
    { class: "card answer" },
    h("h3", {}, h("code", { class: "asked" }, text)),
    ...body,
    h("p", { class: "quiet" }, free ? "Free: it was published before, and no row was read." : bill(cost)),
  );
}

function bill(cost) {
  const kept =
    cost.unit === "nothing"
      ? "free"
      : `${percent(cost.share)} of the budget (${cost.unit} ${Number(cost.amount.toPrecision(4))})`;
  return `Cost ${kept}, by ${cost.mechanism}. Protected: ${neighboursInWords(cost.neighbours)}.`;
}

/** The receipt's words for people: "replace" and "add-remove" are a curator's. */
export function neighboursInWords(neighbours) {
  return neighbours
    .replace(/^replace\b/, "what each row holds")
    .replace(/^add-remove\b/, "whether each row is there, and what it holds");
}

/** What stands below numbers: how sure their margins are, which are lost, and what no margin speaks of. */
function below({ confidence, proven, leaves_out: leftOut, told = [] }, lost = 0) {
  const cases = Number((confidence * 100).toPrecision(6));
  const sure = `The truth lies within ± in ${cases} of 100 cases (${proven ? "proven" : "estimated"}).`;
  const gone = lost === 1 ? "1 number is" : `${lost} numbers are`;
  return [
    h("p", { class: "quiet" }, sure),
    lost > 0 && h("p", { class: "quiet" }, `${gone} lost in noise: worth nothing at this price.`),
    ...told.map((sentence) => h("p", { class: "quiet" }, `${sentence[0].toUpperCase()}${sentence.slice(1)}.`)),
    leftOut.length > 0 &&
      h(
        "details",
        { class: "left-out" },
        h("summary", {}, "The error is of noise only"),
        h("ul", { class: "quiet" }, ...leftOut.map((sentence) => h("li", {}, sentence))),
      ),
  ].filter(Boolean);
}

/** The same in one line, for files. */
function notes({ confidence, proven, leaves_out: leftOut, told = [] }) {
  const sure = `± at ${Number((confidence * 100).toPrecision(6))} %, ${proven ? "proven" : "estimated"}`;
  return [sure, ...told, ...(leftOut.length > 0 ? [`noise only: ${leftOut.join("; ")}`] : [])].join("; ");
}

/** One number: its sum over rows, and per row where the number of rows is public. */
function numberOf(text, answer) {
  const totals = [answer.total].flat(Infinity);
  if (totals.length > 1) return listOf(text, answer, totals);
  const [margin] = [answer.margin].flat(Infinity);
  const total = withMargin(totals[0], margin);
  const rows = answer.rows;
  const mean = rows ? withMargin(totals[0] / rows, margin / rows) : null;
  const records = [["total", totals[0], margin], ...(rows ? [["mean per row", totals[0] / rows, margin / rows]] : [])];
  return [
    h(
      "p",
      { class: "figure" },
      h("strong", {}, total.value),
      h("span", {}, ` ± ${total.margin}`),
      h("span", { class: "unit" }, "in total"),
    ),
    mean &&
      h(
        "p",
        { class: "figure second" },
        h("strong", {}, mean.value),
        h("span", {}, ` ± ${mean.margin}`),
        h("span", { class: "unit" }, `per row, of ${rows.toLocaleString("en")} rows`),
      ),
    ...below(answer),
    downloads("answer", {
      head: ["figure", "value", "margin"],
      rows: records,
      data: { question: text, ...answer },
      notes: notes(answer),
    }),
  ].filter(Boolean);
}

function listOf(text, answer, totals) {
  const margins = [answer.margin].flat(Infinity);
  const rows = totals.map((value, i) => ({ label: `number ${i + 1}`, value, margin: margins[i] }));
  return [
    picture(text, rows),
    dataTable(
      text,
      ["number", "total", "margin"],
      rows.map((r) => [r.label, r.value, r.margin]),
      text,
      answer,
    ),
    ...below(answer),
  ];
}

/** A SELECT's rows. Keys come first in a label; the first estimate is drawn, others by choice. */
function rowsOf(text, sent) {
  // A record names its estimates and, beside each, its margin as "name_margin", and "name_note" where it is lost.
  // A date or time comes in words too, as "name_text".
  const cellOf = (record, name) =>
    Object.hasOwn(record, `${name}_margin`)
      ? {
          value: record[name],
          margin: record[`${name}_margin`],
          lost: record[`${name}_note`] ?? "",
          text: record[`${name}_text`] ?? "",
        }
      : record[name];
  const reply = { ...sent, records: sent.records.map((record) => sent.columns.map((name) => cellOf(record, name))) };
  const shape = reply.columns.map((name, i) => ({
    name,
    i,
    estimate: reply.records.some((record) => isEstimate(record[i])),
  }));
  const keys = shape.filter((column) => !column.estimate);
  const numbers = shape.filter((column) => column.estimate);
  const flat = (record) => record.flatMap((value, i) => (isEstimate(value) ? [value.value, value.margin] : shape[i].estimate ? [value, null] : [value]));
  const head = shape.flatMap((column) => (column.estimate ? [column.name, `${column.name}_margin`] : [column.name]));
  const result = { head, rows: reply.records.map(flat), data: { sql: text, ...sent }, notes: notes(sent) };
  const lost = reply.records.flat().filter((value) => isEstimate(value) && value.lost).length;
  if (reply.records.length === 1 && keys.length === 0) {
    const figures = numbers.map((column) => {
      const cell = reply.records[0][column.i];
      const told = cell?.text ? { value: cell.text } : withMargin(cell?.value ?? 0, cell?.margin ?? 0);
      if (cell === null) return h("p", { class: "figure" }, h("strong", {}, "NULL"), h("span", {}, column.name));
      return h(
        "p",
        { class: "figure" },
        h("strong", {}, cell.lost || told.value),
        cell.lost || cell.text ? null : h("span", {}, ` ± ${told.margin}`),
        h("span", { class: "unit" }, column.name),
      );
    });
    return [...figures, ...below(reply, lost), downloads("answer", result)];
  }
  const drawn = h("div", { class: "drawn" });
  const draw = (column) => {
    const points = reply.records
      .filter((record) => isEstimate(record[column.i]) && !record[column.i].lost)
      .map((record) => ({ label: keys.map((key) => label(record[key.i])).join(" · "), ...record[column.i] }));
    drawn.replaceChildren(
      picture(`${column.name} by ${keys.map((key) => key.name).join(", ")}`, points, keys.length === 1),
    );
  };
  const drawable = numbers.filter((column) => !reply.records.some((record) => record[column.i]?.text));
  if (drawable.length > 0) draw(drawable[0]);
  const choice =
    drawable.length > 1 &&
    h(
      "div",
      { class: "choose", role: "group", "aria-label": "Number to draw" },
      ...drawable.map((column, i) =>
        h(
          "button",
          {
            type: "button",
            class: "small",
            "aria-pressed": String(i === 0),
            on: {
              click: (event) => {
                for (const other of event.currentTarget.parentNode.children)
                  other.setAttribute("aria-pressed", "false");
                event.currentTarget.setAttribute("aria-pressed", "true");
                draw(column);
              },
            },
          },
          column.name,
        ),
      ),
    );
  const cells = reply.records
    .slice(0, MOST_ROWS)
    .map((record) =>
      record.map((value) =>
        isEstimate(value) ? value.lost || value.text || estimate(value.value, value.margin) : label(value),
      ),
    );
  const right = new Set(numbers.map((column) => column.i));
  return [
    choice,
    drawable.length > 0 && drawn,
    h(
      "details",
      { open: reply.records.length <= 12 },
      h("summary", {}, `Table of ${reply.records.length} rows`),
      sifted(table(text, reply.columns, cells, right)),
    ),
    ...below(reply, lost),
    downloads("answer", result),
  ].filter(Boolean);
}

function dataTable(text, head, rows, asked, data) {
  return h(
    "div",
    {},
    table(text, head, rows, new Set([1, 2])),
    downloads("answer", { head, rows, data: { question: asked, ...data }, notes: notes(data) }),
  );
}

function isEstimate(value) {
  return value !== null && typeof value === "object";
}

/** Where a key is an interval or a number, its place on the line; else null. */
export function place(key) {
  const ends = /^[[(]\s*(-?[\d.e+-]+),\s*(-?[\d.e+-]+)\s*[\])]$/i.exec(key);
  if (ends) return (Number(ends[1]) + Number(ends[2])) / 2;
  return key.trim() !== "" && Number.isFinite(Number(key)) ? Number(key) : null;
}

/** A curve where the keys are ordered along a line and there are enough of them, bars otherwise. */
function picture(title, rows, oneKey = false) {
  const listed = rows.filter((row) => row.label !== "(other)"); // it has no place on a line; the table has it
  const places = listed.map((row) => place(row.label));
  const ordered = oneKey && listed.length >= 4 && places.every((x, i) => x !== null && (i === 0 || x > places[i - 1]));
  const frame = h("div", { class: "chart-frame" });
  if (ordered)
    return fitted(frame, (width) =>
      curve(
        listed.map((row, i) => ({ ...row, x: places[i] })),
        title,
        width,
      ),
    );
  const shown = rows.slice(0, MOST_BARS);
  fitted(frame, (width) => bars(shown, title, width));
  return rows.length > shown.length
    ? h(
        "div",
        {},
        frame,
        h("p", { class: "quiet" }, `The first ${MOST_BARS} of ${rows.length} are drawn; the table has all.`),
      )
    : frame;
}
