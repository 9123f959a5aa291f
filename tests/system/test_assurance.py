"""The assurance page is true: every promise has an argument and tests that exist, and planted bugs."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("assurance_page", ROOT / "docs" / "tools" / "assurance_page.py")
assert SPEC is not None
assert SPEC.loader is not None
PAGE: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(PAGE)
PROMISES, BUGS, RULES, FIGURES = PAGE.promises(), PAGE.planted(), PAGE.rules(), PAGE.figures()
FIELDS = {"name", "says", "because", "rules", "notes", "files", "tests", "figures", "left"}


def exists(test: str) -> bool:
    """Whether ``path``, ``path::name`` or ``path::name[case]`` leads to a test."""
    path, _, name = test.partition("::")
    file = ROOT / path
    if not name or not file.is_file():
        return file.exists() and not name
    return name.partition("[")[0] in functions_of(file)


@functools.cache
def functions_of(file: Path) -> frozenset[str]:
    """Every function that a file defines, by name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise["name"])
def test_a_promise_has_an_argument_tests_and_planted_bugs(promise: dict[str, Any]) -> None:
    assert set(promise) == FIELDS
    assert all(promise[field] for field in FIELDS - {"figures"})
    assert set(promise["rules"]) <= set(RULES)
    assert [note for note in promise["notes"] if not (ROOT / note).is_file()] == []
    assert [test for test in promise["tests"] if not exists(test)] == []
    assert set(promise["figures"]) <= set(FIGURES)
    assert [bug for bug in BUGS if PAGE.promise_of(bug) == promise["name"]], "plant a bug that breaks it"


def test_every_rule_is_kept_by_a_promise() -> None:
    assert list(RULES) == [f"R{number}" for number in range(1, 19)]
    assert {rule for promise in PROMISES for rule in promise["rules"]} == set(RULES)


def test_every_planted_bug_breaks_a_promise_and_names_tests_that_exist() -> None:
    names = {promise["name"] for promise in PROMISES}
    assert [bug["name"] for bug in BUGS if PAGE.promise_of(bug) not in names] == []
    assert [killer for bug in BUGS for killer in bug["killers"] if not exists(killer)] == []


def test_every_planted_bug_can_still_be_planted() -> None:
    """Its text is in its file, once: what moved on without it is no longer watched."""

    def places(bug: dict[str, Any]) -> int:
        return (ROOT / "src" / "dodona" / bug["file"]).read_text(encoding="utf-8").count(bug["old"])

    assert {bug["name"]: found for bug in BUGS if (found := places(bug)) != 1} == {}


def test_every_line_that_a_planted_bug_names_is_in_the_audit() -> None:
    from dodona.audit.suite import every_check

    lines = {check.name for check in every_check()}
    assert {line for bug in BUGS for line in bug.get("audit", ())} <= lines


def test_every_proof_of_a_mechanism_is_part_of_an_argument() -> None:
    notes = {str(note.relative_to(ROOT)) for note in (ROOT / "src" / "dodona" / "mechanisms").glob("*.md")}
    assert notes <= {note for promise in PROMISES for note in promise["notes"]}


def test_dead_names_are_noticed() -> None:
    assert exists("tests/system/test_assurance.py::test_dead_names_are_noticed[any case]")
    assert not exists("tests/system/test_assurance.py::test_that_is_not_there")
    assert not exists("tests/system/test_nothing.py")
    assert not exists("tests/system/test_nothing.py::test_x")


def test_the_page_is_the_one_that_the_lists_make() -> None:
    assert PAGE.page() in (ROOT / "docs" / "assurance.md").read_text(encoding="utf-8")
