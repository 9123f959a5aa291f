"""What runs on a respondent's device: one person's answers in, one randomised report out.

A client answers public invitations (question, schema, epsilon, version) and spends from the person's own account
(``account.py``): over all reports, by however many clients and processes, epsilon in total is never passed (KLNRS
Definition 5.3). The cost is taken off, durably, before anything is computed.

``holdings_of`` computes what the person holds there: the operations of ``query/program.py`` on plain Python numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.errors import BadEffort, BadQuery, BadTable, Unsupported
from dodona.local.account import Account, FileAccount, MemoryAccount, Place
from dodona.local.holdings import Holdings
from dodona.local.scheme import VERSION, Scheme, scheme_for
from dodona.mechanisms.bits import Bits, SecureBits
from dodona.privacy.budget import Budget
from dodona.privacy.numbers import Number, exact
from dodona.query import calendar
from dodona.query.program import Program, Step
from dodona.query.schema import Date, Schema, Timestamp
from dodona.query.statistic import Query, query_from_json

_HEADER = struct.Struct("<2sBB8s")  # mark, version, group, scheme
_MARK = b"dR"


def invitation(query: Query, schema: Schema, epsilon: Number, *, randomiser: str | None = None) -> str:
    """The public text that clients and collectors are made from; ``randomiser`` as ``scheme_for`` has it."""
    amount = exact(epsilon, "epsilon", least=Fraction(1, 10**6), most=Fraction(1000))
    return write_invitation(scheme_for(query, schema, amount, randomiser), schema, randomiser)


def write_invitation(scheme: Scheme, schema: Schema, randomiser: str | None = None) -> str:
    """The text from which ``invited`` reads the scheme back."""
    stated = {"query": scheme.query.to_json(), "schema": schema.describe(), "epsilon": str(scheme.epsilon)}
    named = {} if randomiser is None else {"randomiser": randomiser}
    return json.dumps({"version": VERSION, **stated, **named, "scheme": scheme.fingerprint}, sort_keys=True)


def invited(text: str) -> Scheme:
    """The scheme of an invitation; one of another version, or that this code would read otherwise, is refused."""
    return _read(text)[0]


def _read(text: str) -> tuple[Scheme, Schema]:
    try:
        data = json.loads(text)
        version, stated = data["version"], (data["query"], data["schema"], data["epsilon"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadQuery("an invitation must be the text that invitation() writes.") from None
    if version != VERSION:
        raise BadQuery(f"this Dodona reads invitations of version {VERSION}. Got version {version!r}.")
    query, schema, amount = query_from_json(stated[0]), Schema.read(stated[1]), exact(stated[2], "epsilon")
    scheme = scheme_for(query, schema, amount, data.get("randomiser"))
    if scheme.fingerprint != data.get("scheme"):
        raise BadQuery("the invitation names another scheme than this code makes of it: update the older side.")
    return scheme, schema


def in_steps(answers: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The answers with dates and times as the whole numbers that a program reads; None for what is none."""
    told = dict(answers)
    for name, column in schema.items():
        if name in told and isinstance(column, Date | Timestamp):
            try:
                found = calendar.moment_in(told[name], calendar.layout(column.format))
            except Exception:  # a zone of the person's own that fails: no answer may raise
                found = None
            told[name] = None if found is None else found // column.step
    return told


