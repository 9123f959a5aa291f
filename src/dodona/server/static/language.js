// What can be asked: functions and keywords for completion, and examples made from a dataset's own schema.

export const FUNCTIONS = [
  ["COUNT(*)", "how many rows"],
  ["SUM(x)", "sum of a number"],
  ["AVG(x)", "mean of a number"],
  ["VARIANCE(x)", "variance of a number, as of a sample; VAR_POP of all"],
  ["STDDEV(x)", "standard deviation; STDDEV_POP"],
  ["CORR(x, y)", "correlation; COVAR_SAMP, COVAR_POP"],
  ["COUNT_IF(c)", "rows where a condition holds; also COUNT(*) FILTER (WHERE c)"],
  ["MEDIAN(x)", "the middle value; QUANTILE(x, 0.9)"],
  ["REGR_SLOPE(y, x)", "slope of the line through the rows; REGR_INTERCEPT"],
  ["COUNT(DISTINCT x)", "different values"],
  ["ROUND(AVG(x), 2)", "a finished number, rounded"],
  ["RANK() OVER (ORDER BY COUNT(*) DESC)", "place among the groups"],
  ["SUM(COUNT(*)) OVER ()", "the total, beside each group"],
  ["LAG(COUNT(*)) OVER (ORDER BY k)", "the number of the group before; so LEAD"],
  ["BUCKET(x, a, b, c)", "which of [a, b) [b, c]; for GROUP BY"],
  ["ABS(x)", "size without sign"],
  ["FLOOR(x)", "largest whole number not above"],
  ["CEIL(x)", "smallest whole number not below"],
  ["SQRT(x)", "square root"],
  ["LN(x)", "natural logarithm"],
  ["LOG(x)", "logarithm to base 10"],
  ["EXP(x)", "exponential"],
  ["POWER(x, n)", "power"],
  ["LEAST(x, y)", "smaller of two"],
  ["GREATEST(x, y)", "larger of two"],
  ["COALESCE(x, y)", "the first that is known"],
  ["MOD(x, n)", "remainder"],
  ["ROUND(x, n)", "to n digits after the point"],
  ["SIGN(x)", "-1, 0 or 1"],
  ["NULLIF(x, y)", "unknown where both are equal"],
  ["COUNT(DISTINCT x)", "how many different values"],
  ["LENGTH(t)", "characters of a text"],
  ["UPPER(t)", "A to Z as capitals; so LOWER"],
  ["TRIM(t)", "without blanks at both ends; so LTRIM, RTRIM"],
  ["SUBSTR(t, from, n)", "part of a text; so LEFT, RIGHT"],
  ["CONCAT(t, u)", "texts joined; also t || u"],
  ["STARTS_WITH(t, 'x')", "so ENDS_WITH, CONTAINS"],
  ["REPLACE(t, 'a', 'b')", "of listed texts"],
  ["YEAR(d)", "year of a date or time; so QUARTER, MONTH, WEEK, DAY, WEEKDAY, HOUR, MINUTE"],
  ["DATE_TRUNC('month', d)", "first day of its month; for GROUP BY"],
  ["DATEDIFF('day', d, e)", "days from d to e"],
  ["TO_CHAR(d, 'YYYY-MM')", "year and month as a text; so MONTHNAME, DAYNAME"],
  ["LAST_DAY(d)", "last day of its month"],
];

export const WORDS =
  "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET ASC DESC NULLS FIRST LAST WITH UNION ALL OVER PARTITION FILTER ROLLUP CUBE QUALIFY AND OR NOT IN BETWEEN CASE WHEN THEN ELSE END IS NULL LIKE AS TRUE FALSE DATE INTERVAL".split(" ");

const PLAIN = /^[a-z_][a-z0-9_]*$/i;

/** A column as it must be written: quoted where its name is not a plain word. */
export function quoted(name) {
  return PLAIN.test(name) && !WORDS.includes(name.toUpperCase()) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** A value as SQL. */
export function literal(value) {
  return typeof value === "string"
    ? `'${value.replaceAll("'", "''")}'`
    : typeof value === "boolean"
      ? String(value).toUpperCase()
      : String(value);
}

/** A column's facts in a few words. */
export function described(column) {
  const range = () => `${column.low} to ${column.high}`;
  const kinds = {
    real: () => `number, ${range()}`,
    integer: () => `whole number, ${range()}`,
    date: () => `date, ${range()}`,
    timestamp: () => `time in UTC, ${range()}`,
    flag: () => "yes or no",
    text: () => `text, up to ${column.max_length} characters`,
  };
  return kinds[column.type] ? kinds[column.type]() : `one of ${column.values.length}`;
}

/** Round-looking edges that cut a range in about eight. */
export function edges(column) {
  const step = (column.high - column.low) / 8;
  const whole = column.type === "integer";
  const cuts = Array.from({ length: 9 }, (_, i) => column.low + i * step).map((x) =>
    whole ? Math.round(x) : Number(x.toPrecision(3)),
  );
  cuts[0] = column.low;
  cuts[8] = column.high;
  return [...new Set(cuts)].sort((a, b) => a - b);
}

/** A few questions that this dataset can answer. */
export function examples(name, schema) {
  const columns = Object.entries(schema);
  const first = (...types) => columns.find(([, column]) => types.includes(column.type));
  const [number, category, flag] = [first("integer", "real"), first("category"), first("flag")];
  const day = first("date", "timestamp");
  const found = [];
  const condition = [];
  if (number) condition.push(`${quoted(number[0])} >= ${Math.round((number[1].low + number[1].high) / 2)}`);
  if (flag) condition.push(quoted(flag[0]));
  else if (category) condition.push(`${quoted(category[0])} = ${literal(category[1].values[0])}`);
  if (condition.length) found.push(["A share", condition.join(" AND ")]);
  const from = `FROM ${quoted(name)}`;
  if (category) {
    const mean = number ? `, AVG(${quoted(number[0])}) AS mean` : "";
    found.push([
      "By group",
      `SELECT ${quoted(category[0])}, COUNT(*) AS n${mean} ${from} GROUP BY ${quoted(category[0])}`,
    ]);
  }
  if (category) {
    const share = "100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS percent";
    found.push([
      "Percentages",
      `SELECT ${quoted(category[0])}, ${share} ${from} GROUP BY ${quoted(category[0])} ORDER BY percent DESC`,
    ]);
  }
  if (number) {
    const cut = `BUCKET(${quoted(number[0])}, ${edges(number[1]).join(", ")})`;
    found.push(["A curve", `SELECT ${cut} AS range, COUNT(*) AS n ${from} GROUP BY range`]);
    found.push(["A mean", `SELECT AVG(${quoted(number[0])}) AS mean ${from}`]);
  }
  if (day) {
    const month = `DATE_TRUNC('month', ${quoted(day[0])})`;
    found.push(["By month", `SELECT ${month} AS month, COUNT(*) AS n ${from} GROUP BY month`]);
  }
  return found;
}

/** Whether a text is a SELECT rather than a condition or a number per row. */
export function isSelect(text) {
  return /^[\s(]*(select|with)\b/i.test(text);
}
