"""HOSTILE V48-V54: a ledger through kills, failed syncs, full disks, locks, forks, restored copies and jumping clocks.

Each runs on both stores of a ledger, SQLite and PostgreSQL, unless it is about one store's own machinery: V50, V51 and
V53 are about SQLite's journal. What stands for them in PostgreSQL is in a second V51 and in
``tests/system/test_postgres_ledger_crash.py``. The long runs of the same cases are in
``tests/system/test_ledger_crash.py`` and ``test_ledger_faults.py``.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.errors import AnswerLost, BadTable, BudgetSpent, LedgerCorrupt, LedgerError, LedgerUnavailable, Refused
from dodona.mechanisms import SecureBits
from dodona.privacy import UNITS, Budget, SqliteLedger
from dodona.privacy.ledger import Ledger
from dodona.privacy.ledger.postgres import PostgresLedger
from dodona.privacy.ledger.postgres_store import is_address
from tests.support.ledgers import SCHEMA, plain, scenario
from tests.support.postgres import PostgresServer

ONE = Budget(epsilon=1)


POINTS = ("before charge", "in commit", "after charge", "before noise", "in totals", "before store", "after store")


@pytest.mark.parametrize("point", POINTS)
def test_v48_killed_between_question_and_answer(point: str, kept: str) -> None:
    dd.Curator(plain(), ONE, kept, create=True).ledger.close()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            curator = dd.Curator(plain(), ONE, kept)
            _die_at(point, curator)
            os.write(writer, curator.ask("x", epsilon="1/4", request_id="r").to_json().encode())
        finally:
            os._exit(9)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert said == b"", "an answer left a process that had not stored it"
    curator = dd.Curator(plain(), ONE, kept)
    assert curator.ledger.verify().spent in (0, UNITS // 4)
    spent = POINTS.index(point) >= 2
    assert curator.left == (0.75 if spent else 1.0)
    if point == "after store":
        curator.ask("x", epsilon="1/4", request_id="r")
    elif spent:
        with pytest.raises(AnswerLost):
            curator.ask("x", epsilon="1/4", request_id="r")
    assert curator.left == (0.75 if spent else 1.0)


def _die_at(point: str, curator: dd.Curator) -> None:
    def die(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    ledger: Any = curator.ledger
    charge, store = ledger.charge, ledger.store_answer
    places: dict[str, Callable[[], None]] = {
        "before charge": lambda: setattr(ledger, "charge", die),
        "in commit": lambda: setattr(ledger._session, "_commit", die),
        "after charge": lambda: setattr(ledger, "charge", lambda **fields: (charge(**fields), die())),
        "before noise": lambda: setattr(curator, "_bits", type("Dead", (), {"words": die})()),
        "in totals": lambda: setattr(curator._table.engine, "totals", die),
        "before store": lambda: setattr(ledger, "store_answer", die),
        "after store": lambda: setattr(ledger, "store_answer", lambda *fields: (store(*fields), die())),
    }
    places[point]()


def test_v49_kills_at_random_lose_nothing(kept: str) -> None:
    found = scenario("storm", kept, 40, 4, 10**6)
    assert found["kills"] == 40
    assert found["lost"] == found["lost_answers"] == 0
    assert found["acked"] > 10  # the storm left time to work
    assert found["acked"] <= found["spent"] == found["charged"] <= found["acked"] + 40  # one in flight at each kill
    assert found["acked"] + found["answers"] <= found["entries"] <= found["acked"] + found["answers"] + 40


def test_v50_no_answer_after_a_sync_that_failed(tmp_path: Path, shim: Path) -> None:
    found = scenario("faults", tmp_path, 0, 1, preload=shim)
    assert found["problems"] == []
    # Making a ledger, two charges and two answers: five transactions of at least four syncs each.
    assert found["cases"] > 20
    assert found["struck"] >= found["cases"] - 6  # the last k strikes nothing
    assert found["entries"] > found["cases"]


@pytest.mark.parametrize("sync", ["NORMAL", "FULL"])
def test_v51_a_wal_ledger_is_refused(sync: str, tmp_path: Path) -> None:
    path = tmp_path / "l"
    SqliteLedger.open(path, Budget(epsilon=1), create=True).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {sync}")
    db.close()
    with pytest.raises(LedgerCorrupt, match="rollback journal"):
        SqliteLedger.open(path, Budget(epsilon=1), create=True)
    with pytest.raises(LedgerCorrupt):
        dd.Curator(plain(), Budget(epsilon=1), path)


def test_v51_a_postgresql_that_may_lose_a_commit_is_refused(postgres: PostgresServer) -> None:
    """What WAL with NORMAL is to SQLite: a commit acknowledged before it is on the disk."""
    kept = f"{postgres.url()}#{uuid.uuid4().hex}"
    curator = dd.Curator(plain(), ONE, kept, create=True)
    curator.ask("x", epsilon="1/4")
    session = curator.ledger._session  # type: ignore[attr-defined]
    session._connection.execute("SET synchronous_commit = off")
    with pytest.raises(LedgerCorrupt, match="synchronous_commit"):
        curator.ask("x", epsilon="1/4")
    assert dd.Curator(plain(), ONE, kept).left == 0.75


def test_v52_a_full_disk_gives_no_answer(tmp_path: Path) -> None:
    found = scenario("full", tmp_path / "l")
    assert found["code"] == 0
    assert found["in_order"], "once full, never another answer"
    assert 5 < found["acked"] < 100
    assert found["entries"] - found["acked"] in (0, 1)
    assert found["lost"] == 0


def test_v52_a_file_system_that_cannot_be_written_gives_no_answer(open_folder: Path) -> None:
    assert scenario("readonly", open_folder / "l") == {"said": ["unavailable", "unavailable"], "code": 0}


@contextmanager
def _held_by_another(kept: str) -> Iterator[Ledger]:
    """A ledger that waits a fifth of a second, and someone else who holds what it waits for."""
    kind = PostgresLedger if is_address(kept) else SqliteLedger
    with kind.open(kept, ONE, population="t", timeout=0.2, create=True) as ledger:
        if is_address(kept):
            import psycopg

            address, _, name = kept.partition("#")
            with psycopg.connect(address) as other:
                other.execute(f'SELECT * FROM "{name}".head FOR UPDATE')
                yield ledger
        else:
            with Path(kept + ".lock").open("rb") as other:
                fcntl.flock(other, fcntl.LOCK_EX)
                yield ledger


def test_v52_a_lock_held_by_others_gives_no_answer(kept: str) -> None:
    texts = set()
    with _held_by_another(kept) as ledger:
        curator = dd.Curator.sharing(plain(), ledger, analyst="a")
        for question in ("x", "ill"):
            with pytest.raises(LedgerUnavailable) as refusal:
                curator.ask(question, epsilon="1/4")
            texts.add(str(refusal.value))
    assert len(texts) == 1
    after = dd.Curator(plain(), ONE, kept)
    assert after.left == 1
    after.ask("x", epsilon="1/4")
    assert after.left == 0.75


def test_v53_wal_is_never_used_whatever_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite before 3.51.3 may corrupt a WAL file under many writers; ours refuses WAL of every version."""
    for version in ("3.40.1", "3.51.2", "3.51.3"):
        monkeypatch.setattr(sqlite3, "sqlite_version", version)
        path = tmp_path / version
        SqliteLedger.open(path, Budget(epsilon=1), create=True).close()
        db = sqlite3.connect(path)
        assert db.execute("PRAGMA journal_mode").fetchone()[0] in ("delete", "persist")
        db.execute("PRAGMA journal_mode = WAL")
        db.close()
        with pytest.raises(LedgerError):
            SqliteLedger.open(path, Budget(epsilon=1), create=True)


