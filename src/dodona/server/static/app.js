// The page: sign in with a key, choose a dataset, go from room to room. The key lives in this tab's sessionStorage, is
// sent in a header only, and is gone when the tab is closed or one signs out; addresses hold room names, never keys.

import { Api, pages, part } from "./api.js";
import { field, h, show } from "./dom.js";
import { percent } from "./format.js";

const PLACE = "dodona.key";
// A room's code is fetched when the room is first entered: the first view stays small.
const ROOMS = [
  { name: "ask", title: "Ask", open: async (place) => (await import("./ask.js")).askRoom(place) },
  { name: "budget", title: "Budget", open: async (place) => (await import("./budget.js")).budgetRoom(place) },
  { name: "synopses", title: "Synopses", open: async (place) => (await import("./synopses.js")).synopsesRoom(place) },
  { name: "keys", title: "Keys", open: async (place) => (await import("./keys.js")).keysRoom(place), curator: true },
  {
    name: "releases",
    title: "Releases",
    open: async (place) => (await import("./releases.js")).releasesRoom(place),
    curator: true,
  },
  {
    name: "surveys",
    title: "Surveys",
    open: async (place) => (await import("./surveys.js")).surveysRoom(place),
    curator: true,
  },
];

const main = document.getElementById("main");
const nav = document.getElementById("rooms");
const who = document.getElementById("who");
const form = document.getElementById("sign-in");
const status = document.getElementById("sign-in-status");

/** The address's part behind #: the room, and what is looked at there. Never sent to a server; never holds a key. */
export function where() {
  const [room, query = ""] = location.hash.slice(1).split("?");
  return { room, state: new URLSearchParams(query) };
}

/** What a room needs: the connection, the dataset looked at, and a way to read it anew. */
class Place {
  constructor(api, names, dataset) {
    Object.assign(this, { api, names, dataset });
  }

  /** Keep what is looked at in the address, so that it survives a reload and can be linked. */
  remember(state) {
    const { room } = where();
    const kept = new URLSearchParams({ dataset: this.dataset.name, ...state });
    history.replaceState(null, "", `#${room || "ask"}?${kept}`);
  }

  async refresh() {
    Object.assign(this.dataset, await this.api.get(`/datasets/${part(this.dataset.name)}`));
    tellWho(this);
  }
}

async function signIn(key) {
  const api = new Api(key);
  const names = (await pages(api, "/datasets")).map((item) => item.name);
  if (names.length === 0) throw new Error("This key opens no dataset.");
  const linked = where().state.get("dataset");
  const first = names.includes(linked) ? linked : names[0];
  const place = new Place(api, names, await api.get(`/datasets/${part(first)}`));
  sessionStorage.setItem(PLACE, key);
  await open(place);
}

function signOut() {
  sessionStorage.clear(); // the key, and the answers kept beside it
  location.hash = "";
  location.reload(); // nothing of the session stays in memory
}

function open(place) {
  tellWho(place);
  const rooms = ROOMS.filter((room) => !room.curator || place.dataset.analyst.role === "curator");
  const enter = async () => {
    const room = rooms.find((one) => one.name === where().room) ?? rooms[0];
    place.state = where().state;
    show(
      nav,
      h(
        "ul",
        {},
        ...rooms.map((one) =>
          h("li", {}, h("a", { href: `#${one.name}`, "aria-current": one === room ? "page" : null }, one.title)),
        ),
      ),
    );
    document.title = `${room.title} · ${place.dataset.name} · Dodona`;
    const entered = (place.entered = Symbol(room.name));
    const body = await room.open(place);
    if (place.entered !== entered) return; // went on to another room meanwhile
    show(main, h("h1", { class: "unseen" }, `${room.title}: ${place.dataset.name}`), body);
    window.scrollTo(0, 0);
    if (matchMedia("(pointer: fine)").matches) main.querySelector("[data-first]")?.focus(); // where one types
  };
  nav.hidden = false;
  window.onhashchange = async () => {
    if (location.hash === "#main") return; // the skip link
    await enter();
    if (!main.contains(document.activeElement)) main.focus({ preventScroll: true });
  };
  place.enter = enter;
  return enter();
}

function tellWho(place) {
  const { analyst, budget, left } = place.dataset;
  const mine = analyst.role === "curator" ? left : analyst.left;
  const choose = h(
    "select",
    {
      on: {
        change: async (event) => {
          place.dataset = await place.api.get(`/datasets/${part(event.target.value)}`);
          place.remember({});
          tellWho(place);
          place.enter();
        },
      },
    },
    ...place.names.map((name) => h("option", { value: name, selected: name === place.dataset.name }, name)),
  );
  show(
    who,
    field("Dataset", choose),
    h("span", { class: "pill", title: "of the whole budget" }, `${percent(mine / budget.total)} left`),
    h("span", { class: "name" }, analyst.name, h("small", {}, ` ${analyst.role}`)),
    h("button", { type: "button", class: "small", on: { click: signOut } }, "Sign out"),
  );
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  status.textContent = "Opening…";
  try {
    await signIn(form.querySelector("input").value.trim());
  } catch (problem) {
    status.textContent =
      problem.status === 401 || problem.status === 403
        ? "This key doesn't open anything here. It may be mistyped, expired or revoked."
        : problem.message;
  }
});

const kept = sessionStorage.getItem(PLACE);
if (kept !== null) {
  try {
    await signIn(kept);
  } catch {
    sessionStorage.removeItem(PLACE);
  }
}
if (form.isConnected && matchMedia("(pointer: fine)").matches) form.querySelector("input").focus();
