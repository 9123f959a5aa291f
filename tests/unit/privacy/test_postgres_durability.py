"""A ledger in PostgreSQL is refused wherever a commit could be lost or changed, in every transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from dodona.errors import LedgerCorrupt
from dodona.privacy import Budget
from dodona.privacy.ledger.postgres import PostgresLedger
from tests.support.postgres import PostgresServer

BUDGET = Budget(epsilon=1)


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return f"{postgres.url()}#l{uuid.uuid4().hex[:12]}"


@pytest.fixture
def ledger(url: str) -> Iterator[PostgresLedger]:
    with PostgresLedger.open(url, BUDGET, atoms=8, create=True) as opened:
        opened.charge(amount=1, analyst="a", request_id="first", what="q")
        yield opened


def altered(postgres: PostgresServer, url: str, statement: str) -> None:
    with postgres.connect() as db:
        db.execute(f'SET search_path = "{url.partition("#")[2]}"')
        db.execute(statement)


FUNCTION = "CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
ALTERATIONS = {
    "an answer is lost with the server's memory": "ALTER TABLE answers SET UNLOGGED",
    "sums are lost with the server's memory": "ALTER TABLE sums SET UNLOGGED",
    "a charge goes nowhere": "CREATE RULE nowhere AS ON INSERT TO entries DO INSTEAD NOTHING",
    "sums stay as they were": "CREATE RULE nowhere AS ON UPDATE TO sums DO INSTEAD NOTHING",
    "another trigger": FUNCTION + "CREATE TRIGGER t BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION other()",
    "another trigger on the head": FUNCTION
    + "CREATE TRIGGER t BEFORE UPDATE ON head FOR EACH ROW EXECUTE FUNCTION other()",
    "a trigger is gone": "DROP TRIGGER keep_rows ON entries",
    "a trigger sleeps": "ALTER TABLE entries DISABLE TRIGGER keep_rows",
    "a trigger wakes for replicas alone": "ALTER TABLE entries ENABLE REPLICA TRIGGER keep_rows",
    "a trigger does nothing": "CREATE OR REPLACE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RETURN NULL; END $$",
    "a trigger with a condition": "DROP TRIGGER keep_rows ON answers; CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE "
    "ON answers FOR EACH ROW WHEN (false) EXECUTE FUNCTION keep()",
    "row security": "ALTER TABLE entries ENABLE ROW LEVEL SECURITY",
    "rows of another table": "CREATE TABLE more() INHERITS (sums)",
    "another storage": "CREATE ACCESS METHOD {name} TYPE TABLE HANDLER heap_tableam_handler; "
    "ALTER TABLE sums SET ACCESS METHOD {name}",
    "a view": "ALTER TABLE sums RENAME TO kept; CREATE VIEW sums AS SELECT * FROM kept",
}


@pytest.mark.parametrize("statement", ALTERATIONS.values(), ids=ALTERATIONS.keys())
def test_tables_altered_under_an_open_ledger_are_refused_at_the_next_charge(
    ledger: PostgresLedger, url: str, postgres: PostgresServer, statement: str
) -> None:
    altered(postgres, url, statement.replace("{name}", url.partition("#")[2]))
    with pytest.raises(LedgerCorrupt, match="as Dodona made them"):
        ledger.charge(amount=1, analyst="a", request_id="second", what="q")
    with pytest.raises(LedgerCorrupt):
        PostgresLedger.open(url, BUDGET, atoms=8, create=True)


def test_tables_altered_in_the_middle_of_a_charge_are_refused_before_its_commit(
    ledger: PostgresLedger, url: str, postgres: PostgresServer
) -> None:
    session: Any = ledger._session
    begin = session._begin

    def begin_and_alter() -> Any:
        db = begin()
        altered(postgres, url, ALTERATIONS["another trigger"].replace("RETURN NULL", "NEW.amount = 0; RETURN NEW"))
        return db

    session._begin = begin_and_alter
    with pytest.raises(LedgerCorrupt, match="as Dodona made them"):
        ledger.charge(amount=1, analyst="a", request_id="second", what="q")
    with postgres.connect() as db:
        assert db.execute(f'SELECT count(*) FROM "{url.partition("#")[2]}".entries').fetchone() == (1,)


def test_a_function_made_in_the_ledgers_schema_does_not_answer_for_the_servers_own(
    ledger: PostgresLedger, url: str, postgres: PostgresServer
) -> None:
    lie = "CREATE FUNCTION current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT 'origin' $$"
    altered(postgres, url, lie)
    session: Any = ledger._session
    session._connection.execute("SET session_replication_role = replica")
    with pytest.raises(LedgerCorrupt):
        ledger.charge(amount=1, analyst="a", request_id="second", what="q")


def test_a_ledger_whose_entries_are_not_logged_is_refused(
    ledger: PostgresLedger, url: str, postgres: PostgresServer
) -> None:
    altered(postgres, url, "ALTER TABLE answers SET UNLOGGED; ALTER TABLE entries SET UNLOGGED")
    with pytest.raises(LedgerCorrupt, match="as Dodona made them"):
        ledger.spent()


def test_a_session_in_which_no_trigger_fires_is_refused(ledger: PostgresLedger) -> None:
    session: Any = ledger._session
    session._connection.execute("SET session_replication_role = replica")
    with pytest.raises(LedgerCorrupt, match="as Dodona made them"):
        ledger.charge(amount=1, analyst="a", request_id="second", what="q")


def test_full_page_writes_are_demanded_in_every_transaction(
    ledger: PostgresLedger, url: str, postgres: PostgresServer
) -> None:
    """Off, a page that a crash tears in the middle of a write is not mended: entries are lost with it."""
    with postgres.connect() as db:
        try:
            db.execute("ALTER SYSTEM SET full_page_writes = off")
            db.execute("SELECT pg_reload_conf()")
            while db.execute("SHOW full_page_writes").fetchone() != ("off",):
                pass
            with pytest.raises(LedgerCorrupt, match="full_page_writes = on"):
                _until_seen(ledger)
            with pytest.raises(LedgerCorrupt, match="full_page_writes = on"):
                PostgresLedger.open(url, BUDGET, atoms=8, create=True)
        finally:
            db.execute("ALTER SYSTEM RESET full_page_writes")
            db.execute("SELECT pg_reload_conf()")


def _until_seen(ledger: PostgresLedger) -> None:
    """Each session hears of a reload between two statements; a thousand are more than enough."""
    for number in range(1000):
        ledger.charge(amount=0, analyst="a", request_id=str(number), what="q")


def test_a_role_that_may_only_add_can_use_a_ledger(url: str, postgres: PostgresServer, ledger: PostgresLedger) -> None:
    """The looks at the catalogue need no rights of their own."""
    name = url.partition("#")[2]
    with postgres.connect() as db:
        db.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA {name} TO {name}")
        db.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {name} TO {name}")
    with PostgresLedger.open(f"{postgres.url(user=name, password='x')}#{name}", BUDGET, atoms=8, create=True) as other:
        other.charge(amount=1, analyst="a", request_id="second", what="q")
    assert ledger.spent() == 2
