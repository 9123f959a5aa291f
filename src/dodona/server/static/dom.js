// Building elements. Data enters a page through text nodes and attributes only; nothing here parses markup, so a column
// called <img onerror=...> is shown as that, and runs nowhere.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `props` are attributes, except `on` (listeners) and those with a boolean value (present or absent). */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same in SVG. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Replace what a node holds. */
export function show(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

let numbered = 0;

/** A name for `for`, `aria-describedby` and the like. */
export function freshId(stem) {
  numbered += 1;
  return `${stem}-${numbered}`;
}

/** A labelled control: `control` is made by its tag and props; `hint` is read out with it. */
export function field(label, control, hint) {
  const id = control.id || freshId("field");
  control.id = id;
  const told = hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null;
  if (told) control.setAttribute("aria-describedby", told.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, told);
}

/** A table with a caption that is read out; cells are text or nodes, those of `numeric` columns aligned right. */
export function table(caption, head, rows, numeric = new Set()) {
  const cell = (tag, value, i, more = {}) => h(tag, { class: numeric.has(i) ? "number" : null, ...more }, value);
  return h(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...head.map((name, i) => cell("th", name, i, { scope: "col" })))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((value, i) => cell("td", value, i))))),
    ),
  );
}

/** Call `make(width)` now and whenever the space for it changes; what it returns fills `frame`. */
export function fitted(frame, make) {
  let last = 0;
  const draw = () => {
    const width = Math.floor(frame.clientWidth);
    if (width > 0 && width !== last) {
      last = width;
      show(frame, make(width));
    }
  };
  new ResizeObserver(draw).observe(frame);
  return frame;
}

/** Run `work` when calls have paused for `ms`; only the newest call counts. */
export function paused(ms, work) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), ms);
  };
}

const FEW = 6; // rows that need neither an order nor a search

/** The same table with headers that sort, and a box that keeps the rows which hold what is typed. */
export function sifted(frame) {
  const body = frame.querySelector("tbody");
  const rows = [...body.rows];
  if (rows.length < FEW) return frame;
  const number = (text) => Number(/-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?/i.exec(text)?.[0].replaceAll(",", "") ?? NaN);
  [...frame.querySelectorAll("thead th")].forEach((head, i) => {
    const numeric = head.classList.contains("number");
    const compare = (a, b) => {
      const [x, y] = [a, b].map((row) => row.cells[i].textContent);
      return numeric ? (number(x) || 0) - (number(y) || 0) : x.localeCompare(y, "en", { numeric: true });
    };
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of frame.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort((a, b) => (down ? compare(b, a) : compare(a, b))));
    };
    const button = h("button", { type: "button", class: "sort", on: { click: sort } }, head.textContent);
    show(head, button);
  });
  const search = h("input", { type: "search", size: 18 });
  const told = h("span", { class: "quiet", role: "status" });
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    const left = rows.filter((row) => !row.hidden).length;
    told.textContent = wanted ? `${left} of ${rows.length} rows` : "";
  });
  return h("div", {}, h("div", { class: "sift" }, field("Rows that hold", search), told), frame);
}
