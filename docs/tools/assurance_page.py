"""The page for a reviewer: each promise, its argument, and what would fail if it did not hold.

Made of docs/assurance.toml, of the planted bugs in tests/mutants, and of the figures in docs/audit.md.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
AFTERNOON = """\
| minutes | do | see |
|---|---|---|
| 20 | read [the threat model](threat-model.md) and the rules below | who attacks, what is promised, what is not |
| 20 | `dodona audit` | every line *proven* on this machine: small tables, all neighbours, computed probabilities |
| 60 | take two or three promises below: the note, the code, then the tests | arguments and their checks |
| 30 | `pytest -n 0 tests/mutants -k "..."` with a planted bug's name; then your own | the tests that must fail do |
| 30 | `pytest tests/conformance -k "hostile or twins"` | 64 hostile cases, and tables that differ in one row |
| 20 | *What is left* of each promise, and [known limits](security.md) | what to ask for before you rely on it |
"""


def promises() -> list[dict[str, Any]]:
    """As stated in docs/assurance.toml."""
    return list(_stated()["promise"])


def rules() -> dict[str, str]:
    """The rules by number."""
    return dict(_stated()["rules"])


@cache
def planted() -> list[dict[str, Any]]:
    """Every planted bug, file by file."""
    lists = sorted((ROOT / "tests" / "mutants").glob("*.toml"))
    return [bug for listed in lists for bug in tomllib.loads(listed.read_text(encoding="utf-8"))["mutant"]]


def promise_of(bug: dict[str, Any]) -> str | None:
    """The promise a planted bug breaks: the one it names, or the one that owns its file; the longest match wins."""
    if "promise" in bug:
        return str(bug["promise"])
    owned = [(len(own), promise["name"]) for promise in promises() for own in promise["files"] if _in(bug["file"], own)]
    return max(owned)[1] if owned else None


def figures() -> dict[str, str]:
    """What docs/audit.md says was counted, by the goal's number: what is counted, in ``make test``."""
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (M\d+) ([^|]*) \| ([^|]*) \|", text, re.MULTILINE)
    return {number: f"{what.strip()}: {counted.strip()}" for number, what, counted in found}


def page() -> str:
    """The whole page, from its title on."""
    bugs: dict[str, list[dict[str, Any]]] = {promise["name"]: [] for promise in promises()}
    for bug in planted():
        bugs[promise_of(bug) or "of no promise"].append(bug)
    audited = sum("audit" in bug for bug in planted())
    text = (
        "# Assurance: why to believe it\n\n"
        "For a reviewer with one afternoon: each promise, its argument in a few sentences, where the proof is written "
        "out, the tests to read first, the bugs that were planted to see that these tests fail, and what the argument "
        f"does not cover. {len(planted())} bugs are planted, each in a copy of the package; the tests named beside it "
        f"must fail. {audited} of them must also be found by `dodona audit`. The page is made of the tests' own lists, "
        "and a test fails where it names what is not there.\n\n"
        f"{AFTERNOON}\n"
        "| promise | rules | planted bugs |\n|---|---|---|\n"
    )
    for promise in promises():
        name = promise["name"]
        text += f"| [{name}](#{_anchor(name)}) | {', '.join(promise['rules'])} | {len(bugs[name])} |\n"
    for promise in promises():
        text += _section(promise, bugs[promise["name"]])
    return text + _rules_section()


def _section(promise: dict[str, Any], bugs: list[dict[str, Any]]) -> str:
    counted = figures()
    text = f"\n## {promise['name']}\n\n**{promise['says']}**\n\n{promise['because']}\n\n"
    text += f"- *Rules:* {', '.join(promise['rules'])}.\n"
    text += f"- *Proof:* {', '.join(f'`{note}`' for note in promise['notes'])}.\n"
    text += "".join(f"- *Test:* {_test(test)}.\n" for test in promise["tests"])
    text += "".join(f"- *Counted ({number}):* {counted[number]}.\n" for number in promise["figures"])
    text += f"- *What is left:* {promise['left']}\n\n"
    text += "| planted bug | what it breaks | in | caught by | and by the audit's line |\n|---|---|---|---|---|\n"
    for bug in bugs:
        cells = [bug["name"], bug["breaks"], f"`{bug['file']}`", "; ".join(map(_killer, bug["killers"]))]
        text += f"| {' | '.join(map(_cell, [*cells, '; '.join(bug.get('audit', ()))]))} |\n"
    return text


def _killer(test: str) -> str:
    """A killer as its name in words, or as its file."""
    file, _, name = test.partition("::")
    case = re.search(r"\[.*\]$", name)
    words = name.removesuffix(case[0] if case else "").removeprefix("test_").replace("_", " ")
    return (words + (f" ({case[0][1:-1]})" if case else "")) or f"`{file}`"


def _rules_section() -> str:
    text = "\n## The rules\n\n| rule | says | kept by |\n|---|---|---|\n"
    for number, says in rules().items():
        keepers = [p["name"] for p in promises() if number in p["rules"]]
        text += f"| {number} | {says} | {', '.join(f'[{name}](#{_anchor(name)})' for name in keepers)} |\n"
    return text


@cache
def _stated() -> dict[str, Any]:
    return tomllib.loads((ROOT / "docs" / "assurance.toml").read_text(encoding="utf-8"))


def _in(file: str, own: str) -> bool:
    return file == own or file.startswith(f"{own}/")


def _test(test: str) -> str:
    """``file::test_name`` as its name, in words, with the file after it."""
    file, _, name = test.partition("::")
    return f"{name.removeprefix('test_').replace('_', ' ')} (`{file}`)"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")
