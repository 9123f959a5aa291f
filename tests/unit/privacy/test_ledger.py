"""The ledger in one process: contract, refusals, quotas, retries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import BadEffort, BudgetSpent, LedgerError, LedgerUnavailable, Refused
from dodona.privacy import UNITS, Budget, Charge, Receipt, SqliteLedger
from dodona.privacy import __all__ as public
from dodona.privacy.ledger import ANSWER, CHARGE, GRANT

BUDGET = Budget(epsilon=1)


def ask(
    ledger: SqliteLedger, amount: int, request: str, scope: tuple[int, ...] | None = None, who: str = "ann"
) -> Charge:
    return ledger.charge(amount=amount, analyst=who, request_id=request, what=f"question {request}", scope=scope)


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = tmp_path / "a.ledger" if request.param == "file" else None
    with SqliteLedger.open(path, BUDGET, atoms=8, create=True) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.ledger"


def test_public_names() -> None:
    names = "FREE UNITS Budget Charge Cost Entry Ledger PostgresLedger Receipt SqliteLedger Verified exact"
    assert public == sorted(names.split())


def test_a_charge(ledger: SqliteLedger) -> None:
    charge = ask(ledger, 5, "r1")
    assert (charge.entry.seq, charge.entry.kind, charge.entry.amount, charge.entry.total_after) == (1, CHARGE, 5, 5)
    assert charge.receipt == Receipt(1, charge.entry.hash, 5, "epsilon", "replace", UNITS - 5)
    assert (ledger.spent(), ledger.left(), ledger.head()) == (5, UNITS - 5, (1, charge.entry.hash))
    assert not charge.repeated
    assert not charge.lost
    assert ledger.entries() == [charge.entry]


def test_the_cap_is_exact_and_a_refusal_leaves_no_trace(ledger: SqliteLedger) -> None:
    ask(ledger, UNITS - 1, "r1")
    before = ledger.head()
    with pytest.raises(
        BudgetSpent, match=r"at most what is left of the budget\. This question costs .* epsilon"
    ) as info:
        ask(ledger, 2, "r2")
    assert (info.value.price, info.value.left, info.value.unit) == (2 / UNITS, 1 / UNITS, "epsilon")
    assert ledger.head() == before
    ask(ledger, 1, "r2")
    with pytest.raises(BudgetSpent, match="Nothing more can be asked"):
        ask(ledger, 1, "r3")
    ask(ledger, 0, "free")
    assert ledger.verify().spent == ledger.spent() == UNITS


def test_the_refusal_names_the_share_that_fits(ledger: SqliteLedger) -> None:
    ask(ledger, UNITS * 3 // 4, "r1")
    with pytest.raises(BudgetSpent, match=r"costs 0\.5 epsilon, and 0\.25 of 1 is left\. A share of at most 0\.25 "):
        ask(ledger, UNITS // 2, "r2")
    with pytest.raises(
        BudgetSpent, match=r"costs 0\.250000000000000\d\d epsilon|costs 0\.25000000000011\d* epsilon, and 0\.25 "
    ):
        ask(ledger, UNITS // 4 + 1, "r3")


def test_scopes_are_charged_in_parallel(ledger: SqliteLedger) -> None:
    ask(ledger, 10, "everyone")
    ask(ledger, 5, "one", (0, 1))
    ask(ledger, 7, "two", (2, 3, 3, 2))
    assert ledger.spent() == 17
    assert [ledger.left((atom,)) for atom in (0, 2, 4)] == [UNITS - 15, UNITS - 17, UNITS - 10]
    assert ledger.left() == UNITS - 17
    ask(ledger, UNITS - 10, "the untouched", (4, 5, 6, 7))
    with pytest.raises(BudgetSpent):
        ask(ledger, 1, "everyone again")
    ask(ledger, UNITS - 17, "the rest", (0, 1, 2, 3))
    assert ask(ledger, 0, "all atoms", tuple(range(8))).entry.scope is None
    assert ledger.verify().spent == UNITS


@pytest.mark.parametrize("scope", [(), (8,), (-1,), (True,), ("0",), (1.0,)])
def test_bad_scopes(ledger: SqliteLedger, scope: Any) -> None:
    with pytest.raises(Refused, match="from 0 to 7"):
        ask(ledger, 1, "r", scope)
    assert ledger.head()[0] == 0


def test_a_retry_is_neither_charged_nor_answered_anew(ledger: SqliteLedger) -> None:
    first = ask(ledger, 5, "r1")
    lost = ask(ledger, 5, "r1")
    assert lost.repeated
    assert lost.lost
    ledger.store_answer(first.entry.seq, '{"mean": "1/3"}')
    again = ask(ledger, 5, "r1")
    assert (again.repeated, again.lost, again.answer, again.entry) == (True, False, '{"mean": "1/3"}', first.entry)
    assert again.receipt == first.receipt
    assert ledger.spent() == 5
    assert ledger.answer(1) == '{"mean": "1/3"}'
    assert ledger.answer(2) is None


@pytest.mark.parametrize(
    "change",
    [{"amount": 6}, {"what": "other"}, {"detail": "{}"}, {"scope": (1,)}],
    ids=lambda change: next(iter(change)),
)
def test_a_request_id_names_one_question(ledger: SqliteLedger, change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"amount": 5, "analyst": "ann", "request_id": "r1", "what": "q"}
    ledger.charge(**fields)
    with pytest.raises(Refused, match="used for another"):
        ledger.charge(**{**fields, **change})
    assert ledger.spent() == 5


def test_request_ids_are_an_analysts_own(ledger: SqliteLedger) -> None:
    charge = ask(ledger, 5, "r1", who="ann")
    ledger.store_answer(charge.entry.seq, "for ann")
    assert ask(ledger, 5, "r1", who="bob").answer is None
    assert ledger.spent() == 10


def test_an_answer_is_written_once(ledger: SqliteLedger) -> None:
    ask(ledger, 5, "r1")
    ledger.store_answer(1, "a")
    head = ledger.head()
    ledger.store_answer(1, "a")
    assert ledger.head() == head
    for seq, text in ((1, "b"), (2, "a"), (3, "a")):
        with pytest.raises(LedgerError, match="stored once"):
            ledger.store_answer(seq, text)
    assert [entry.kind for entry in ledger.entries()] == [CHARGE, ANSWER]
    assert ledger.verify().entries == 2


def test_quotas_sit_inside_the_cap(ledger: SqliteLedger) -> None:
    ask(ledger, 4, "before")
    assert ledger.grant("ann", 10).kind == GRANT
    ask(ledger, 6, "r1")
    with pytest.raises(BudgetSpent, match="the analyst's quota"):
        ask(ledger, 1, "r2")
    ask(ledger, 100, "r2", who="bob")
    ledger.grant("ann", 11)
    ask(ledger, 1, "r2")
    ledger.grant("ann", 0)
    with pytest.raises(BudgetSpent, match="the analyst's quota"):
        ask(ledger, 1, "r3")
    ask(ledger, 0, "free")
    ledger.grant("ann", UNITS * 5)
    with pytest.raises(BudgetSpent, match="of the budget"):
        ask(ledger, UNITS, "r4")
    assert ledger.verify().spent == 111


def test_pages(ledger: SqliteLedger) -> None:
    for number in range(25):
        ask(ledger, number, f"r{number}")
    assert [entry.seq for entry in ledger.entries(1, 10)] == list(range(1, 11))
    assert [entry.seq for entry in ledger.entries(21, 10)] == list(range(21, 26))
    assert ledger.entries(26) == ledger.entries(1, 0) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"amount": -1},
        {"amount": True},
        {"amount": 1.0},
        {"amount": 2**63},
        {"analyst": ""},
        {"analyst": "x" * 257},
        {"request_id": ""},
        {"what": "\ud800"},
        {"what": 3},
        {"detail": b""},
    ],
    ids=str,
)
def test_bad_charges(ledger: SqliteLedger, fields: dict[str, Any]) -> None:
    good: dict[str, Any] = {"amount": 1, "analyst": "ann", "request_id": "r", "what": "q"}
    with pytest.raises(Refused):
        ledger.charge(**{**good, **fields})
    assert ledger.head()[0] == 0
    ledger.charge(**good)


def test_v59_text_is_text(ledger: SqliteLedger) -> None:
    label = "'); DELETE FROM entries;-- \x00 \N{SNOWMAN} \" \\"
    charge = ledger.charge(amount=1, analyst=label, request_id=label, what=label, detail=label)
    ledger.store_answer(1, label)
    assert ledger.entries()[0] == charge.entry
    assert charge.entry.what == label
    assert ledger.answer(1) == label
    assert ledger.verify().spent == 1


def test_time_is_utc_whatever_the_clock_says() -> None:
    odd = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5)))
    with SqliteLedger.open(None, BUDGET, clock=lambda: odd) as ledger:
        assert ask(ledger, 1, "r").entry.time == "2024-01-01T22:04:05+00:00"
        assert odd.astimezone(UTC).isoformat().startswith("2024-01-01T22")


def test_reopening_continues(path: Path) -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        first = ask(ledger, 5, "r1")
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        assert ask(ledger, 6, "r2").entry.previous == first.entry.hash
        assert ledger.spent() == 11


@pytest.mark.parametrize(
    "fields",
    [
        {"budget": Budget(epsilon=2)},
        {"budget": Budget(epsilon=1, delta=1e-6)},
        {"atoms": 2},
        {"neighbours": "add-remove"},
        {"population": "others"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_ledger_is_for_the_lifetime_of_its_data(path: Path, fields: dict[str, Any]) -> None:
    SqliteLedger.open(path, BUDGET, create=True).close()
    with pytest.raises(Refused, match="for the lifetime"):
        SqliteLedger.open(path, **{"budget": BUDGET, **fields}, create=True)
    SqliteLedger.open(path, BUDGET, create=True).close()


@pytest.mark.parametrize(
    "fields", [{"atoms": 0}, {"atoms": 65_537}, {"atoms": True}, {"neighbours": "friends"}], ids=str
)
def test_bad_ledgers(path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(BadEffort):
        SqliteLedger.open(path, BUDGET, **fields, create=True)
    assert not path.exists()


def test_a_closed_ledger_stays_closed(ledger: SqliteLedger) -> None:
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        ledger.spent()


def test_the_most_atoms(tmp_path: Path) -> None:
    with SqliteLedger.open(tmp_path / "wide", BUDGET, atoms=65_536, create=True) as ledger:
        ask(ledger, 1, "even", tuple(range(0, 65_536, 2)))
        ask(ledger, 1, "odd", tuple(range(1, 65_536, 2)))
        assert ask(ledger, 1, "all", tuple(range(65_536))).entry.scope is None
        assert ledger.verify().spent == 2
