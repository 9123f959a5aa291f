// Completion in the question box: columns, values, functions and keywords that fit the word before the cursor.
// The textarea is a combobox: arrows move, Enter or Tab takes, Escape closes; the list is announced through ARIA.

import { h, show } from "./dom.js";
import { described, FUNCTIONS, literal, quoted, WORDS } from "./language.js";

const MOST = 8;

/** What may stand in a question on this schema: {insert, shown, told}. */
export function vocabulary(schema) {
  const columns = Object.entries(schema).map(([name, column]) => ({
    insert: quoted(name),
    shown: name,
    told: described(column),
  }));
  const values = Object.entries(schema).flatMap(([name, column]) =>
    (column.values ?? [])
      .slice(0, 50)
      .map((value) => ({ insert: literal(value), shown: literal(value), told: `value of ${name}` })),
  );
  const functions = FUNCTIONS.map(([shape, told]) => ({
    insert: shape === "COUNT(*)" ? shape : shape.slice(0, shape.indexOf("(") + 1),
    shown: shape,
    told,
  }));
  return [
    ...columns,
    ...functions,
    ...values,
    ...WORDS.map((word) => ({ insert: word, shown: word, told: "keyword" })),
  ];
}

/** The word that ends at the cursor, and the entries that continue it. */
export function matching(words, text, cursor) {
  const typed = /['"]?[\p{L}\p{N}_]+$/u.exec(text.slice(0, cursor))?.[0] ?? "";
  const bare = typed.replace(/^['"]/, "").toLowerCase();
  if (bare === "") return { typed, found: [] };
  const fits = (entry) => entry.shown.replace(/^['"]/, "").toLowerCase().startsWith(bare) && entry.insert !== typed;
  return { typed, found: words.filter(fits).slice(0, MOST) };
}

/** Puts a completion list under `box`; returns the list. */
export function completing(box, schema, id) {
  const words = vocabulary(schema);
  const list = h("ul", { class: "suggestions", id, role: "listbox", "aria-label": "Completions", hidden: true });
  let [found, typed, chosen] = [[], "", -1];
  const attributes = {
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-controls": id,
    "aria-expanded": "false",
    autocomplete: "off",
  };
  for (const [name, value] of Object.entries(attributes)) box.setAttribute(name, value);

  const close = () => {
    found = [];
    list.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  };
  const mark = (next) => {
    chosen = next;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
    if (chosen >= 0) box.setAttribute("aria-activedescendant", list.children[chosen].id);
    else box.removeAttribute("aria-activedescendant");
  };
  const take = (i) => {
    const cursor = box.selectionStart;
    box.setRangeText(found[i].insert, cursor - typed.length, cursor, "end");
    close();
    box.focus();
    box.dispatchEvent(new Event("input", { bubbles: true }));
    close(); // the word just taken must not offer itself again
  };
  const open = () => {
    ({ typed, found } = matching(words, box.value, box.selectionStart));
    if (found.length === 0) return close();
    show(
      list,
      ...found.map((entry, i) =>
        h(
          "li",
          {
            id: `${id}-${i}`,
            role: "option",
            "aria-selected": "false",
            on: {
              mousedown: (event) => {
                event.preventDefault();
                take(i);
              },
            },
          },
          h("code", {}, entry.shown),
          h("span", { class: "told" }, entry.told),
        ),
      ),
    );
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
    mark(-1);
  };
  box.addEventListener("input", open);
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    if (found.length === 0) return;
    const moves = { ArrowDown: (chosen + 1) % found.length, ArrowUp: (chosen <= 0 ? found.length : chosen) - 1 };
    if (event.key in moves) mark(moves[event.key]);
    else if (event.key === "Escape") close();
    // Enter takes the first unless another was moved to; a plain Tab leaves the box, as the keyboard user expects.
    else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) take(Math.max(chosen, 0));
    else if (event.key === "Tab" && chosen >= 0) take(chosen);
    else return;
    event.preventDefault();
  });
  return list;
}
