// Keys: who may ask, with what share of the lifetime budget. A new key is shown once; only its hash is kept.

import { pages } from "./api.js";
import { field, h, show, table } from "./dom.js";
import { moment, percent } from "./format.js";

export function keysRoom(place) {
  const listed = h("div", {}, h("p", { class: "quiet" }, "Reading the keys…"));
  const fresh = h("div", { "aria-live": "polite" });
  const status = h("p", { class: "status", role: "alert" });
  const reload = () => list(place, listed, status);
  reload();
  return h(
    "div",
    { class: "stack" },
    h("section", { class: "card" }, h("h2", {}, "New key"), adding(place, fresh, status, reload), status, fresh),
    h("section", { class: "card" }, h("h2", {}, "Keys and shares"), listed),
  );
}

function adding(place, fresh, status, reload) {
  const name = h("input", { required: true, maxlength: 64, autocomplete: "off" });
  const role = h(
    "select",
    {},
    h("option", { value: "analyst" }, "analyst"),
    h("option", { value: "curator" }, "curator"),
    h("option", { value: "shuffler" }, "shuffler of surveys"),
  );
  const share = h("input", { inputmode: "decimal", placeholder: "10", size: 6 });
  const expires = h("input", { type: "date" });
  const send = async (event) => {
    event.preventDefault();
    status.textContent = "";
    const body = { analyst: name.value.trim(), role: role.value };
    if (role.value === "analyst") {
      // Per cent as exact text: "12.5" becomes "12.5/100" without a float in between.
      const hundredths = /^\d+$/.test(share.value.trim())
        ? `${share.value.trim()}/100`
        : decimalShare(share.value.trim());
      if (hundredths === null) {
        status.textContent = "The share must be a number of per cent, such as 10 or 2.5.";
        return share.focus();
      }
      body.share = hundredths;
    }
    if (expires.value) body.expires = `${expires.value}T00:00:00+00:00`;
    try {
      const made = await place.api.post("/keys", body);
      event.target.reset();
      show(fresh, shownOnce(made));
      reload();
    } catch (problem) {
      status.textContent = problem.message;
    }
  };
  return h(
    "form",
    { class: "row-form", on: { submit: send } },
    field("Name", name),
    field("Role", role),
    field("Share of the budget, %", share, "Analysts only. All shares together stay within 100 %."),
    field("Expires", expires, "Empty: never."),
    h("button", { class: "primary", type: "submit" }, "Make key"),
  );
}

/** "2.5" per cent as the exact fraction "25/1000". */
export function decimalShare(text) {
  const found = /^(\d*)\.(\d+)$/.exec(text);
  return found ? `${BigInt(found[1] + found[2])}/${10n ** BigInt(found[2].length + 2)}` : null;
}

function shownOnce(made) {
  const secret = made.token;
  const copied = h("span", { role: "status" });
  const copy = h(
    "button",
    {
      type: "button",
      class: "small",
      on: {
        click: async () => {
          await navigator.clipboard.writeText(secret);
          copied.textContent = "Copied.";
        },
      },
    },
    "Copy",
  );
  const done = (event) => event.currentTarget.closest(".notice").remove();
  return h(
    "div",
    { class: "notice good" },
    h("p", {}, "This key is shown once. Hand it over safely; it can't be read again."),
    h("p", {}, h("code", { class: "secret" }, secret)),
    h(
      "div",
      { class: "actions" },
      copy,
      h("button", { type: "button", class: "small", on: { click: done } }, "Done, hide it"),
      copied,
    ),
  );
}

async function list(place, listed, status) {
  try {
    const items = await pages(place.api, "/keys");
    const rows = items.map((key) => [
      key.analyst,
      key.role,
      key.share === null ? "no limit" : percent(fraction(key.share)),
      moment(key.created),
      stateOf(key),
      key.revoked ? "" : revoking(place, key, status, () => list(place, listed, status)),
    ]);
    show(listed, table("Keys", ["Name", "Role", "Share", "Made", "State", ""], rows, new Set([2])));
  } catch (problem) {
    show(listed, h("p", { class: "teach" }, problem.message));
  }
}

function stateOf(key) {
  if (key.revoked) return `revoked ${moment(key.revoked)}`;
  if (key.expires && Date.parse(key.expires) < Date.now()) return `expired ${moment(key.expires)}`;
  return key.expires ? `until ${moment(key.expires)}` : "in use";
}

/** Two presses: the first asks, the second does. */
function revoking(place, key, status, after) {
  const button = h(
    "button",
    { type: "button", class: "small", "aria-label": `Revoke the key of ${key.analyst}` },
    "Revoke",
  );
  button.addEventListener("click", async () => {
    if (button.dataset.sure === undefined) {
      button.dataset.sure = "";
      button.textContent = "Really revoke";
      button.classList.add("danger");
      return;
    }
    try {
      await place.api.delete(`/keys/${encodeURIComponent(key.id)}`);
      after();
    } catch (problem) {
      status.textContent = problem.message;
    }
  });
  return button;
}

function fraction(text) {
  const [top, bottom = "1"] = String(text).split("/");
  return Number(top) / Number(bottom);
}
