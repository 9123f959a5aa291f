// Charts as SVG, each beside a table that says the same: bars with error bars, a curve with its band, a burn-down.

import { s } from "./dom.js";
import { estimate, percent, rough } from "./format.js";

const ROW = 34;
const PAD = 12;
const EDGE = 30; // room for the last tick's number

/** A tidy scale from low to high over `pixels`: position of a value, and a few round ticks. */
function scale(low, high, pixels, about = 5) {
  const span = high - low || 1;
  const raw = span / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((size) => size >= raw) ?? raw;
  const start = Math.floor(low / step) * step;
  const end = Math.ceil(high / step) * step;
  const count = Math.round((end - start) / step);
  const ticks = Array.from({ length: count + 1 }, (_, i) => Number((start + i * step).toPrecision(12)));
  return { at: (value) => ((value - start) / (end - start || 1)) * pixels, ticks };
}

/** A label cut to what fits, whole in its tooltip. */
function cut(text, most) {
  return text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
}

/**
 * Horizontal bars with whiskers: rows of {label, value, margin}; what leaves the `whole`, where one is given, is cut.
 * On narrow screens labels stand above their bars.
 */
export function bars(rows, title, width, unit = (x) => rough(x), whole = null) {
  const narrow = width < 520;
  const longest = Math.max(...rows.map((row) => row.label.length));
  const gutter = narrow ? 0 : Math.min(240, Math.max(70, longest * 7.4 + 14));
  const height = narrow ? ROW + 16 : ROW;
  const room = width - gutter - PAD - EDGE;
  const ends = rows.flatMap((row) => [0, row.value, row.value - row.margin, row.value + row.margin]);
  const axis = scale(...(whole ?? [Math.min(...ends), Math.max(...ends)]), room, narrow ? 3 : 6);
  const bottom = rows.length * height + 4;
  const marks = rows.map((row, i) => {
    const y = i * height + (narrow ? 18 : 4);
    const inside = (x) => (whole ? Math.max(whole[0], Math.min(whole[1], x)) : x);
    const at = (x) => gutter + PAD + axis.at(inside(x));
    const [from, to] = [at(Math.min(0, row.value)), at(Math.max(0, row.value))];
    const [low, high] = [at(row.value - row.margin), at(row.value + row.margin)];
    const middle = y + 13;
    return s(
      "g",
      {},
      s("title", {}, `${row.label}: ${estimate(row.value, row.margin)}`),
      s(
        "text",
        {
          class: "label",
          x: narrow ? PAD : gutter,
          y: narrow ? y - 4 : middle + 5,
          "text-anchor": narrow ? "start" : "end",
        },
        cut(row.label, narrow ? Math.floor(width / 8) : Math.floor(gutter / 7.2)),
      ),
      s("rect", { class: "bar", x: from, y: y + 2, width: Math.max(to - from, 1), height: 22, rx: 3 }),
      ...whisker(low, high, middle, row.margin),
    );
  });
  return frame(title, width, bottom + 26, grid(axis, gutter + PAD, 0, bottom, unit), ...marks);
}

/** An error bar, drawn twice: the wider one in the ground's colour keeps the other readable on a bar. */
function whisker(low, high, middle, margin) {
  if (!(margin > 0)) return [];
  const d = `M${low},${middle}H${high}M${low},${middle - 6}V${middle + 6}M${high},${middle - 6}V${middle + 6}`;
  return [s("path", { class: "halo", d }), s("path", { class: "whisker", d })];
}

function grid(axis, left, top, bottom, unit) {
  return s(
    "g",
    {},
    ...axis.ticks.map((tick) => {
      const x = left + axis.at(tick);
      return s(
        "g",
        { class: tick === 0 ? "axis zero" : "axis" },
        s("line", { x1: x, x2: x, y1: top, y2: bottom }),
        s("text", { x, y: bottom + 18, "text-anchor": "middle" }, unit(tick)),
      );
    }),
  );
}

