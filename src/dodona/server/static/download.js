// Results as files: CSV and JSON, made in the browser from what is shown.

import { h } from "./dom.js";

/** A cell of CSV (RFC 4180). Text that a spreadsheet would run as a formula gets a leading apostrophe. */
function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** `notes`: what must be known of the numbers, a last column that says it in every row; left out where it is empty. */
export function csv(head, rows, notes = "") {
  const whole = notes ? [[...head, "notes"], ...rows.map((row) => [...row, notes])] : [head, ...rows];
  return whole.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Hand a file to the reader. */
export function save(name, contents, type) {
  const url = URL.createObjectURL(new Blob([contents], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Two buttons. `result` gives {head, rows, data, notes} when pressed. */
export function downloads(stem, result) {
  const button = (name, write) => h("button", { type: "button", class: "small", on: { click: write } }, name);
  return h(
    "div",
    { class: "downloads" },
    button("Download CSV", () => save(`${stem}.csv`, csv(result.head, result.rows, result.notes), "text/csv")),
    button("Download JSON", () => save(`${stem}.json`, JSON.stringify(result.data, null, 2), "application/json")),
  );
}
