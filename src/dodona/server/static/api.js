// Talking to the server: JSON in, JSON out, problems as exceptions that carry the server's own explanation.

/** A refusal or fault. `message` is the server's detail, `charged` what it says about the budget. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `The server answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "unknown";
    this.reason = body.reason ?? null;
    this.charged = body.charged;
  }
}

/** `key`: sent in a header, kept by the caller; it never becomes part of an address. */
export class Api {
  constructor(key = null) {
    this.key = key;
  }

  get(path) {
    return this.send("GET", path);
  }

  post(path, body, headers = {}) {
    return this.send("POST", path, body, headers);
  }

  delete(path) {
    return this.send("DELETE", path);
  }

  /** The parsed answer, or a Problem. */
  async send(method, path, body, headers = {}) {
    const response = await this.fetch(method, path, body, headers);
    if (response.status === 204) return null;
    return response.json();
  }

  /** The response itself, for files. */
  async fetch(method, path, body, headers = {}) {
    const sent = { ...headers };
    if (this.key !== null) sent.Authorization = `Bearer ${this.key}`;
    if (body !== undefined) sent["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(`/v1${path}`, {
        method,
        headers: sent,
        body: body === undefined ? undefined : JSON.stringify(body),
        credentials: "omit",
        redirect: "error",
      });
    } catch {
      throw new Problem(0, { detail: "The server can't be reached. Is it still running?", charged: null });
    }
    if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
    return response;
  }
}

/** All items of a listing that comes in pages, up to `most`. */
export async function pages(api, path, most = 2000) {
  const items = [];
  let after = null;
  do {
    const join = path.includes("?") ? "&" : "?";
    const page = await api.get(after === null ? path : `${path}${join}after=${encodeURIComponent(after)}`);
    items.push(...page.items);
    after = page.next ?? null;
  } while (after !== null && items.length < most);
  return items;
}

/** One part of an address, whatever a dataset is called. */
export function part(name) {
  return encodeURIComponent(name);
}