def test_v54_forked_workers_share_neither_connections_nor_noise(kept: str) -> None:
    """4 x 10,000 draws of workers forked after the ledger and the sampler were used: no 64-bit value twice."""
    curator = dd.Curator(plain(), ONE, kept, create=True)
    curator.ask("x", epsilon="1/100")
    source = curator._bits
    assert isinstance(source, SecureBits)
    source.words(5000)
    pipes, children = [], []
    for number in range(4):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                single = b"".join(source.words(1).tobytes() for _ in range(1000))
                answer = curator.ask("x", epsilon="1/100", request_id=f"child {number}")
                with os.fdopen(writer, "wb") as sink:
                    sink.write(single + source.words(9000).tobytes() + np.float64(answer.total).tobytes())
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writer)
        pipes.append(os.fdopen(reader, "rb"))
        children.append(child)
    said = []
    for pipe in pipes:
        with pipe:
            said.append(pipe.read())
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    words = [text[i : i + 8] for text in said for i in range(0, 80_000, 8)]
    assert len(words) == len(set(words)) == 40_000
    assert len({text[80_000:] for text in said}) == 4, "forked workers release the same noise"
    assert curator.ledger.verify().spent == curator.ledger.spent() == 5 * UNITS // 100


# -- more of the kind: restored ledgers, swapped data, clocks ----------------------------------------------------------


def test_a_restored_old_ledger_is_refused_and_receipts_find_two_restored_files(tmp_path: Path) -> None:
    path = tmp_path / "l"
    curator = dd.Curator(plain(), Budget(epsilon=1), path, create=True)
    curator.ask("x", epsilon="1/4")
    curator.ledger.close()
    for name in ("l", "l.lock"):
        shutil.copy(tmp_path / name, tmp_path / f"{name}.old")
    curator = dd.Curator(plain(), Budget(epsilon=1), path)
    curator.ask("x", epsilon="1/4")
    receipt = curator.ledger.charge(amount=1, analyst="a", request_id="kept", what="q").receipt
    curator.ledger.close()
    newest = path.read_bytes()
    shutil.copy(tmp_path / "l.old", path)
    with pytest.raises(LedgerCorrupt, match="older"):
        dd.Curator(plain(), Budget(epsilon=1), path)
    shutil.copy(tmp_path / "l.lock.old", tmp_path / "l.lock")  # both files: only a receipt can tell
    restored = dd.Curator(plain(), Budget(epsilon=1), path)
    with pytest.raises(LedgerCorrupt, match="receipt"):
        restored.ledger.verify(receipt)
    assert newest != path.read_bytes()


