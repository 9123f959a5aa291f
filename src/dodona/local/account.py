"""What one person's reports have cost so far, kept in one place, so that it is spent once.

A sum in an object is no account: a forked process, a pickle and a text that is loaded twice would each spend the same
remainder. So an account has a place:

- **a file on the device** (``FileAccount``): a ledger of its own (``privacy/ledger/sqlite.py``) over one person. Every
  handle, fork and process charges the same file, one after the other, and a charge is on the disk before ``charge``
  returns. Opening never makes one. It states where it was made, inside its hash chain: a copy elsewhere is refused.
- **this process's memory** (``MemoryAccount``), for simulations: it ends with the process, and nothing that would make
  a second one of it is allowed (copy, pickle, fork).

A **permanent report** (``once``) is charged when it is made and kept with its charge: whoever asks for it again, by
whatever handle, fork or process, has the same bytes, which tell nothing that was not paid for. One whose process ended
between the charge and the keeping has not left; the next one is charged anew.

What a file cannot notice: that it and the record beside it (``.lock``) were both put back to an older copy, or carried
together to the same place on another machine.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from dodona.errors import LedgerUnavailable, Refused, Unsupported
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import too_much

if TYPE_CHECKING:
    from dodona.privacy.ledger import Ledger

Place = str | os.PathLike[str]
WHOSE = "this person's budget"
PERMANENT = "this device, for good"


class Account(Protocol):
    """What a client spends from."""

    @property
    def budget(self) -> Budget:
        """All that may ever be spent."""

    def left(self) -> int:
        """What may still be spent, in units of the budget."""

    def charge(self, units: int, what: str) -> None:
        """Take ``units`` off, for good, or raise ``BudgetSpent`` with nothing taken. ``what``: what is reported on."""

    def once(self, units: int, what: str, name: str, make: Callable[[], bytes]) -> bytes:
        """The report of this ``name``: charged and made the first time, the same bytes from then on."""


class MemoryAccount:
    """Of this process alone; gone with it."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._spent = 0
        self._permanent: dict[str, bytes] = {}
        self._turn = threading.Lock()
        self._forks = _Process.forks

    @property
    def budget(self) -> Budget:
        return self._budget

    def left(self) -> int:
        return self._budget.capacity - self._spent

    def charge(self, units: int, what: str) -> None:  # noqa: ARG002 - what is for accounts that keep a list
        with self._alone():
            self._take(units)

    def once(self, units: int, what: str, name: str, make: Callable[[], bytes]) -> bytes:  # noqa: ARG002 - as above
        with self._alone():
            if name not in self._permanent:
                self._take(units)
                self._permanent[name] = make()
            return self._permanent[name]

    def _alone(self) -> threading.Lock:
        if self._forks != _Process.forks:  # before the lock, which another thread may have held at the fork
            raise Unsupported(
                "a client's account in memory belongs to the process that made it, and this one was forked from it. "
                'Make the client here, or keep its account in a file: Client(total, account="me.account", create=True).'
            )
        return self._turn

    def _take(self, units: int) -> None:
        if units > self.left():
            raise too_much(self._budget, units, self.left(), WHOSE)
        self._spent += units

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise Unsupported(
            "a client's account in memory must not be copied, pickled or saved: each copy would spend the same "
            'remainder. Keep it in a file: Client(total, account="me.account", create=True).'
        )


class FileAccount:
    """In the file ``place``, for all processes of the device. Use ``make`` once, ``open`` from then on."""

    def __init__(self, place: Path, ledger: Ledger) -> None:
        if ledger.genesis.population != _population(place):
            ledger.close()
            raise Refused(
                f"an account must be one that Client made at this very place. {str(place)!r} holds another ledger, or "
                "a copy of an account that was made elsewhere: open it where it was made."
            )
        self.place = place
        self._ledger = ledger

    @staticmethod
    def make(place: Place, budget: Budget) -> FileAccount:
        """A new account; where there is one already, that one is not touched and this is refused."""
        from dodona.privacy.ledger.sqlite import SqliteLedger

        path, there = _look(place)
        if there:
            raise Refused(f"an account is made once, and {str(path)!r} exists. Open it: write it without create=True.")
        return FileAccount(path, SqliteLedger.open(path, budget, population=_population(path), create=True))

    @staticmethod
    def open(place: Place) -> FileAccount:
        """The account that was made there."""
        from dodona.privacy.ledger.places import existing_ledger

        path, there = _look(place)
        if not there:
            raise LedgerUnavailable(
                f"an account must exist to be opened, and there is none at {str(path)!r}. Make it, once in a life: "
                "Client(total, account=..., create=True)."
            )
        return FileAccount(path, existing_ledger(path))

    @property
    def budget(self) -> Budget:
        return self._ledger.genesis.budget

    def left(self) -> int:
        return self._ledger.left()

    def charge(self, units: int, what: str) -> None:
        # A fresh name for every report: a repeated one would find the earlier charge and pay for nothing new.
        self._ledger.charge(amount=units, analyst="this device", request_id=secrets.token_hex(16), what=what)

    def once(self, units: int, what: str, name: str, make: Callable[[], bytes]) -> bytes:
        for attempt in itertools.count(1):
            paid = self._ledger.charge(amount=units, analyst=PERMANENT, request_id=f"{name} {attempt}", what=what)
            if paid.answer is not None:
                return bytes.fromhex(paid.answer)
            if not paid.lost:  # one that was charged and never kept may be on its way: another is another charge
                break
        made = make()
        self._ledger.store_answer(paid.entry.seq, made.hex())
        return made


def _look(place: Place) -> tuple[Path, bool]:
    """The place without links, so that all its names share one lock, and whether something is there."""
    try:
        path = Path(place).resolve()
        return path, path.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, links in a circle
        raise LedgerUnavailable("an account must be at a place that a file can have.") from None


def _population(place: Path) -> str:
    return f"one person's reports, accounted for at {place}"


class _Process:
    """Counts the forks between the first process and this one: an account made before the last one is another's."""

    forks = 0

    @staticmethod
    def count() -> None:
        _Process.forks += 1


if hasattr(os, "register_at_fork"):  # pragma: no branch  where it is not, processes cannot fork
    os.register_at_fork(after_in_child=_Process.count)
