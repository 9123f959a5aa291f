"""What code, tests and pages cite is there: rules, attacks, cases and limits of docs/hostile.md, and files by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dodona"
ANCHORS = set(re.findall(r'<span id="([ravm]\d+)">', (ROOT / "docs" / "hostile.md").read_text(encoding="utf-8")))
CITED = re.compile(r"HOSTILE[ \n#]+((?:[RAVM]\d+(?:-[RAVM]\d+)?(?:, | and )?)+)")


def texts(*folders: str) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".md", ".toml") and file.name != "hostile.md":
                yield file, file.read_text(encoding="utf-8")


def test_the_page_has_every_rule_attack_case_and_limit():
    numbers = {"r": 18, "a": 25, "v": 64, "m": 19}
    assert {f"{letter}{i}" for letter, last in numbers.items() for i in range(1, last + 1)} == ANCHORS


def test_cited_rules_attacks_cases_and_limits_exist():
    cited = {
        (str(file.relative_to(ROOT)), one)
        for file, text in texts("src", "tests", "docs")
        for many in CITED.findall(text)
        for one in re.findall(r"[RAVM]\d+", many)
    }
    assert len(cited) > 60
    assert {(file, one) for file, one in cited if one.lower() not in ANCHORS} == set()


@pytest.mark.parametrize("section", ["methods", "crashes", "edges"])
def test_cited_sections_exist(section):
    page = (ROOT / "docs" / "hostile.md").read_text(encoding="utf-8")
    assert f"## {section.capitalize()}\n" in page
    unknown = {
        found
        for _, text in texts("src", "tests", "docs")
        for found in re.findall(r"HOSTILE, ([a-z]+)", text)
        if found not in ("methods", "crashes", "edges")
    }
    assert unknown == set()


def test_files_named_in_the_code_exist():
    """``plan.py`` is a file of the same room or the only one of its name; ``query/plan.py`` is seen from the package,
    from the room, or from the repository."""
    names = [file.name for file in ROOT.rglob("*.py") if ".venv" not in file.parts]
    lost = []
    for file, text in texts("src"):
        for cited in re.findall(r"``([\w/]+\.(?:py|md))``", text):
            near = [file.parent / cited, file.parents[1] / cited, SOURCE / cited, ROOT / cited]
            if not any(place.exists() for place in near) and names.count(cited) != 1:
                lost.append((str(file.relative_to(SOURCE)), cited))
    assert lost == []