class Client:
    """``total``: what this person allows all reports together to cost, by whatever invitations, for ever.

    ``account``: the file on the device that keeps what was spent. ``create=True`` makes it, once; afterwards
    ``Client(account="me.account")`` opens it, from as many processes as there are. Without ``account`` the sum is in
    memory and ends with the process: for simulations. Such a client cannot be copied, pickled, saved or forked.
    """

    def __init__(
        self,
        total: Number | None = None,
        *,
        account: Place | None = None,
        create: bool = False,
        bits: Bits | None = None,
    ) -> None:
        self._account = _account(total, account, create)
        self._bits = SecureBits() if bits is None else bits

    @property
    def left(self) -> float:
        """What may still be spent."""
        return float(self._account.budget.amount(self._account.left()))

    def report(self, invitation: str, answers: Mapping[str, Any], *, permanent: str | None = None) -> bytes:
        """A report on one's own answers; the cost is taken off first, whatever happens after.

        ``permanent``: the name of a period, such as "2026". The report is then drawn and charged once for this
        invitation and name; from then on it is the very same bytes, whatever the answers are by now, and costs nothing:
        it tells of the answers at the time it was drawn. A new name is a new report, and a new charge.
        """
        scheme, schema = _read(invitation)
        units = self._account.budget.units(scheme.cost())
        if permanent is not None:
            name = _named(scheme, permanent)
            return self._account.once(units, scheme.fingerprint, name, lambda: self._drawn(scheme, schema, answers))
        self._account.charge(units, scheme.fingerprint)
        return self._drawn(scheme, schema, answers)

    def _drawn(self, scheme: Scheme, schema: Schema, answers: Mapping[str, Any]) -> bytes:
        held = holdings_of(scheme.program, in_steps(answers, schema))
        ((group, fields),) = [(g, reports) for g, reports in scheme.respond(held, self._bits) if len(reports)]
        return packed(scheme, group, fields[0].tolist())

    def save(self) -> str:
        """Where the account is, as text for ``load``; never what is left of it, which only the account knows."""
        return json.dumps({"account": self._place("saved")})

    @staticmethod
    def load(text: str, *, account: Place | None = None) -> Client:
        """The client of the account that ``save`` named; it must be there.

        Before accounts had places, ``save`` wrote the sum itself. Such a text is read once, together with the place
        of a new ``account``, which is made with what the text says is left. Delete the text then.
        """
        try:
            data = json.loads(text)
            if account is None and set(data) == {"account"} and isinstance(data["account"], str):
                return Client(account=data["account"])
            return Client(_left_in(data), account=_require_place(account), create=True)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise BadEffort("a client's account must be the text that save() wrote.") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self._place("copied or pickled"),)

    def _place(self, done: str) -> str:
        if isinstance(self._account, FileAccount):
            return str(self._account.place)
        raise Unsupported(
            f"a client whose account is in memory must not be {done}: each copy would spend the same remainder. Keep "
            'the account in a file: Client(total, account="me.account", create=True).'
        )


def _named(scheme: Scheme, permanent: str) -> str:
    """What a permanent report is kept under."""
    if not isinstance(permanent, str) or not 1 <= len(permanent) <= 200:
        raise BadEffort(
            f"permanent must be the name of a period, such as '2026', of 1 to 200 letters. Got {permanent!r}."
        )
    return hashlib.sha256(json.dumps([scheme.fingerprint, permanent]).encode()).hexdigest()


def _account(total: Number | None, place: Place | None, create: bool) -> Account:
    if place is not None and not create:
        found = FileAccount.open(place)
        if total is not None and Budget(epsilon=total) != found.budget:
            raise BadEffort(f"a person's total is for ever. This account was made with {found.budget}. Got {total!r}.")
        return found
    if total is None:
        raise BadEffort("a client must be told what all its reports may cost together, such as Client(total=4).")
    if place is None and create:
        raise BadEffort('create=True makes an account in a file: state its place, such as account="me.account".')
    budget = Budget(epsilon=total)
    return MemoryAccount(budget) if place is None else FileAccount.make(place, budget)


def _open(place: str) -> Client:
    return Client(account=place)


def _require_place(account: Place | None) -> Place:
    if account is None:
        raise BadEffort(
            "this text holds the sum itself, and loaded twice it would be spent twice. Give the account a place, once: "
            'Client.load(text, account="me.account"), then delete the text.'
        )
    return account


def _left_in(data: Any) -> Fraction:
    """What is left of an account that ``save`` of earlier versions wrote out."""
    budget, spent = Budget(epsilon=data["total"]), data["spent"]
    if isinstance(spent, bool) or not isinstance(spent, int) or not 0 <= spent <= budget.capacity:
        raise BadEffort("a client's account must be the text that save() wrote.")
    if spent == budget.capacity:
        raise BadEffort("nothing is left in this account: every report it allowed was made.")
    return budget.amount(budget.capacity - spent)


def packed(scheme: Scheme, group: int, fields: list[int]) -> bytes:
    """A report as bytes: mark, version, group, scheme, then each field in eight bytes."""
    head = _HEADER.pack(_MARK, VERSION, group, bytes.fromhex(scheme.fingerprint))
    return head + b"".join(struct.pack("<q", field) for field in fields)


def unpacked(scheme: Scheme, report: bytes) -> tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]]] | str:
    """(group, fields) of a report that fits the scheme, or why it does not."""
    if not isinstance(report, bytes | bytearray) or len(report) < _HEADER.size:
        return "not a report"
    mark, version, group, name = _HEADER.unpack_from(report)
    if mark != _MARK:
        return "not a report"
    if version != VERSION:
        return "another version"
    if name != bytes.fromhex(scheme.fingerprint):
        return "another scheme"
    if group >= len(scheme.groups) or len(report) != _HEADER.size + 8 * scheme.groups[group].fields:
        return "another shape"
    fields = np.frombuffer(report, dtype="<i8", offset=_HEADER.size).astype(np.int64)
    return (group, fields) if bool(scheme.groups[group].valid(fields[None, :])[0]) else "out of range"


Cell = float | bool | None


