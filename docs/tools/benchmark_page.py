"""The benchmarks page: every figure that was asked for beside what was measured, then each benchmark's own results.

Made of benchmarks/figures.toml and benchmarks/results; what has no row is listed as not measured, with the reason.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "figures"
SEVERAL = 8
"""A figure with more rows than this is shown as how many of them meet it."""
PLAIN = ("case", "ours", "unit", "target", "met", "peer", "peer name", "better", "runs")
Row = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One figure that was asked for, and what answers it."""

    topic: str
    asked: str
    benchmark: str = ""
    case: str = ""
    tests: tuple[str, ...] = ()
    missing: str = ""
    enough: int = 0
    """How many rows must meet their targets; 0: all of them."""
    of_peer: float = 1.0
    """How many times the peer is the target of rows that state none."""

    def rows(self, results: dict[str, Any]) -> list[Row]:
        """The measured rows that answer it, each with its target."""
        kept = results.get(self.benchmark, {"rows": []})["rows"]
        mine = [row for row in kept if re.search(self.case, row["case"], re.IGNORECASE) and row["ours"] is not None]
        return [self._aimed(row) for row in mine]

    def _aimed(self, row: Row) -> Row:
        """Where a row states no target, its peer is the target."""
        if row.get("target") is not None or row.get("peer") is None:
            return row
        return {**row, "target": self.of_peer * row["peer"]}


def load_results() -> dict[str, Any]:
    """Every kept result by the benchmark's name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))}


def load_figures() -> tuple[dict[str, str], list[Figure]]:
    """The topics' titles, and every figure."""
    data = tomllib.loads((ROOT / "benchmarks" / "figures.toml").read_text(encoding="utf-8"))
    return data["topics"], [Figure(**{**entry, "tests": tuple(entry.get("tests", ()))}) for entry in data["figure"]]


def page() -> str:
    """The whole page after its heading."""
    results, (topics, figures) = load_results(), load_figures()
    text = (
        "`make bench` runs everything and writes one JSON file for each benchmark; `python -m benchmarks NAME` runs "
        "one, and `--draw` draws the plots anew. Peers run beside ours in the same run where `DODONA_PEER_PYTHON` "
        "names a Python that has them, on data sets in the folder `DODONA_DATA`. `make bench-quick` runs each at a "
        "size of seconds: it keeps them alive, its numbers mean nothing.\n"
        "\n## Every figure that was asked for\n\n"
        "A target that is a ratio is shown times the peer's figure of the same run. Where no target is stated, the "
        "peer is the target.\n"
    )
    for topic, title in topics.items():
        mine = [figure for figure in figures if figure.topic == topic]
        lines = "".join(_lines(figure, results) for figure in mine)
        if lines:
            head = "| asked | | ours | target | peer | measured on |\n|---|---|---|---|---|---|\n"
            text += f'\n### {title}\n\n<div class="figures" markdown>\n\n{head}{lines}\n</div>\n'
    text += "\n## Not measured\n\n" + _absent(figures, results)
    for name, result in results.items():
        text += _section(name, result)
    return text


def _lines(figure: Figure, results: dict[str, Any]) -> str:
    """The figure's lines of the table; none if it was not measured."""
    if figure.tests:
        names = "<br>".join(f"`tests/{test.replace('::', '` ')}" for test in figure.tests)
        return f"| {_cell(figure.asked)} | tested | | | | {names} |\n"
    rows = figure.rows(results)
    if len(rows) > SEVERAL:
        good = sum(_met(row) is True for row in rows)
        judged = sum(_met(row) is not None for row in rows)
        verdict = "met" if good >= (figure.enough or judged) else "**missed**"
        where = f"[{len(rows)} cases](#{figure.benchmark})"
        return f"| {_cell(figure.asked)} | {verdict} | {good} of {judged} | | | {where} |\n"
    text = ""
    for number, row in enumerate(rows):
        asked = _cell(figure.asked) if number == 0 else ""
        unit = row.get("unit", "")
        target, peer = _number(row.get("target"), unit), _number(row.get("peer"), unit)
        peer += f" ({_cell(row['peer name'])})" if peer and row.get("peer name") else ""
        verdict = {True: "met", False: "**missed**", None: ""}[_met(row)]
        text += f"| {asked} | {verdict} | {_number(row['ours'], unit)} | {target} | {peer} | {_cell(row['case'])} |\n"
    return text


def _met(row: Row) -> bool | None:
    """Whether it meets its target; None without one."""
    if "met" in row or row.get("target") is None:
        return row.get("met")
    return bool(row["ours"] <= row["target"] if row.get("better", "lower") == "lower" else row["ours"] >= row["target"])


def _absent(figures: list[Figure], results: dict[str, Any]) -> str:
    absent = [figure for figure in figures if not figure.tests and not figure.rows(results)]
    if not absent:
        return "Nothing: every figure has its row or its test above.\n"
    return "".join(f"- {figure.asked} (`{figure.benchmark}`): {figure.missing}.\n" for figure in absent)


def _section(name: str, result: dict[str, Any]) -> str:
    text = f"\n## {name}\n\n{result['about']}\n\n"
    text += f"*{result['when']}, {result['machine']}, {result['seconds']:.0f} s*\n\n"
    for plot in result.get("plots", ()):
        if (PICTURES / plot).exists():
            text += f"![{_words(name, plot)}](figures/{plot})\n\n"
    for rows in _tables(result["rows"]):
        text += _table(rows) + "\n"
    printed = result["text"].strip()
    if printed:
        text += '??? note "As printed"\n\n    ```text\n'
        text += "".join(f"    {line}".rstrip() + "\n" for line in printed.splitlines()) + "    ```\n"
    return text


def _words(name: str, plot: str) -> str:
    return (
        f"{name}: how many times better than target and peer" if plot.startswith("bench-") else f"{name}: {plot[:-4]}"
    )


def _tables(rows: list[Row]) -> Iterable[list[Row]]:
    """Neighbouring rows with the same further columns make one table."""
    group: list[Row] = []
    for row in rows:
        if group and _further(group[0]) != _further(row):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _further(row: Row) -> list[str]:
    return [key for key in row if key not in PLAIN]


def _table(rows: list[Row]) -> str:
    """The plain columns that some row fills, then the benchmark's own."""
    plain = [key for key in PLAIN if key not in ("unit", "better") and any(row.get(key) is not None for row in rows)]
    head = [*plain, *_further(rows[0])]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        unit = row.get("unit", "")
        lines.append([_shown(row.get(key), unit if key in ("ours", "target", "peer") else "") for key in head])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(value: Any, unit: str = "") -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "**no**", None: ""}[value]
    return _number(value, unit) if isinstance(value, int | float) else _cell(str(value))


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return ""
    whole = isinstance(value, int) or abs(value) >= 1000 or float(value).is_integer()
    text = f"{value:,.0f}" if whole else f"{value:.4g}"
    return text + (unit if unit.startswith("/") or not unit else f" {unit}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
