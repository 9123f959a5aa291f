"""A ledger is where it was made, or nowhere: opening makes none, and a lost one does not become a fresh budget."""

import os
import stat
from pathlib import Path

import pytest

import dodona as dd
from dodona.errors import LedgerCorrupt, LedgerError, LedgerMissing, LedgerUnavailable, Refused, Unsupported
from dodona.privacy.budget import Budget
from dodona.privacy.ledger.places import existing_ledger, full_place, ledger_exists, open_ledger
from dodona.privacy.ledger.sqlite import SqliteLedger
from dodona.sample import write_sample

BUDGET = Budget(epsilon=1)
SCHEMA = dd.Schema({"smoker": dd.Flag()})


def charge(ledger, name="r", amount=1):
    return ledger.charge(amount=amount, analyst="ann", request_id=name, what="q")


def made(path: Path, entries: int = 1, name: str = "r") -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        for number in range(entries):
            charge(ledger, f"{name}{number}")


def left_behind(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# -- making is an act of its own ---------------------------------------------------------------------------------------


def test_opening_never_makes_a_ledger(tmp_path):
    path = tmp_path / "a.ledger"
    for opening in (lambda: SqliteLedger.open(path, BUDGET), lambda: existing_ledger(path)):
        with pytest.raises(LedgerMissing, match="create=True"):
            opening()
        path.touch()
        with pytest.raises(LedgerMissing, match="dodona ledger new"):
            opening()
        path.unlink()
    assert left_behind(tmp_path) == []
    made(path)
    with SqliteLedger.open(path, BUDGET) as ledger, SqliteLedger.open(path, BUDGET, create=True) as again:
        assert ledger.spent() == again.spent() == 1


@pytest.mark.parametrize("oracle", [dd.Curator, dd.Local])
def test_no_oracle_makes_a_ledger_that_was_not_asked_for(oracle, tmp_path):
    table, path = dd.Table({"smoker": [True, False]}, SCHEMA), tmp_path / "a.ledger"
    budget = BUDGET if oracle is dd.Curator else 1
    with pytest.raises(LedgerMissing, match="create=True"):
        oracle(table, budget, path)
    assert left_behind(tmp_path) == []
    oracle(table, budget, path, create=True).ask("smoker", share=0.5)
    assert oracle(table, budget, path).left < 1


def test_a_handle_does_not_make_anew_what_was_deleted_under_it(tmp_path):
    path = tmp_path / "a.ledger"
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        path.unlink()
        path.with_name("a.ledger.lock").unlink()
        if (child := os.fork()) == 0:  # a child connects anew, and nothing was charged yet
            try:
                charge(ledger)
                os._exit(1)
            except LedgerError:
                os._exit(0 if not path.exists() else 2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- records beside the name and beside the target ---------------------------------------------------------------------


@pytest.mark.parametrize("target", ["empty", "missing"])
@pytest.mark.parametrize("create", [False, True])
def test_a_link_in_place_of_the_ledger_is_not_a_fresh_budget(target, create, tmp_path):
    path, other = tmp_path / "a.ledger", tmp_path / "other"
    made(path)
    path.rename(tmp_path / "away")
    path.symlink_to(other)
    if target == "empty":
        other.touch()
    with pytest.raises(LedgerCorrupt, match="gone or empty"):
        SqliteLedger.open(path, BUDGET, create=create)
    assert not other.exists() or other.stat().st_size == 0


@pytest.mark.parametrize("create", [False, True])
def test_a_link_that_leads_elsewhere_now_is_not_a_fresh_budget(create, tmp_path):
    """The ledger was always behind a link, so its own record is elsewhere: there is one beside the link, too."""
    (tmp_path / "disk").mkdir()
    target, path = tmp_path / "disk" / "real", tmp_path / "a.ledger"
    made(target)
    path.symlink_to(target)
    with SqliteLedger.open(path, BUDGET) as ledger:
        assert ledger.spent() == 1
    path.unlink()
    path.symlink_to(tmp_path / "nothing")
    with pytest.raises(LedgerCorrupt, match="gone or empty"):
        SqliteLedger.open(path, BUDGET, create=create)
    made(tmp_path / "another", 3, "other")
    path.unlink()
    path.symlink_to(tmp_path / "another")
    with pytest.raises(LedgerCorrupt, match="older or other"):
        SqliteLedger.open(path, BUDGET, create=create)


def test_the_record_beside_the_target_is_looked_for_too(tmp_path):
    target, path = tmp_path / "real", tmp_path / "a.ledger"
    made(target)
    target.write_bytes(b"")
    path.symlink_to(target)
    with pytest.raises(LedgerCorrupt, match="gone or empty"):
        SqliteLedger.open(path, BUDGET, create=True)


def test_every_link_on_the_way_keeps_a_record(tmp_path):
    made(tmp_path / "real")
    (tmp_path / "second").symlink_to("real")
    (tmp_path / "first").symlink_to("second")
    SqliteLedger.open(tmp_path / "first", BUDGET).close()
    (tmp_path / "second").unlink()
    for name in ("first", "second"):
        with pytest.raises(LedgerCorrupt, match="gone or empty"):
            SqliteLedger.open(tmp_path / name, BUDGET, create=True)


@pytest.mark.parametrize("create", [False, True])
def test_a_record_without_its_ledger_is_refused(create, tmp_path):
    path = tmp_path / "a.ledger"
    made(path)
    path.unlink()
    assert ledger_exists(path), "so that whoever looks before asking is told, too"
    for opening in (lambda: SqliteLedger.open(path, BUDGET, create=create), lambda: existing_ledger(path)):
        with pytest.raises(LedgerCorrupt, match="gone or empty"):
            opening()
    path.touch()
    with pytest.raises(LedgerCorrupt, match="gone or empty"):
        SqliteLedger.open(path, BUDGET, create=create)


def test_a_ledger_that_moved_and_left_a_link_still_opens(tmp_path):
    (tmp_path / "disk").mkdir()
    path, target = tmp_path / "a.ledger", tmp_path / "disk" / "a.ledger"
    made(path)
    path.rename(target)
    path.symlink_to(target)
    with SqliteLedger.open(path, BUDGET) as ledger:
        charge(ledger, "later")
    with SqliteLedger.open(path, BUDGET) as ledger:
        assert ledger.spent() == 2


def test_a_link_in_a_folder_we_cannot_write_opens(tmp_path, monkeypatch):
    made(tmp_path / "real")
    (tmp_path / "a.ledger").symlink_to("real")
    real = os.open

    def refuse(name, *more, **named):
        if str(name).endswith("a.ledger.lock"):
            raise PermissionError(13, "no")
        return real(name, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    with SqliteLedger.open(tmp_path / "a.ledger", BUDGET) as ledger:
        assert ledger.spent() == 1


def test_links_in_a_circle_lead_nowhere(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(LedgerUnavailable):
        SqliteLedger.open(tmp_path / "a", BUDGET, create=True)


# -- relative places ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("oracle", [dd.Curator, dd.Local])
def test_a_relative_ledger_is_the_same_from_every_working_directory(oracle, tmp_path, monkeypatch):
    budget = BUDGET if oracle is dd.Curator else 1
    for name in ("data", "one", "two"):
        (tmp_path / name).mkdir()
    write_sample(tmp_path / "data" / "people.parquet", 500)
    (tmp_path / "two" / "linked.parquet").symlink_to(tmp_path / "data" / "people.parquet")
    lefts = []
    for folder, data in (
        ("one", "../data/people.parquet"),
        ("two", "../data/people.parquet"),
        ("two", "linked.parquet"),
    ):
        monkeypatch.chdir(tmp_path / folder)
        curator = oracle(dd.Table(data, SCHEMA), budget, "people.ledger", create=True)
        curator.ask("smoker", share=0.25)
        lefts.append(curator.left)
        curator.ledger.close()
    assert lefts == sorted(lefts, reverse=True)
    assert lefts[-1] < 0.3
    assert (tmp_path / "data" / "people.ledger").exists()
    assert not list(tmp_path.glob("[ot]*/*.ledger"))


def test_rows_without_a_file_need_a_ledger_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = dd.Table({"smoker": [True, False]}, SCHEMA)
    with pytest.raises(Unsupported, match="in full"):
        dd.Curator(table, BUDGET, "a.ledger", create=True)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("trace", ["a.ledger", "a.ledger.lock"])
def test_a_ledger_left_in_the_working_directory_is_not_forgotten(trace, tmp_path, monkeypatch):
    """Earlier versions took a relative place from there."""
    (tmp_path / "data").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path(trace).touch()
    with pytest.raises(LedgerUnavailable, match="working directory"):
        full_place("a.ledger", str(tmp_path / "data"))
    (tmp_path / "data" / "a.ledger").touch()
    assert full_place("a.ledger", str(tmp_path / "data")) == tmp_path / "data" / "a.ledger"


# -- whom it protects --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("oracle", [dd.Curator, dd.Local])
def test_an_older_ledger_that_holds_the_path_as_typed_still_opens(oracle, tmp_path):
    """Its text had links in it, and a Local deals its rows to blocks by that text."""
    budget = BUDGET if oracle is dd.Curator else 1
    (tmp_path / "disk").mkdir()
    write_sample(tmp_path / "disk" / "people.parquet", 500)
    link, place = tmp_path / "people.parquet", tmp_path / "a.ledger"
    link.symlink_to("disk/people.parquet")
    older = oracle(dd.Table(link, SCHEMA, population=str(link)), budget, place, create=True)
    older.ask("smoker", share=0.5)
    for data in (link, tmp_path / "disk" / "people.parquet"):
        newer = oracle(dd.Table(data, SCHEMA), budget, place)
        assert newer.left == older.left
        assert newer.ledger.genesis == older.ledger.genesis
        if oracle is dd.Local:
            assert (newer._blocks.of(0, 500) == older._blocks.of(0, 500)).all()
    table = dd.Table(link, SCHEMA)
    if oracle is dd.Curator:
        assert dd.Curator.sharing(table, older.ledger, analyst="b").left == older.left


def test_another_promise_is_not_taken_for_an_older_spelling(tmp_path):
    """The unit and the public columns are part of the promise, whatever the path is called."""
    write_sample(tmp_path / "people.parquet", 500)
    link = tmp_path / "link.parquet"
    link.symlink_to("people.parquet")
    whole = dd.Table(link, SCHEMA, population=str(link), neighbours="add-remove")
    dd.Curator(whole, BUDGET, tmp_path / "a.ledger", create=True)
    unit = dd.Unit("age", max_rows=2)
    with pytest.raises(Refused, match="lifetime"):
        dd.Curator(dd.Table(link, SCHEMA, neighbours="add-remove", unit=unit), BUDGET, tmp_path / "a.ledger")
    stated = dd.Table(link, SCHEMA, neighbours="add-remove", population="others")
    with pytest.raises(Refused, match="lifetime"):
        dd.Curator(stated, BUDGET, tmp_path / "a.ledger")


def test_without_another_spelling_the_refusal_stands(tmp_path):
    facts = {"atoms": 1, "neighbours": "replace"}
    open_ledger(tmp_path / "l", BUDGET, population="p", create=True, **facts).close()
    for same in (None, lambda _: False, lambda _: True):
        with pytest.raises(Refused):
            open_ledger(tmp_path / "l", Budget(epsilon=2), population="p", same=same, **facts)


# -- for its owner alone -----------------------------------------------------------------------------------------------


def modes(folder: Path) -> dict[str, int]:
    return {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()}


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_a_ledger_is_its_owners_alone_whatever_the_umask(umask, tmp_path):
    before = os.umask(umask)
    try:
        made(tmp_path / "a.ledger", entries=3)
    finally:
        os.umask(before)
    found = modes(tmp_path)
    assert set(found) == {"a.ledger", "a.ledger.lock", "a.ledger-journal"}
    assert not any(mode & 0o177 for mode in found.values()), found
    assert found["a.ledger"] == 0o600


def test_wider_rights_are_taken_away_when_it_is_opened(tmp_path):
    made(tmp_path / "a.ledger")
    for file in tmp_path.iterdir():
        file.chmod(0o666)
    SqliteLedger.open(tmp_path / "a.ledger", BUDGET).close()
    assert set(modes(tmp_path).values()) == {0o600}
