"""The ledger: what was asked, by whom, what it cost; the values in it and the contract every store keeps.

Rules (HOSTILE R4-R7), whatever the store:

- check and charge are one atomic step, durable before ``charge`` returns; a refused charge leaves no trace;
- an unknown outcome counts as spent, and nothing is ever refunded;
- entries are only added; each carries the hash of the one before, so a change anywhere breaks every later hash;
- the cap is one for the whole population; an analyst's quota sits inside it.

Public columns split the population into ``atoms`` 0..m-1. A question restricted to some of them reads no row of the
others, so it costs them nothing: questions on disjoint groups are charged in parallel (SuLQ 3.1.2). A charge's scope is
a sorted tuple of atoms, or None: paid by all. What is spent is what the worst-hit atom has paid: ``spent = common +
top`` with ``common`` the sum of charges on everyone and ``top`` the largest sum of scoped charges on one atom. Each
entry carries both, and a digest of every other sum (``sums``): what the next charge builds on is itself inside the hash
chain.

Besides ``MAIN``, the budget's own account, an entry may pay into further ones. ``PURE`` counts what was asked of a
pocket (``whole``). ``KEYS`` counts the delta of keys that nobody listed (``Budget.keys``): a charge of both is one
entry, and neither is paid where the other does not fit. A later account is a new name, not a new format.

Entries written before there were such sums are of format 1: they have no ``state``. They still verify; once an entry of
format 2 stands in a chain, all after it must be.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Protocol

from dodona.errors import BudgetSpent, Refused
from dodona.privacy.budget import KEY_UNITS, Budget
from dodona.privacy.numbers import show

MOST_ATOMS = 65_536


def normal_scope(scope: Iterable[int] | None, atoms: int) -> tuple[int, ...] | None:
    """The one form of a scope: sorted, without repeats, and None when it names every atom."""
    if scope is None:
        return None
    named = tuple(scope)
    if not named or any(isinstance(a, bool) or not isinstance(a, int) or not 0 <= a < atoms for a in named):
        raise Refused(
            f"A scope must name at least one atom, each a whole number from 0 to {atoms - 1}. This one does not."
        )
    distinct = tuple(sorted(set(named)))
    return None if len(distinct) == atoms else distinct


def scope_runs(scope: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring atoms, first and last inclusive: (0, 1, 2, 7) gives (0, 2), (7, 7)."""
    first: int | None = None
    last = -1
    for atom in scope:
        if first is None or atom != last + 1:
            if first is not None:
                yield first, last
            first = atom
        last = atom
    if first is not None:
        yield first, last


def write_scope(scope: tuple[int, ...] | None) -> str | None:
    """A scope as short text, the same text for the same scope: "0-2,7"."""
    return None if scope is None else ",".join(f"{a}-{b}" if a < b else str(a) for a, b in scope_runs(scope))


def read_scope(text: str | None) -> tuple[int, ...] | None:
    """The inverse of ``write_scope``. Raises ValueError on anything it cannot have made."""
    if text is None:
        return None
    atoms: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high >= MOST_ATOMS:
            raise ValueError("a scope names an atom that cannot exist")
        atoms.extend(range(low, high + 1))
    scope = tuple(atoms)
    if write_scope(scope) != text:
        raise ValueError("a scope is not in its one form")
    return scope


CHARGE, GRANT, ANSWER, SCHEMA, FORMAT = "charge", "grant", "answer", "schema", "format"
MAIN, PURE, KEYS = "main", "pure", "keys"
Further = tuple[tuple[str, int, int], ...]
"""(account, amount, total after) for each account but the main one."""
UNLIMITED = 2**63 - 1
"""The quota of an analyst who was granted none: the largest sum a store can hold."""


