// What a survey's reports say so far: shares with error bars, brought up to date while one looks.

import { bars } from "./chart.js";
import { fitted, h, show, table } from "./dom.js";
import { downloads } from "./download.js";
import { percent } from "./format.js";

const EVERY = 10_000;

/** A section that keeps itself current while it is on the page. */
export function estimatesOf(survey, api) {
  const told = h("p", { class: "quiet", "aria-live": "polite" }, "Adding up…");
  const results = h("div", { class: "results" });
  const section = h(
    "section",
    { class: "card estimates", "aria-label": "What everyone's reports say" },
    h("h2", {}, "What everyone's reports say"),
    told,
    results,
  );
  let seen = -1;
  const update = async () => {
    try {
      const found = await api.get(`/surveys/${encodeURIComponent(survey)}/estimates`);
      if (found.reports !== seen) {
        seen = found.reports;
        told.textContent = words(found);
        show(results, ...found.questions.map(resultOf), found.reports > 0 ? downloads("estimates", fileOf(found)) : null);
      }
    } catch (problem) {
      told.textContent = problem.message;
    }
    if (section.isConnected) timer = setTimeout(update, EVERY);
  };
  let timer = setTimeout(update, 0);
  return section;
}

/** The estimates as a file: one row an answer. */
function fileOf(found) {
  const rows = found.questions.flatMap((question) =>
    question.estimates.map((one) => [question.text, one.label, one.share, one.margin, question.reports]),
  );
  const notes = `share ± margin at ${found.confidence * 100} %, of those who answered`;
  return { head: ["question", "answer", "share", "share_margin", "reports"], rows, data: found, notes };
}

function words(found) {
  return found.reports === 0
    ? "No reports yet."
    : `${counted(found.reports)} so far. The bars are estimates; the truth lies within the whiskers in ${found.confidence * 100} of 100 cases.`;
}

function counted(reports) {
  return reports === 1 ? "1 report" : `${reports.toLocaleString("en")} reports`;
}

function resultOf(question) {
  const title = h("h3", {}, question.text);
  if (question.estimates.length === 0 && question.reports > 0)
    return h("div", {}, title, h("p", { class: "quiet" }, "No text stands out of the noise yet."));
  if (question.reports === 0) return h("div", {}, title, h("p", { class: "quiet" }, "No report on this question yet."));
  const rows = question.estimates.map((one) => ({ label: one.label, value: one.share, margin: one.margin }));
  const frame = fitted(h("div", { class: "chart-frame" }), (width) =>
    bars(rows, `Estimated shares: ${question.text}`, width, percent, [0, 1]),
  );
  const vague = Math.min(...rows.map((row) => row.margin)) >= 0.5;
  const cells = rows.map((row) => [row.label, percent(row.value), `± ${percent(row.margin)}`]);
  return h(
    "div",
    {},
    title,
    vague ? h("p", { class: "quiet" }, "Too few reports to tell: the error is still larger than half.") : frame,
    h(
      "details",
      {},
      h("summary", {}, `As a table, from ${counted(question.reports)}`),
      table(question.text, ["Answer", "Share", "Error"], cells, new Set([1, 2])),
      h(
        "p",
        { class: "quiet" },
        [
          `Of those who answered. Errors are ${question.proven ? "proven, whatever the answers are" : "estimated"}`,
          ...question.leaves_out,
        ].join("; ") + ".",
      ),
    ),
  );
}
