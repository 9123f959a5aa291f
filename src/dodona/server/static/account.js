// The respondent's own account: what all reports from this browser to this site may reveal together.
//
// KLNRS Definition 5.3: over all reports a person makes, epsilon in total. It is kept as odds, exactly: reports with
// factors A1/C1, A2/C2, ... together make anything at most (A1/C1)(A2/C2)... times likelier. The factor is read off the
// integers that the randomiser will really use, never off what the server says epsilon is.

/**
 * The most that all reports together may multiply odds by: e^4 = 54.598..., rounded DOWN to 128 bits behind the point.
 * Odds of epsilon 4 have a power of two as their second number, far below 2^128, so they pass and nothing above does.
 */
export const CAP = { epsilon: 4, top: 18578787722782836492235669422995900914181n, bottom: 1n << 128n };

const PLACE = "dodona.reports";
const SHELF = "account";

/** The largest factor any question of a form can have: which one is drawn must not matter. */
export function worstFactor(randomisers) {
  return randomisers.reduce((worst, next) => (next.a * worst.c > worst.a * next.c ? next : worst));
}

/**
 * What was sent from here before, by survey: {body, odds: [A, C], sent}. No answer is ever kept.
 * An account that cannot be read is no empty one: it throws, and nothing is drawn or sent.
 */
export function sentBefore() {
  return turn((kept) => kept);
}

/**
 * Keeps a report before it is sent, so that a page loaded again sends the same one and never draws another; whether it
 * may be sent. Not so where another tab sent one since, or spent what this one would cost.
 */
export function claim(survey, entry) {
  return turn((kept, keep) => {
    const before = kept[survey];
    const [a, c] = entry.odds.map(BigInt);
    const same = before && !before.sent && JSON.stringify(before.body) === JSON.stringify(entry.body);
    const free = before ? same : affordable({ a, c }, kept);
    if (free) keep({ ...kept, [survey]: entry });
    return free;
  });
}

/** The report arrived: that it was sent is kept, and what it cost, and no longer what it said. */
export function settle(survey, entry) {
  return turn((kept, keep) => keep({ ...kept, [survey]: { ...entry, body: null, sent: true } }));
}

/**
 * What `work` makes of the account, which nobody else touches meanwhile: one transaction of the browser's database,
 * and on the disk before this returns. Tabs live in processes of their own, and localStorage may show one of them what
 * was there before another wrote, even where they take turns by a lock.
 */
async function turn(work) {
  const base = await new Promise((resolve, reject) => {
    const asked = indexedDB.open(PLACE, 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(SHELF);
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  try {
    return await new Promise((resolve, reject) => {
      const whole = base.transaction(SHELF, "readwrite", { durability: "strict" });
      const shelf = whole.objectStore(SHELF);
      const found = shelf.get(PLACE);
      let made, fault;
      whole.oncomplete = () => resolve(made);
      whole.onabort = () => reject(fault ?? whole.error);
      found.onsuccess = () => {
        try {
          // Pages before 0.2 kept their account in localStorage; what it says was spent stays spent.
          const kept = { ...entries(localStorage.getItem(PLACE)), ...entries(found.result ?? null) };
          made = work(kept, (next) => void shelf.put(JSON.stringify(next), PLACE));
        } catch (why) {
          fault = why;
          whole.abort();
        }
      };
    });
  } finally {
    base.close();
  }
}

function entries(text) {
  if (text === null) return {};
  const kept = JSON.parse(text);
  const whole = (odds) => Array.isArray(odds) && odds.length === 2 && odds.every((n) => /^[1-9][0-9]*$/.test(n));
  if (kept === null || typeof kept !== "object" || Array.isArray(kept) || !Object.values(kept).every((e) => whole(e?.odds)))
    throw new Error("not an account");
  return kept;
}

/** Whether one more report with odds A to C stays within the cap, after those in `kept`; exact. */
export function affordable(factor, kept) {
  let top = factor.a * CAP.bottom;
  let bottom = factor.c * CAP.top;
  for (const entry of Object.values(kept)) {
    top *= BigInt(entry.odds[0]);
    bottom *= BigInt(entry.odds[1]);
  }
  return top <= bottom;
}

/** The factor that has been spent so far, for showing. */
export function spentFactor(kept) {
  return Object.values(kept).reduce((all, entry) => all * asNumber(entry.odds[0], entry.odds[1]), 1);
}

/** A/C as a number, for showing only. */
export function asNumber(a, c) {
  return Number((BigInt(a) * 10n ** 12n) / BigInt(c)) / 1e12;
}

/** A token that names this one report: 128 bits, made here. */
export function freshToken() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
