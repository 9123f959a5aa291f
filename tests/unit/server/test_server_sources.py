"""What a server makes, remembers and refuses to serve: one source, one budget, and never a fresh one by mistake."""

import os
import shutil
import stat

import numpy as np
import pytest

import dodona as dd
from dodona.config import Config
from dodona.errors import LedgerCorrupt, LedgerMissing, LedgerUnavailable, Refused
from dodona.server.datasets import Datasets
from dodona.server.keys import KeyStore
from dodona.server.settings import Heads, Settings
from dodona.server.surveys.store import SurveyStore
from tests.support.commands import make_ledger

COLUMNS = "[budget]\nepsilon = 1\n[columns]\nx = { type = 'real', low = 0, high = 1 }\n"


def survey(folder, name, data, more=""):
    path = folder / f"{name}.toml"
    path.write_text(f"data = '{data}'\nname = '{name}'\n{more}\n{COLUMNS}")
    return path


@pytest.fixture
def rows(tmp_path):
    import pyarrow
    import pyarrow.parquet

    for name in ("rows", "others"):
        pyarrow.parquet.write_table(pyarrow.table({"x": np.linspace(0, 1, 50)}), tmp_path / f"{name}.parquet")
    return tmp_path / "rows.parquet"


def opened(folder, *paths, say=lambda _: None, **settings):
    return Datasets(Settings(tuple(map(str, paths)), str(folder), **settings), say)


def served(folder, *paths, **settings):
    """Started and stopped once; what it said."""
    said = []
    opened(folder, *paths, say=said.append, **settings).close()
    return said


def ask(path, share="0.1"):
    Config.read(path).open_curator("ann").ask("x", share=share)


# -- making and remembering --------------------------------------------------------------------------------------------


def test_a_server_says_so_when_it_makes_a_ledger(rows, tmp_path):
    path = survey(tmp_path, "a", "rows.parquet")
    with pytest.raises(LedgerMissing):
        opened(tmp_path, path, say=None)  # a worker makes none
    assert not list(tmp_path.glob("*.ledger*"))
    (line,) = served(tmp_path, path)
    assert "made a.ledger, a new ledger for a" in line
    assert served(tmp_path, path) == []
    opened(tmp_path, path, say=None).close()


@pytest.mark.parametrize("how", ["deleted", "emptied", "made anew", "older", "elsewhere"])
def test_a_server_refuses_a_ledger_without_the_entry_it_remembers(how, rows, tmp_path):
    """Also where the record beside it is gone with it, so that nothing else could tell."""
    path, kept = survey(tmp_path, "a", "rows.parquet"), tmp_path / "a.ledger"
    served(tmp_path, path)
    ask(path)
    shutil.copy(kept, tmp_path / "copy")
    ask(path)
    served(tmp_path, path)
    if how == "elsewhere":
        survey(tmp_path, "a", "rows.parquet", "ledger = 'b.ledger'")
    else:
        for file in tmp_path.glob("a.ledger*"):
            file.unlink()
    if how == "emptied":
        kept.touch()
    elif how == "made anew":
        make_ledger(path)
    elif how == "older":
        shutil.copy(tmp_path / "copy", kept)
    for say in (None, lambda _: None):
        with pytest.raises(LedgerCorrupt, match="newest entry that this server saw"):
            opened(tmp_path, path, say=say)
    assert not (tmp_path / "b.ledger").exists()


def test_a_server_remembers_what_was_charged_while_it_served(rows, tmp_path, monkeypatch):
    path = survey(tmp_path, "a", "rows.parquet")
    datasets = opened(tmp_path, path)
    (data,) = datasets
    ask(path)
    heads = Heads(tmp_path / "dodona.heads")
    data.remember()
    assert heads._head(data.table.whom)[0] == 0, "not at every question"
    monkeypatch.setattr("dodona.server.datasets.REMEMBERED", 0.0)
    data.remember()
    assert heads._head(data.table.whom) == data.ledger.head()
    ask(path)
    last = data.ledger.head()
    datasets.close()
    assert heads._head(data.table.whom) == last, "and at the end"
    heads.keep(data.table.whom, 1, "an older one")
    assert heads._head(data.table.whom) == last
    heads.close()
    served(tmp_path, path)


def test_other_people_have_another_ledger(rows, tmp_path):
    path = survey(tmp_path, "a", "rows.parquet")
    served(tmp_path, path)
    ask(path)
    served(tmp_path, path)
    survey(tmp_path, "a", "rows.parquet", "ledger = 'b.ledger'\npopulation = 'those of 2027'")
    (line,) = served(tmp_path, path)
    assert "made b.ledger" in line


