"""What the tests of the pages and of the command line share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona import cli
from dodona.sample import write_sample, write_schema
from tests.support import pages
from tests.support.browsers import BrowserMissing, Tab, chromium
from tests.support.commands import QUESTION, Outcome, dodona, make_ledger
from tests.support.pages import World
from tests.support.servers import in_thread, write_survey


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium; where there is none the test is skipped, but not in CI."""
    try:
        with chromium() as found:
            yield found
    except BrowserMissing as missing:
        if "CI" in os.environ:
            raise
        pytest.skip(str(missing))


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Opens tabs, each in a context of its own; nothing may have gone wrong on any."""
    opened: list[Tab] = []

    def make(**settings: Any) -> Tab:
        opened.append(Tab(browser, **settings))
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()
        assert one.faults == []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One server for the file."""
    with pages.world(tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the file's server of surveys keeps what it is told."""
    return tmp_path_factory.mktemp("survey")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """One server of surveys for the file; its address."""
    path = write_survey(folder, {"x": np.array([True, False])}, dd.Schema({"x": dd.Flag()}), {"epsilon": 1})
    with in_thread(folder, [path], tick=0.001) as found:
        yield found


@pytest.fixture
def signed_in(tab: Callable[..., Tab], world: World) -> Callable[..., Tab]:
    """Opens tabs in which somebody has entered their key."""

    def enter(who: str, **settings: Any) -> Tab:
        one = tab(**settings)
        pages.sign_in(one, world, who)
        return one

    return enter


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """``main()`` in this process: the same code, without the start."""

    def run(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dodona", *map(str, args)])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run


@pytest.fixture
def survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A survey that nobody asked yet, in the working folder."""
    monkeypatch.chdir(tmp_path)
    write_sample("survey.parquet", 2000)
    write_schema("survey.toml", "survey.parquet")
    make_ledger("survey.toml")
    return tmp_path


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A survey with one charge in its ledger; refusals must leave it as it is."""
    folder = tmp_path_factory.mktemp("asked")
    write_sample(folder / "survey.parquet", 2000)
    write_schema(folder / "survey.toml", folder / "survey.parquet")
    make_ledger(folder / "survey.toml")
    done = dodona("ask", "survey.toml", QUESTION, "--share", "1/100", cwd=folder)
    assert done.code == 0, done.err
    return folder