/** A curve through ordered points {label, x, value, margin}, with the band the truth lies in. */
export function curve(points, title, width, unit = (x) => rough(x)) {
  const height = Math.min(320, Math.max(200, width * 0.45));
  const [left, right, top, bottom] = [58, 16, 12, 34];
  const ends = points.flatMap((p) => [0, p.value - p.margin, p.value + p.margin]);
  const up = scale(Math.min(...ends), Math.max(...ends), height - top - bottom, 5);
  const along = { low: points[0].x, high: points[points.length - 1].x };
  const x = (p) => left + ((p.x - along.low) / (along.high - along.low || 1)) * (width - left - right);
  const y = (value) => height - bottom - up.at(value);
  const path = (of) => points.map((p, i) => `${i ? "L" : "M"}${x(p).toFixed(1)},${y(of(p)).toFixed(1)}`).join("");
  const back = [...points]
    .reverse()
    .map((p) => `L${x(p).toFixed(1)},${y(p.value - p.margin).toFixed(1)}`)
    .join("");
  const every = Math.max(1, Math.ceil(points.length / Math.max(2, Math.floor((width - left) / 90))));
  const shown = points.filter((_, i) => i % every === 0);
  const lines = up.ticks.map((tick) =>
    s(
      "g",
      { class: tick === 0 ? "axis zero" : "axis" },
      s("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      s("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, unit(tick)),
    ),
  );
  const below = shown.map((p, i) =>
    s(
      "text",
      {
        class: "axis-label",
        x: x(p),
        y: height - 10,
        "text-anchor": i === 0 ? "start" : p === points[points.length - 1] ? "end" : "middle",
      },
      cut(p.label, 12),
    ),
  );
  const dots = points.map((p) =>
    s(
      "circle",
      { class: "dot", cx: x(p), cy: y(p.value), r: points.length > 60 ? 1.5 : 3.5 },
      s("title", {}, `${p.label}: ${estimate(p.value, p.margin)}`),
    ),
  );
  const band = s("path", { class: "band", d: `${path((p) => p.value + p.margin)}${back}Z` });
  return frame(
    title,
    width,
    height,
    ...lines,
    band,
    s("path", { class: "curve", d: path((p) => p.value) }),
    ...dots,
    ...below,
  );
}

/** What is left of a budget, charge after charge: {when, left} with left from 1 down to 0. */
export function burnDown(points, title, width) {
  const height = 240;
  const [left, right, top, bottom] = [52, 16, 12, 34];
  const first = points[0].when;
  const span = points[points.length - 1].when - first || 1;
  const x = (p) => left + ((p.when - first) / span) * (width - left - right);
  const y = (share) => top + (1 - share) * (height - top - bottom);
  const lines = [0, 0.25, 0.5, 0.75, 1].map((share) =>
    s(
      "g",
      { class: share === 0 ? "axis zero" : "axis" },
      s("line", { x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      s("text", { x: left - 8, y: y(share) + 4, "text-anchor": "end" }, percent(share)),
    ),
  );
  // A charge is a step: what is left stays until the moment it falls.
  const steps = points
    .map((p, i) => (i ? `H${x(p).toFixed(1)}V${y(p.left).toFixed(1)}` : `M${x(p)},${y(p.left)}`))
    .join("");
  const clock = (when) =>
    new Date(when).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  const ends = [
    s("text", { class: "axis-label", x: left, y: height - 10 }, clock(first)),
    s(
      "text",
      { class: "axis-label", x: width - right, y: height - 10, "text-anchor": "end" },
      clock(points[points.length - 1].when),
    ),
  ];
  const area = s("path", { class: "band", d: `${steps}V${y(0)}H${left}Z` });
  return frame(title, width, height, ...lines, area, s("path", { class: "curve", d: steps }), ...ends);
}

function frame(title, width, height, ...marks) {
  return s(
    "svg",
    { class: "chart", role: "img", "aria-label": title, width, height, viewBox: `0 0 ${width} ${height}` },
    ...marks,
  );
}