def holdings_of(program: Program, answers: Mapping[str, Any]) -> Holdings:
    """What one person holds; an answer that is missing or not of its column's type counts as missing."""
    absent = [name for name in program.columns if name not in answers]
    if absent:
        raise BadTable(f"answers must be given (None for unknown) to: {', '.join(absent)}.")
    cells: list[Cell] = []
    for step in program.steps:
        args = [cells[arg] for arg in step.args]
        cells.append(_column(step, answers) if step.op == "column" else _OPERATIONS[step.op](args, step.constants))
    vectors = {}
    for root in program.roots():
        cell, boolean = cells[root], program.steps[root].boolean
        values = np.array([bool(cell) if boolean else float(cell or 0.0)])
        vectors[root] = values, np.array([cell is None])
    return Holdings(program, vectors, 1)


def _column(step: Step, answers: Mapping[str, Any]) -> Cell:
    name, kind, *facts = step.constants
    value, missing = answers[name], facts[-1]
    found = _READERS[kind](value, facts)
    return missing if found is None else found


def _category(value: Any, facts: Sequence[Any]) -> Cell:
    labels, cleaning, _ = facts
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    alike = isinstance(value, str) == isinstance(labels[0], str)
    place = cleaning.codes(labels).get(cleaning.text(value) if isinstance(value, str) else value) if alike else None
    other = None if cleaning.other is None else float(labels.index(cleaning.other))
    return other if place is None else float(place)


def _flag(value: Any, facts: Sequence[Any]) -> Cell:
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def _real(value: Any, facts: Sequence[Any]) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= math.inf:  # NaN is not
        return None
    low, high, _ = facts
    return float(min(max(value, low), high))


def _integer(value: Any, facts: Sequence[Any]) -> Cell:
    found = _real(value, facts)
    return None if found is None or (abs(value) < math.inf and value != math.floor(value)) else found


_READERS: dict[str, Callable[[Any, Sequence[Any]], Cell]] = {
    "category": _category,
    "flag": _flag,
    "real": _real,
    "integer": _integer,
}
Arguments = Sequence[Any]


def _strict(function: Callable[..., Cell]) -> Callable[[Arguments, tuple[Any, ...]], Cell]:
    return lambda args, _: None if None in args else function(*args)


def _and(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    return False if False in [a for a in args if a is not None] else None if None in args else True


def _or(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    return True if True in [a for a in args if a is not None] else None if None in args else False


def _grid(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    low, high, bits = constants
    return 0.0 if args[0] is None else float(math.trunc(math.ldexp(min(max(args[0], low), high), bits)))


def _nearest(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    if None in args:
        return None
    point = [int(x) for x in args]
    distances = [sum((x - int(c)) ** 2 for x, c in zip(point, centre, strict=True)) for centre in constants]
    return float(distances.index(min(distances)))


def _lookup(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    (values,), at = constants, args[0]
    return values[int(at)] if at is not None and 0 <= at < len(values) else None


def _dot(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    return None if None in args else float(sum(int(x) * int(w) for x, w in zip(args, constants, strict=True)))


_OPERATIONS: dict[str, Callable[[Arguments, tuple[Any, ...]], Cell]] = {
    "const": lambda _, constants: constants[0],
    "true": lambda *_: True,
    "false": lambda *_: False,
    "add": _strict(lambda a, b: a + b),
    "sub": _strict(lambda a, b: a - b),
    "mul": _strict(lambda a, b: a * b),
    "div": _strict(lambda a, b: None if b == 0 else a / b),
    "mod": _strict(lambda a, b: None if b == 0 else math.fmod(a, b)),
    "neg": _strict(lambda a: -a),
    "abs": _strict(abs),
    "floor": _strict(lambda a: float(math.floor(a))),
    "ceil": _strict(lambda a: float(math.ceil(a))),
    "sqrt": _strict(lambda a: None if a < 0 else math.sqrt(a)),
    "finite": _strict(lambda a: a if math.isfinite(a) else None),
    "least": _strict(min),
    "greatest": _strict(max),
    "bitand": _strict(lambda a, b: float(int(a) & int(b))),
    "number": _strict(float),
    "eq": _strict(lambda a, b: a == b),
    "ne": _strict(lambda a, b: a != b),
    "lt": _strict(lambda a, b: a < b),
    "le": _strict(lambda a, b: a <= b),
    "and": _and,
    "or": _or,
    "not": _strict(lambda a: not a),
    "is_null": lambda args, _: args[0] is None,
    "if": lambda args, _: args[1] if args[0] is True else args[2],
    "coalesce": lambda args, _: next((a for a in args if a is not None), None),
    "bucket": lambda args, constants: None if args[0] is None else float(bisect_right(constants, args[0])),
    "lookup": _lookup,
    "dot": _dot,
    "nearest": _nearest,
    "grid": _grid,
}