@dataclass(frozen=True)
class Entry:
    """One link of the chain. ``kind`` says what ``detail`` holds: "charge" (whatever the asker states), "grant" (the
    units, or "keys" and units of delta), "answer" ("seq sha256"), "schema" (the digest of the one before), "format"
    ("2").

    ``number``: of a charge, how many the analyst has with it. An analyst is shown this and never ``seq``, which counts
    what others do. ``further``: what it pays into other accounts than the main one. ``schema``: the digest of what a
    charge's columns meant. ``state``: the digest of all sums after this entry. ``salt``: so that nobody can try out
    what stood before an entry whose hash they know.
    """

    seq: int
    kind: str
    time: str
    analyst: str
    request_id: str | None
    what: str
    detail: str
    amount: int
    scope: tuple[int, ...] | None
    common_after: int
    total_after: int
    previous: str
    hash: str = ""
    number: int = 0
    further: Further = ()
    schema: str = ""
    state: str = ""
    salt: str = ""

    @property
    def format(self) -> int:
        """1 for an entry without sums, else 2."""
        return 2 if self.state else 1

    def digest(self) -> str:
        """SHA-256 over every field but ``hash``. JSON of lists of texts, integers and null is canonical: one-to-one."""
        question = [self.analyst, self.request_id, self.what, self.detail, self.amount, write_scope(self.scope)]
        totals = [self.common_after, self.total_after, self.previous]
        fields: list[object] = [self.seq, self.kind, self.time, *question, *totals]
        if self.state:
            fields += [self.number, self.further, self.schema, self.state, self.salt]
        said = f"dodona entry {self.format}\n{json.dumps(fields)}"
        return hashlib.sha256(said.encode("ascii")).hexdigest()

    def sealed(self, state: str) -> Entry:
        """This entry with ``state``, a salt and its hash filled in."""
        made = Entry(**{**vars(self), "state": state, "salt": secrets.token_hex(8)})
        return Entry(**{**vars(made), "hash": made.digest()})  # several times faster than dataclasses.replace

    def paid(self, account: str) -> tuple[int, int] | None:
        """Amount and total after in a further ``account``; None where the entry has nothing to do with it."""
        return next(((amount, after) for name, amount, after in self.further if name == account), None)


@dataclass(frozen=True)
class Question:
    """What is to be charged. ``analyst`` and ``request_id`` together name it; the rest says what it is. ``keys``: delta
    for open keys beside ``amount``, in its own units.
    """

    amount: int
    analyst: str
    request_id: str
    what: str
    detail: str = ""
    scope: tuple[int, ...] | None = None
    account: str = MAIN
    schema: str = ""
    keys: int = 0


@dataclass(frozen=True)
class Receipt:
    """What the asker keeps. ``verify(receipt=...)`` proves it is in the chain, also after a restore of old files.

    ``seq`` counts the analyst's own charges and tells nothing of other analysts. ``keys`` and ``keys_left``: the same
    of the delta for open keys, in its own units.
    """

    seq: int
    hash: str
    amount: int
    unit: str
    neighbours: str
    left: int
    keys: int = 0
    keys_left: int = 0

    @property
    def place(self) -> tuple[int, str, float, float]:
        """Number and hash, and what keys took of delta and left, for a bill."""
        return self.seq, self.hash, float(Fraction(self.keys, KEY_UNITS)), float(Fraction(self.keys_left, KEY_UNITS))

    def as_dict(self) -> dict[str, str | int]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Charge:
    """The outcome of ``charge``. ``repeated``: the request id was charged before; then ``answer`` is the stored one, if
    any.
    """

    entry: Entry
    receipt: Receipt
    repeated: bool = False
    answer: str | None = None

    @property
    def lost(self) -> bool:
        """Charged before, and its answer was never stored: the outcome is unknown, so it counts as spent (R4)."""
        return self.repeated and self.answer is None


@dataclass(frozen=True)
class Verified:
    """A full replay that found nothing wrong."""

    entries: int
    spent: int
    head: str


@dataclass(frozen=True)
class Genesis:
    """What a ledger is about, fixed for the lifetime of the data; its hash is the chain's first ``previous``."""

    budget: Budget
    atoms: int
    neighbours: str
    population: str

    def statement(self) -> str:
        """The canonical text that is stored and hashed."""
        fields = {"format": 1, "budget": self.budget.as_dict(), "capacity": self.budget.capacity, "atoms": self.atoms}
        if self.budget.keys:  # older ledgers have no such field
            fields["key_capacity"] = self.budget.key_capacity
        return json.dumps({**fields, "neighbours": self.neighbours, "population": self.population}, sort_keys=True)

    def digest(self) -> str:
        """SHA-256 of the statement."""
        return hashlib.sha256(b"dodona genesis 1\n" + self.statement().encode("ascii")).hexdigest()


