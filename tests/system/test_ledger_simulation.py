"""The ledger under seeded simulation: interrupted calls and faults, against a model (M11)."""

from __future__ import annotations

import random
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import BudgetSpent, LedgerUnavailable, Refused
from dodona.privacy import SqliteLedger
from tests.support.ledgers import units

RUNS = 50
"""Runs that share a ledger: each has an atom, a cap and an analyst of its own."""


class Counted:
    """The model: thirty lines of fractions."""

    def __init__(self, cap: Fraction) -> None:
        self.cap, self.spent = cap, Fraction(0)
        self.charges: dict[str, tuple[Fraction, str | None]] = {}

    def charge(self, name: str, amount: Fraction) -> str:
        if name in self.charges:
            return "another" if self.charges[name][0] != amount else self.charges[name][1] or "lost"
        if self.spent + amount > self.cap:
            return "refused"
        self.spent += amount
        self.charges[name] = (amount, None)
        return "charged"

    def answer(self, name: str, text: str) -> None:
        self.charges[name] = (self.charges[name][0], text)


def _simulated(ledger: SqliteLedger, cap: int, seed: int) -> int:
    """One run on an atom of its own: clients, lost answers, retries and faults before the commit; how many steps."""
    chance = random.Random(seed)
    model, session, atom = Counted(Fraction(cap)), ledger._session, (seed % RUNS,)
    open_charges: list[tuple[str, int]] = []
    steps = 3 + chance.randrange(5)
    for _ in range(steps):
        kind = chance.random()
        if kind < 0.15 and open_charges:
            name, seq = open_charges.pop(chance.randrange(len(open_charges)))
            ledger.store_answer(seq, f"to {name}")
            model.answer(name, f"to {name}")
            continue
        name, amount = str(chance.randrange(8)), 1 + chance.randrange(4)
        request = {"amount": amount, "analyst": f"run {seed}", "request_id": name, "what": "q", "scope": atom}
        if kind < 0.3:  # a fault before the commit: nothing was done
            session._commit = _interrupted  # type: ignore[method-assign]
            with suppress(Refused, KeyboardInterrupt):
                ledger.charge(**request)  # type: ignore[arg-type]
            del session._commit
            continue
        try:
            charge = ledger.charge(**request)  # type: ignore[arg-type]
            told = "charged" if not charge.repeated else charge.answer or "lost"
            if told == "charged":
                open_charges.append((name, charge.entry.seq))
        except BudgetSpent:
            told = "refused"
        except Refused:
            told = "another"
        assert told == model.charge(name, Fraction(amount))
    assert cap - ledger.left(atom) == model.spent <= cap
    return steps


def _simulations(first: int, last: int) -> int:
    steps = 0
    for start in range(first, last, RUNS):
        cap = 10 + start // RUNS % 3 * 7
        with SqliteLedger.open(None, units(cap), atoms=RUNS + 1) as ledger:
            steps += sum(_simulated(ledger, cap, seed) for seed in range(start, min(start + RUNS, last)))
            assert ledger.verify().spent <= cap
    print(f"M11: {last - first:,} runs, {steps:,} steps")
    return steps


def _interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("part", range(4))
def test_m11_ten_thousand_simulated_runs(part: int) -> None:
    """The pull-request column, in four parts of 2,500 for as many workers."""
    assert _simulations(part * 2_500, (part + 1) * 2_500) > 10_000


@pytest.mark.slow
def test_m11_a_million_simulated_runs() -> None:
    assert _simulations(10_000, 1_010_000) > 4 * 10**6


def test_an_unavailable_ledger_stays_so_until_opened_again(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(tmp_path / "l", units(50), create=True)
    session: Any = ledger._session

    def fails() -> None:
        raise OSError(28, "No space left on device")

    session._commit = fails
    for _ in range(3):
        with pytest.raises(LedgerUnavailable):
            ledger.charge(amount=1, analyst="a", request_id="r", what="q")
    assert SqliteLedger.open(tmp_path / "l", units(50), create=True).spent() == 0
