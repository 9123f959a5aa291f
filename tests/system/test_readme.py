"""The documents are true: their examples run, and nothing in the language or the command line is left out of them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dodona import cli
from dodona.cli.demo import main as demo
from dodona.query.compiler import RULES, Compiler
from dodona.query.expr import Call, walk
from dodona.query.program import Builder
from dodona.query.schema import Schema
from dodona.query.select import AGGREGATES
from dodona.query.text import parse
from dodona.sample import COLUMNS, write_sample

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUESTIONS = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `\w+` \|.*$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def survey_schema() -> Schema:
    return Schema.read(tomllib.loads(COLUMNS)["columns"])


def test_the_readme_runs(tmp_path: Path) -> None:
    """Its commands in order, then its Python, in one folder: the Python continues the ledger of the commands."""
    blocks = BLOCK.findall(README)
    commands = [
        line[2:] for kind, text in blocks if kind == "console" for line in text.splitlines() if line[:2] == "$ "
    ]
    mine = [command for command in commands if command.startswith("dodona ")]
    assert len(mine) >= 6
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in mine:
        done = subprocess.run(
            shlex.split(command), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    script = "\n".join(text for kind, text in blocks if kind == "python")
    assert script.count("import dodona as dd") == 1
    python = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(python, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert "AVG is not part of the language" in done.stdout


def test_the_readme_names_every_exit_code_and_command() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert codes == {0, cli.FAULT, cli.REFUSED, cli.SPENT, cli.LEDGER, cli.LOST, cli.TAKEN, cli.INTERRUPTED}
    names = [command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback]
    for name in names:
        assert f"dodona {name}" in README, name
    for command in cli.schema_app.registered_commands:
        assert command.callback
        assert f"dodona schema {command.callback.__name__}" in README


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_lead_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


TEXTUAL = {"upper", "trim", "substr", "left", "concat"}
"""What makes a text of a text: not a value to add up, but its length is one."""


def documented(heading: str) -> dict[str, str]:
    """Name and second cell of each row of the table under a heading."""
    section = QUESTIONS.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| *`?(.*?)`? *(?<!\\)\|", section, re.MULTILINE))


def test_every_operation_is_documented() -> None:
    listed = {*documented("Operations"), *documented("Texts"), *documented("Dates and times")}
    beside = {name for row in ROW.findall(QUESTIONS) for name in re.findall(r"`(\w+)`", row)}
    assert listed <= {*RULES, "dot", "bucket"} <= listed | beside
    assert set(documented("SELECT")) == {*AGGREGATES.values(), "quantile"}


def schema_of(heading: str) -> Schema:
    """The one that stands in a section, as Python and as TOML."""
    section = QUESTIONS.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    blocks = dict(BLOCK.findall(section))
    names: dict[str, Any] = {}
    exec(f"import dodona as dd\n{blocks['python']}", names)
    schema = names["schema"]
    assert isinstance(schema, Schema)
    assert Schema.read(tomllib.loads(blocks["toml"])["columns"]) == schema
    return schema


@pytest.mark.parametrize(
    ("heading", "operation", "example"),
    [
        pytest.param(section, *pair, id=f"{section}-{pair[0]}")
        for section in ("Operations", "Texts", "Dates and times")
        for pair in documented(section).items()
        if pair[1]
    ],
)
def test_every_example_is_an_example(heading: str, operation: str, example: str) -> None:
    schema = survey_schema() if heading == "Operations" else schema_of(heading)
    expr = parse(example.replace("\\|", "|"))
    assert operation in {node.op for node in walk(expr) if isinstance(node, Call)}
    truth = expr if operation not in TEXTUAL else parse(f"LENGTH({example})".replace("\\|", "|"))
    assert Compiler(schema, Builder()).value(truth).type.bounded


def test_the_example_statements_run(tmp_path: Path) -> None:
    from dodona.engines.table import Table
    from dodona.oracles.exact import Exact

    sums, quantiles = (text for kind, text in BLOCK.findall(QUESTIONS) if kind == "sql")
    write_sample(tmp_path / "survey.parquet", 500)
    exact = Exact(Table(str(tmp_path / "survey.parquet"), survey_schema()))
    assert len(exact.sql(sums.strip())) == 12  # of each two sexes and (other), three ages and (other)
    assert len(exact.sql(quantiles.strip())) >= 1


def test_the_demo_runs_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dodona.errors import Refused

    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        demo()
        shown = capsys.readouterr().out
        assert "the same answer, and nothing was charged" in shown
        assert "The ledger is unchanged" in shown
        assert "BudgetSpent" in shown
        assert "every hash and sum holds" in shown
    (tmp_path / "demo" / "thesis.tex").write_text("mine")
    with pytest.raises(Refused, match=r"thesis\.tex"):
        demo()
    assert (tmp_path / "demo" / "survey.parquet").exists()