class Ledger(Protocol):
    """The contract. ``SqliteLedger`` keeps it on one machine; a store for several keeps it the same way."""

    genesis: Genesis

    def charge(
        self,
        *,
        amount: int,
        analyst: str,
        request_id: str,
        what: str,
        detail: str = "",
        scope: tuple[int, ...] | None = None,
        account: str = MAIN,
        schema: str = "",
        keys: int = 0,
    ) -> Charge:
        """Append a charge of ``amount`` >= 0 units, durable on return, or raise ``BudgetSpent`` with nothing written.

        ``analyst`` and ``request_id`` together name the request. Named again with the same question (``what``,
        ``detail``, ``amount``, ``scope``, ``account``, ``schema``, ``keys``) it returns the earlier charge and its
        answer; with another question it is ``Refused``. ``account`` PURE: from the pocket, whose first price is all of
        the main one.
        ``schema``: the digest of the schema the question is read by; a change of it is an entry before the charge.
        ``keys``: units of delta that the same charge pays into ``KEYS``, beside an ``amount`` above 0; never from a
        pocket.
        """

    def store_answer(self, seq: int, answer: str) -> None:
        """Store the answer to charge ``seq`` once, durable on return; the same text again is no fault, another is."""

    def answer(self, seq: int) -> str | None:
        """The stored answer to charge ``seq``, or None."""

    def grant(self, analyst: str, units: int, account: str = MAIN) -> Entry:
        """Set how many units ``analyst`` may spend in all, counting what was spent before; 0 revokes. Of ``MAIN``, or
        of the delta for open keys (``KEYS``).
        """

    def spent(self, account: str = MAIN) -> int:
        """What the worst-hit atom has paid, in units."""

    def left(self, scope: tuple[int, ...] | None = None, account: str = MAIN, analyst: str = "") -> int:
        """The largest charge that still fits on ``scope`` (None: on everyone), in units; of a pocket, ``analyst``'s."""

    def entries(self, start: int = 1, limit: int = 100) -> list[Entry]:
        """At most ``limit`` entries from number ``start`` on, in order."""

    def head(self) -> tuple[int, str]:
        """The number and hash of the last entry; (0, genesis hash) when there is none."""

    def verify(self, receipt: Receipt | None = None) -> Verified:
        """Replay everything from the first entry; ``LedgerCorrupt`` names the first that does not fit."""

    def close(self) -> None:
        """Let go of the store. A closed ledger cannot be used again."""


def too_much(budget: Budget, amount: int, left: int, whose: str = "the budget") -> BudgetSpent:
    """The refusal: price, what is left, and the largest share that still fits. It tells of request and ledger only."""
    price, rest = budget.amount(amount), budget.amount(left)
    digits = 6 if show(price) != show(rest) else 17  # a near miss must not read "costs 1, and 1 is left"
    share = left * 10**6 // budget.capacity  # millionths, rounded down: it really fits
    advice = (
        f"A share of at most {share / 10**6:g} of the budget still fits."
        if share
        else "Nothing more can be asked of it."
    )
    return BudgetSpent(
        f"The price must be at most what is left of {whose}. This question costs {show(price, digits)} {budget.unit}, "
        f"and {show(rest, digits)} of {show(budget.total)} is left. {advice}",
        price=float(price),
        left=float(rest),
        unit=budget.unit,
    )


def too_much_delta(budget: Budget, units: int, left: int, whose: str = "the budget") -> BudgetSpent:
    """The refusal where the delta for open keys does not fit."""
    price, rest = Fraction(units, KEY_UNITS), Fraction(left, KEY_UNITS)
    digits = 6 if show(price) != show(rest) else 17
    return BudgetSpent(
        f"The delta of keys must be at most what is left of {whose} for them. This question takes "
        f"{show(price, digits)}, and {show(rest, digits)} of {show(budget.keys)} is left. "
        + (f"Ask with delta={show(rest)} or less." if left else "No more keys can be found in it."),
        price=float(price),
        left=float(rest),
        unit="delta",
    )
