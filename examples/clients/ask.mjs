// A price, then a table, with JavaScript: node ask.mjs, or as it is in a browser of the same site.
// Wants DODONA_URL and DODONA_KEY; the question is about `dodona sample`'s survey.

const { DODONA_URL: url, DODONA_KEY: key } = process.env;
const sql = "SELECT region, COUNT(*) AS n, AVG(income) AS mean FROM survey GROUP BY region";
const asked = { sql, effort: { share: 0.01 } };

async function send(route, name) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  // Sent again under the same name it is charged once, and answered alike.
  if (name) headers["Idempotency-Key"] = name;
  const reply = await fetch(`${url}/v1/datasets/survey/${route}`, { method: "POST", headers, body: JSON.stringify(asked) });
  const found = await reply.json();
  if (!reply.ok) throw new Error(found.detail); // a sentence: what was wrong, and what to write instead
  return found;
}

const price = await send("price");
for (const { column, margin } of price.columns) console.log(`${column} would be off by about ${margin.toPrecision(3)}`);
const table = await send("sql", crypto.randomUUID());
for (const row of table.records) console.log(row.region, row.n, "±", row.n_margin.toPrecision(3));
