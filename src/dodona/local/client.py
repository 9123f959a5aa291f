"""What runs on a respondent's device: one person's answers in, one randomised report out.

A client is made from the public invitation (question, schema, epsilon, version). It keeps the person's own account:
over all reports it makes, epsilon in total is never passed (KLNRS Definition 5.3), also after its state was saved and
loaded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.errors import BadEffort, BadQuery
from dodona.local.person import holdings_of
from dodona.local.scheme import VERSION, Scheme, scheme_for
from dodona.mechanisms.bits import Bits, SecureBits
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import too_much
from dodona.privacy.numbers import Number, exact
from dodona.query.schema import Schema
from dodona.query.statistic import Query, query_from_json

_HEADER = struct.Struct("<2sBB8s")  # mark, version, group, scheme
_MARK = b"dR"


def invitation(query: Query, schema: Schema, epsilon: Number, *, randomiser: str | None = None) -> str:
    """The public text that clients and collectors are made from; ``randomiser`` as ``scheme_for`` has it."""
    amount = exact(epsilon, "epsilon", least=Fraction(1, 10**6), most=Fraction(1000))
    scheme = scheme_for(query, schema, amount, randomiser)
    fields = {"version": VERSION, "query": query.to_json(), "schema": schema.describe(), "epsilon": str(amount)}
    named = {} if randomiser is None else {"randomiser": randomiser}
    return json.dumps({**fields, **named, "scheme": scheme.fingerprint}, sort_keys=True)


def invited(text: str) -> Scheme:
    """The scheme of an invitation; one of another version, or that this code would read otherwise, is refused."""
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
    return scheme


class Client:
    """``total``: what this person allows all reports together to cost, by whatever invitations."""

    def __init__(self, total: Number, *, bits: Bits | None = None) -> None:
        self._budget = Budget(epsilon=total)
        self._spent = 0
        self._bits = SecureBits() if bits is None else bits

    @property
    def left(self) -> float:
        """What may still be spent."""
        return float(self._budget.amount(self._budget.capacity - self._spent))

    def report(self, invitation: str, answers: Mapping[str, Any]) -> bytes:
        """A report on one's own answers; the cost is taken off first, whatever happens after."""
        scheme = invited(invitation)
        units = self._budget.units(scheme.cost())
        if units > self._budget.capacity - self._spent:
            raise too_much(self._budget, units, self._budget.capacity - self._spent, "this person's budget")
        self._spent += units
        held = holdings_of(scheme.program, answers)
        ((group, fields),) = [(g, reports) for g, reports in scheme.respond(held, self._bits) if len(reports)]
        return packed(scheme, group, fields[0].tolist())

    def save(self) -> str:
        """The account, to be kept on the device."""
        return json.dumps({"total": str(self._budget.epsilon), "spent": self._spent})

    @staticmethod
    def load(text: str) -> Client:
        """The inverse of ``save``; anything else is refused, so that no account starts anew by accident."""
        try:
            data = json.loads(text)
            client = Client(data["total"])
            spent = data["spent"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise BadEffort("a client's account must be the text that save() wrote.") from None
        if isinstance(spent, bool) or not isinstance(spent, int) or not 0 <= spent <= client._budget.capacity:
            raise BadEffort("a client's account must be the text that save() wrote.")
        client._spent = spent
        return client


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
