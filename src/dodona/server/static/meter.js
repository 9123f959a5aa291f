// A budget at a glance.

import { h } from "./dom.js";
import { percent } from "./format.js";

/** Spent, about to be spent, left: one bar. Widths are set from script, which the page's policy allows. */
export function meter(spent, price) {
  const piece = (kind, share) => {
    const node = h("span", { class: kind });
    node.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    return node;
  };
  const told = `Not available to you: ${percent(spent)}. This question: ${percent(price)}. Left: ${percent(Math.max(0, 1 - spent - price))}.`;
  return h(
    "div",
    { class: "meter", role: "img", "aria-label": told },
    piece("spent", spent),
    price > 0 && piece("now", Math.max(price, 0.004)),
    piece("rest", Math.max(0, 1 - spent - price)),
  );
}
