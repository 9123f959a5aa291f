"""Makes the pages that are made of data: the map, the gallery, the benchmarks, the assurance.

``python docs/tools/pages.py`` writes docs/map.md from docs/map.toml, docs/gallery.md from the scripts in
examples/gallery, docs/benchmarks.md from benchmarks/figures.toml and benchmarks/results, and docs/assurance.md from
docs/assurance.toml and the planted bugs; ``--check`` only says which are out of date.
"""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import house
from assurance_page import page as promises_page
from benchmark_page import page as results_page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WIDE = "---\nhide: [toc]\n---\n\n"
MADE = "<!-- Made by docs/tools/pages.py from {}; edit that, not this. -->\n\n"


def map_page() -> str:
    """The map: one table for each paper."""
    data = tomllib.loads((DOCS / "map.toml").read_text(encoding="utf-8"))
    record = json.loads((DOCS / "map_run.json").read_text(encoding="utf-8"))
    text = WIDE + MADE.format("map.toml")
    text += (
        "# The map: from the papers to the code\n\n"
        "Every numbered statement and every algorithm of the five papers, the code that came of it, the test that "
        "checks it, and the [mistake](errata.md) if we mended one. Code is inside the package `dodona`, tests inside "
        "`tests`. A test fails if a name here is dead, an algorithm of ours is missing, or no test of a row runs "
        "the code that it names. *State*: as printed, mended, or beyond what the papers have. *Run*: the most rows of "
        "a table in the row's tests (closed forms have none), and how long they all took, noted by "
        "`python docs/tools/map_run.py` on two busy cores, every call of ours being written down meanwhile.\n"
    )
    for key, title in data["papers"].items():
        statements = data["statements"][key]
        head = "ours" if key == "beyond" else "statement"
        text += f"\n## {title if key == 'beyond' else f'{key}: {title}'}\n\n"
        text += f"| {head} | says | state | code | checked by | run | mended |\n|---|---|---|---|---|---|---|\n"
        for entry in statements:
            code = " ".join(f"`{name}`" for name in entry.get("code", ()))
            if "not_code" in entry:
                code = f"*not code: {entry['not_code']}*"
            tests = "<br>".join(_test_link(test) for test in entry.get("tests", ()))
            errata = ", ".join(f"[{number}](errata.md#e{number})" for number in entry.get("errata", ()))
            told = (
                f"{_cell(entry['name'])} | {_cell(entry['what'])} | {entry.get('state', 'beyond')} | {code} | {tests}"
            )
            text += f"| {told} | {_run_of(entry, record)} | {errata} |\n"
    return text


def _run_of(entry: dict[str, Any], record: dict[str, dict[str, Any]]) -> str:
    """The largest table of a row's tests, and their seconds."""
    held = [record[test] for test in entry.get("tests", ()) if test in record]
    if not held:
        return ""
    rows, seconds = max(one["rows"] for one in held), sum(one["seconds"] for one in held)
    return f"{f'{rows:,} rows, ' if rows else ''}{seconds:.1f} s"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _test_link(test: str) -> str:
    """``file::test_name`` as its name, in words, with the file after it."""
    file, _, name = test.partition("::")
    return f"{name.removeprefix('test_').replace('_', ' ')} (`{file}`)"


def gallery_page() -> str:
    """The gallery: each script's picture, what it shows, and the script."""
    text = MADE.format("examples/gallery") + (
        "# Gallery\n\n"
        "Short scripts, each on data that comes with a package or on the made-up survey. "
        "`python examples/gallery/NAME.py` draws one picture, `make gallery` all of them. Their noise is seeded, which "
        "only tests and pictures may do: with real data there is no seed.\n"
    )
    for file in scripts():
        source = file.read_text(encoding="utf-8")
        title, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
        text += f"\n## {title.rstrip('.')}\n\n![{title.rstrip('.')}](gallery/{file.stem}.png)\n\n"
        text += f"{' '.join(rest.split())}\n\n" if rest.strip() else ""
        body = source.partition('"""\n\n')[2]
        text += f'??? example "examples/gallery/{file.name}"\n\n    ```py\n'
        text += "".join(f"    {line}".rstrip() + "\n" for line in body.rstrip().splitlines()) + "    ```\n"
    return text


def scripts() -> list[Path]:
    """The gallery's scripts, in order of name."""
    return sorted(file for file in (ROOT / "examples" / "gallery").glob("*.py") if not file.stem.startswith("_"))


def benchmark_page() -> str:
    """The benchmarks: figures asked for and measured."""
    made = MADE.format("benchmarks/figures.toml and benchmarks/results")
    return WIDE + made + "# Benchmarks\n\n" + results_page()


def assurance_page() -> str:
    """The promises, and what would fail if they did not hold."""
    return WIDE + MADE.format("assurance.toml, tests/mutants and audit.md") + promises_page()


def design_page() -> str:
    """The design, with the map of rooms and the counts of the house as they are."""
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    for name, made in (("rooms", f"```text\n{house.rooms()}```\n"), ("house", house.table(house.count()))):
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        end = f"<!-- end of {name} -->"
        text = f"{before}<!-- {name} -->\n{made}{end}{rest.partition(end)[2]}"
    return text


PAGES = {
    "design.md": design_page,
    "map.md": map_page,
    "gallery.md": gallery_page,
    "benchmarks.md": benchmark_page,
    "assurance.md": assurance_page,
}


def main(arguments: list[str]) -> int:
    """Write every page, or with ``--check`` say which differ."""
    stale = []
    for name, make in PAGES.items():
        file, text = DOCS / name, make()
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                file.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        print(f"out of date: {', '.join(stale)}. Run python docs/tools/pages.py.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
