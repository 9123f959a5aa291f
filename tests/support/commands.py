"""The command line in tests: a real process, what came of it, and surveys to run it on."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from dodona.config import Config

DODONA = Path(sys.executable).with_name("dodona")
QUESTION = "age >= 65 AND smoker"


class Outcome(NamedTuple):
    """The exit code, and what was printed."""

    code: int
    out: str
    err: str


def dodona(*args: object, cwd: Path, env: dict[str, str] | None = None) -> Outcome:
    """A real process."""
    whole = {**os.environ, "PYTHONWARNINGS": "error", **(env or {})}
    command = [str(DODONA), *map(str, args)]
    done = subprocess.run(command, cwd=cwd, env=whole, capture_output=True, text=True, timeout=180, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def refused(outcome: Outcome, code: int = 2) -> str:
    """One line on stderr, nothing on stdout, no traceback: that line."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith("dodona: ")
    assert "Traceback" not in outcome.err
    return outcome.err


def edited(folder: Path, old: str, new: str, name: str = "edited.toml") -> Path:
    """A copy of survey.toml with one change, and a ledger of its own."""
    text = (folder / "survey.toml").read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    return folder / name


def make_ledger(survey: Path | str) -> None:
    """As ``dodona ledger new`` does."""
    Config.read(survey).open_curator("curator", create=True).ledger.close()


def fingerprint(folder: Path) -> str:
    """Of the ledger's file: the same as long as nothing was charged."""
    return hashlib.sha256((folder / "survey.ledger").read_bytes()).hexdigest()