def test_the_ledger_does_not_tell_how_long_the_rows_took(kept: str) -> None:
    """Found by attack: the entry of an answer was stamped when it was stored, to the microsecond, and anyone who may
    read the ledger could subtract the time of the charge."""
    from datetime import UTC, datetime, timedelta

    moments = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=7.654321 * n) for n in range(9))
    kind = PostgresLedger if is_address(kept) else SqliteLedger
    with kind.open(kept, ONE, population="t", clock=lambda: next(moments), create=True) as ledger:
        curator = dd.Curator.sharing(plain(), ledger, analyst="a")
        for _ in range(2):
            curator.ask("x", epsilon="1/4")
        times = [(entry.kind, entry.time) for entry in ledger.entries()]
        ledger.verify()
    first, second = "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:07+00:00"
    assert times == [("charge", first), ("answer", first), ("charge", second), ("answer", second)]


@pytest.mark.parametrize("later", ["another column", "other values", "another order"])
def test_a_ledger_charged_by_other_public_groups_is_refused(later: str, kept: str) -> None:
    """Found by attack: groups pay by number, so with `sex` made private and `smoker` public the women had paid, and a
    question about the non-smokers, some of them the same people, was answered with a second whole budget."""
    rows = {name: np.arange(12) % 3 == place for place, name in enumerate(("sex", "smoker", "ill"))}
    rows["town"] = np.array(["a", "b"] * 6, dtype=object)

    def curator(public: str, towns: tuple[str, ...] = ("a", "b")) -> dd.Curator:
        flags = {name: dd.Flag(missing=False, public=name == public) for name in ("sex", "smoker", "ill")}
        schema = dd.Schema({**flags, "town": dd.Category(*towns, missing="a", public=public == "town")})
        return dd.Curator(dd.Table(rows, schema, name="t", population="people"), ONE, kept, create=True)

    other = {
        "another column": lambda: curator("smoker"),
        "other values": lambda: curator("town", ("a", "c")),
        "another order": lambda: curator("town", ("b", "a")),
    }[later]
    public, group = ("sex", "sex") if later == "another column" else ("town", "town = 'a'")
    curator(public).sql(f"SELECT SUM(ill) FROM t WHERE {group}", share=1)
    with pytest.raises(Refused, match="lifetime of its data"):
        other()
    assert curator(public).ledger.spent() == UNITS


def test_a_swapped_data_file_is_refused_by_an_open_table_and_a_copy_is_another_population(tmp_path: Path) -> None:
    """The population is the file (docs/privacy.md): a symlink is the same one, and a copy another that is refused.

    What stands behind one path is the operator's to keep. A file swapped under an open table for one of another length
    is refused, nothing is charged, until the table is opened anew.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, link = tmp_path / "survey.parquet", tmp_path / "alias.parquet"
    pq.write_table(pa.table({"x": [1.0] * 10, "ill": [True] * 10}), path)
    link.symlink_to(path)
    curator = dd.Curator(dd.Table(path, SCHEMA), Budget(epsilon=1), tmp_path / "l", create=True)
    curator.ask("x", epsilon="1/4")
    assert dd.Curator(dd.Table(link, SCHEMA), Budget(epsilon=1), tmp_path / "l").left == 0.75
    other = tmp_path / "other.parquet"
    shutil.copy(path, other)
    with pytest.raises(Refused, match="lifetime of its data"):
        dd.Curator(dd.Table(other, SCHEMA), Budget(epsilon=1), tmp_path / "l")
    pq.write_table(pa.table({"x": [9.0] * 7, "ill": [True] * 7}), other)
    os.replace(other, path)
    with pytest.raises(BadTable, match="open the table anew"):
        curator.ask("x", epsilon="1/4")
    assert curator.left == 0.75


def test_clocks_that_jump_decide_nothing(kept: str) -> None:
    from datetime import UTC, datetime, timedelta

    chance = random.Random(4)
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        return start + timedelta(days=chance.uniform(-300_000, 300_000))

    kind = PostgresLedger if is_address(kept) else SqliteLedger
    with kind.open(kept, Budget(epsilon=Fraction(30, UNITS)), clock=clock, create=True) as ledger:
        for number in range(30):
            ledger.charge(amount=1, analyst="a", request_id=str(number), what="q")
        with pytest.raises(BudgetSpent):
            ledger.charge(amount=1, analyst="a", request_id="more", what="q")
        assert ledger.verify().spent == 30