def test_a_state_that_cannot_be_kept_is_refused(rows, tmp_path):
    path = survey(tmp_path, "a", "rows.parquet")
    (tmp_path / "dodona.heads").write_bytes(b"something else " * 100)
    with pytest.raises(LedgerUnavailable, match="own state"):
        opened(tmp_path, path)


# -- one source, one budget --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["the same", "symlink", "hard link", "another spelling", "pattern", "population"])
def test_one_table_under_two_names_has_no_two_budgets(how, rows, tmp_path):
    more, second = "", tmp_path / "second.parquet"
    if how == "symlink":
        second.symlink_to(rows)
    elif how == "hard link":
        os.link(rows, second)
    elif how == "population":
        shutil.copy(rows, second)
        more = "population = 'all of us'"
    name = {"the same": "rows.parquet", "another spelling": f"{tmp_path}/../{tmp_path.name}/rows.parquet"}
    name["pattern"] = "r*.parquet"
    one = survey(tmp_path, "one", "rows.parquet", more)
    two = survey(tmp_path, "two", name.get(how, "second.parquet"), more)
    for pair in ((one, two), (two, one)):
        with pytest.raises(Refused, match="disjoint = true"):
            opened(tmp_path, *pair)
    assert not list(tmp_path.glob("*.ledger*")), "refused before a ledger is made"
    survey(tmp_path, "two", name.get(how, "second.parquet"), f"{more}\ndisjoint = true")
    with pytest.raises(Refused, match="disjoint = true"):
        opened(tmp_path, one, two)  # both must say so


def test_sources_that_share_nothing_are_served(rows, tmp_path):
    two = (survey(tmp_path, "one", "rows.parquet"), survey(tmp_path, "two", "others.parquet"))
    assert len(served(tmp_path, *two)) == 2


def test_two_datasets_may_share_one_ledger(rows, tmp_path):
    more = "population = 'all of us'\nledger = 'one.ledger'"
    paths = [survey(tmp_path, name, "rows.parquet", more) for name in ("one", "two")]
    assert len(served(tmp_path, *paths)) == 1
    ask(paths[0], "0.6")
    with pytest.raises(dd.errors.BudgetSpent):
        ask(paths[1], "0.6")


def test_that_they_are_disjoint_is_stated_in_the_ledger(rows, tmp_path):
    paths = [survey(tmp_path, name, "rows.parquet", "disjoint = true") for name in ("one", "two")]
    served(tmp_path, *paths)
    served(tmp_path, *paths)
    for path in paths:
        ask(path)
        with Config.read(path).open_curator("ann").ledger as ledger:
            stated = [entry for entry in ledger.entries() if "nobody in this dataset" in entry.what]
            assert [entry.amount for entry in stated] == [0]
            assert ledger.verify().entries == 4
    for file in tmp_path.glob("two.ledger*"):
        file.unlink()
    with pytest.raises(LedgerCorrupt, match="newest entry that this server saw"):
        opened(tmp_path, *paths)


def test_a_postgresql_view_is_no_second_dataset(postgres, tmp_path):
    with postgres.connect() as db:
        db.execute("CREATE SCHEMA IF NOT EXISTS twice")
        db.execute("CREATE TABLE twice.people(x double precision)")
        db.execute("CREATE VIEW twice.seen AS SELECT x FROM twice.people WHERE x < 0.5")
    more = "neighbours = 'add-remove'"
    one = survey(tmp_path, "one", f"{postgres.url()}#twice.people", more)
    two = survey(tmp_path, "two", f"{postgres.url()}#twice.seen", more)
    with pytest.raises(Refused, match="disjoint = true"):
        opened(tmp_path, one, two)
    place = f"{postgres.url()}#twice_ledger"
    (line,) = served(tmp_path, one, ledger=place)
    assert "twice_ledger" in line
    with postgres.connect() as db:
        db.execute("DROP SCHEMA twice_ledger CASCADE")
    with pytest.raises(LedgerCorrupt, match="newest entry that this server saw"):
        opened(tmp_path, one, ledger=place)


# -- for its owner alone -----------------------------------------------------------------------------------------------


def test_what_a_server_keeps_is_its_owners_alone(rows, tmp_path):
    before = os.umask(0)
    try:
        served(tmp_path, survey(tmp_path, "a", "rows.parquet"))
        for store in (KeyStore, SurveyStore):
            store(tmp_path / store.__name__).close()
    finally:
        os.umask(before)
    kept = [tmp_path / name for name in ("dodona.heads", "KeyStore", "SurveyStore", "a.ledger", "a.ledger.lock")]
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}
    for file in kept:
        file.chmod(0o644)
    Heads(tmp_path / "dodona.heads").close()
    for store in (KeyStore, SurveyStore):
        store(tmp_path / store.__name__).close()
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept[:3]} == {0o600}
