"""A curator that remembers what it told: a question that means the same is given the same answer again, for nothing.

``dd.Remembering(curator).ask("b AND a", tolerance=0.01)`` after ``ask("a AND b", ...)`` costs nothing, and says so. The
meaning is that of ``query/meaning.py``; the stored answer is given where it is good enough: its margin is at most the
tolerance that is asked for, or it was bought with at least as much share, epsilon or rho. Else the rows are asked.

What was told is what the ledger holds: each answer stands there under a name made of the question's meaning, the schema
that says what its columns mean, and the bounds of one person's rows. So it is remembered over handles, forks, restarts
and machines, and nothing else is kept. An analyst is told again what the same analyst was told, and nothing of others.

A stored answer has the noise it was drawn with. Asking twice does not make it better, and two questions of one meaning
are off by the same error; who wants another draw, or has other rows by now, asks the curator itself, and pays. Where
the public number of rows is another, nothing that was told of the old ones is given.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dodona.errors import Unsupported
from dodona.oracles.answer import AGAIN, Answer, Bill, Price
from dodona.oracles.curator import Curator
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle, Request
from dodona.oracles.view import Front
from dodona.privacy.ledger import CHARGE
from dodona.query.meaning import one_form
from dodona.query.quantiles import Apart, Quantiles

_PAGE, _LONGEST = 1000, 100


@dataclass(frozen=True)
class Stored:
    """An answer in the ledger: for which effort it was bought, and where it stands."""

    effort: Effort
    printed: bool
    seq: int
    detail: str


class Remembering(Front):
    """``behind``, a curator, whose own ledger says what was asked before."""

    def __init__(self, behind: Oracle) -> None:
        super().__init__(behind)
        if not isinstance(behind, Curator):
            raise Unsupported(
                f"what was told is remembered where its ledger is: Remembering(curator). Got {type(behind).__name__}. "
                "A view or bounds go in front of it, and a server's curator remembers by request ids."
            )
        self._curator = behind
        self._read = 0
        self._meant: dict[str, list[Stored]] = {}
        self._begun: dict[str, dict[int, int]] = {}

    def answer(self, request: Request) -> Answer:
        """What was told of the same meaning, where that is good enough; or asked of the rows, and remembered."""
        if isinstance(request.query, Quantiles | Apart):
            return self._behind.answer(request)
        asked = replace(request, query=one_form(request.query, self.schema), text=None)
        known = self._known(asked)
        if known is not None:
            return replace(known, question=str(request.query))
        return self._behind.answer(replace(asked, key=self._next(self._name(asked))))

    def estimate(self, request: Request) -> Price:
        """Nothing for what was told before; else as behind, of the one form of its meaning."""
        if isinstance(request.query, Quantiles | Apart):
            return self._behind.estimate(request)
        asked = replace(request, query=one_form(request.query, self.schema), text=None)
        known = self._known(asked)
        if known is None:
            return self._behind.estimate(asked)
        what = str(request.query), known.cost, known.spread, known.margin, known.confidence
        return Price(*what, known.rows, "the answer is stored", True, known.proven, known.grain)

    # -- what the ledger holds ----------------------------------------------------------------------------------------

    def _known(self, asked: Request) -> Answer | None:
        """The stored answer of this meaning with the least margin that is good enough; free."""
        self._look()
        fitting = []
        digest = hashlib.sha256(json.dumps(asked.query.to_json(), sort_keys=True).encode()).hexdigest()
        for stored in self._meant.get(self._meaning(asked), ()):
            if f"sha256={digest}" not in stored.detail:  # a name of ours that another question was given
                continue
            text = self._curator.ledger.answer(stored.seq)
            answer = None if text is None else Answer.from_json(text)
            if answer is not None and _suffices(asked, stored, answer):
                fitting.append(answer)
        if not fitting:
            return None
        best = min(fitting, key=lambda answer: float(np.max(answer.margin)))
        bill = best.cost
        free = Bill(0.0, bill.unit, 0.0, self._curator.left, bill.neighbours, f"{bill.mechanism}; {AGAIN}")
        return replace(best, cost=free)

    def _look(self) -> None:
        """Reads what the ledger got since we looked last: of this analyst, under our names."""
        ledger, own = self._curator.ledger, self._curator._analyst
        while page := ledger.entries(self._read + 1, _PAGE):
            for entry in page:
                self._read = entry.seq
                parts = (entry.request_id or "").split(" ")
                if entry.kind != CHARGE or entry.analyst != own or parts[0] != "remembered" or len(parts) != _PARTS:
                    continue
                _, meaning, kind, amount, sure, printed, number = parts
                name = " ".join(parts[:-1])
                if not (number.isdecimal() and _AMOUNT.fullmatch(amount) and _SURE.fullmatch(sure)):
                    continue
                self._begun.setdefault(name, {})[int(number)] = entry.seq
                if amount.startswith("#"):
                    continue  # too long to stand there: found again by its name alone
                effort = Effort(kind, Fraction(amount), float(sure))
                found = Stored(effort, printed == "printed", entry.seq, entry.detail)
                self._meant.setdefault(meaning, []).append(found)

    def _next(self, name: str) -> str:
        """The request under this name whose answer is there, or that was not begun: one that was lost is paid anew."""
        begun, number = self._begun.get(name, {}), 0
        while number in begun and self._curator.ledger.answer(begun[number]) is None:
            number += 1
        return f"{name} {number}"

    def _meaning(self, asked: Request) -> str:
        """A digest of the question, what its columns mean, and how one person counts."""
        table = self._curator._table.bounded(asked.bounds)
        stated = [asked.query.to_json(), self.schema.digest, table.terms, table.mark, self.rows]
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()

    def _name(self, asked: Request) -> str:
        """The request's name in the ledger, but for its number: the next one is begun where an answer was lost."""
        effort, printed = asked.effort, "printed" if asked.select is not None else "total"
        amount = str(effort.amount)
        amount = amount if len(amount) <= _LONGEST else f"#{hashlib.sha256(amount.encode()).hexdigest()[:32]}"
        return f"remembered {self._meaning(asked)} {effort.kind} {amount} {effort.confidence!r} {printed}"


_PARTS = 7
_AMOUNT = re.compile(r"[0-9]+(/[1-9][0-9]*)?|#[0-9a-f]{32}", re.ASCII)
_SURE = re.compile(r"0\.[0-9]{1,20}", re.ASCII)


def _suffices(asked: Request, stored: Stored, answer: Answer) -> bool:
    """Whether a stored answer keeps what is asked for."""
    wanted, bought = asked.effort, stored.effort
    printed = asked.select is not None
    if wanted.kind == "tolerance":
        if printed:  # of each number that is printed: the same statement's own
            return stored.printed and bought == wanted
        reach = float(np.max(answer.margin)) / max(answer.rows or 0, 1)
        return answer.rows is not None and answer.confidence >= wanted.confidence and reach <= float(wanted.amount)
    same = bought.kind == wanted.kind and bought.confidence == wanted.confidence
    return same and bought.amount >= wanted.amount
