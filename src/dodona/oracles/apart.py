"""Questions of one statement that different mechanisms answer: sums beside quantiles, people beside rows.

Each has an equal part of the effort. Where one party charges for all of them it is one charge, made before any row is
read (``Curator``); elsewhere they are asked one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.errors import BadEffort, Refused, Unsupported
from dodona.mechanisms import DiscreteLaplace
from dodona.mechanisms.rounded import GAUSSIAN
from dodona.oracles.answer import Answer, Bill, Numbers, Price
from dodona.oracles.effort import combined
from dodona.oracles.finishing import expected_apart
from dodona.oracles.oracle import Request
from dodona.privacy.budget import Budget
from dodona.privacy.cost import FREE, Cost
from dodona.privacy.ledger import Charge, Ledger
from dodona.privacy.ledger.whole import noted
from dodona.query.quantiles import Apart
from dodona.query.unit import Bounds

_SUMS = (*GAUSSIAN, DiscreteLaplace.name)


@dataclass(frozen=True)
class Part:
    """One part of what is paid for once: the part ``name`` of the ``series``, of noise that ``told`` says.

    ``cost``: of this part alone, beside the series: nothing, but where a lost one is drawn anew.
    """

    series: str
    name: str
    told: str
    cost: Cost = FREE

    def charge(self, ledger: Ledger, budget: Budget, asked: Mapping[str, Any]) -> tuple[Charge, int]:
        """The entry of this part, and how many units were charged with it.

        Two entries of the chain under names of our own, whatever name the asker gave the request: the first pays, and
        is found again by every later part; the second claims the part, and is there once, over all handles, forks,
        processes and machines, so that its noise is drawn once. What pays is durable before any part is claimed.
        """
        own = {**asked, "what": self.told, "detail": f"series {self.series}; {self.told}", "request_id": self.series}
        try:
            paid = ledger.charge(**own)
        except Refused as refused:
            if type(refused) is not Refused:  # what is left does not allow it, say
                raise
            raise Unsupported(
                "what was paid for once goes on as it began, under the same schema, effort and version of its noise. "
                f"This series ({self.told}) was begun otherwise: ask as it was begun, or begin another."
            ) from None
        due = budget.units(self.cost)
        detail = f"part {self.name} of series {self.series}; {self.told}{noted(self.cost) if due else ''}"
        part = {"request_id": f"{self.series} {self.name}", "what": f"{self.told}; part {self.name}", "detail": detail}
        claimed = ledger.charge(**{**own, **part, "amount": due, "keys": 0})
        return claimed, due + (0 if paid.repeated else int(asked["amount"]))


@dataclass(frozen=True)
class Work:
    """What is priced and not yet charged: who pays what for which noise, what is done then, and, of a question, what
    its answer is promised to be. ``part``: where all of it is paid for once, which part this is.
    """

    scope: tuple[int, ...] | None
    cost: Cost
    name: str
    compute: Callable[[Bill], Any]
    promise: Callable[[Bill], Price] | None = None
    part: Part | None = None


def requests_apart(request: Request, query: Apart) -> list[Request]:
    """A request for each."""
    effort = request.effort
    if effort.kind == "tolerance":
        raise BadEffort(
            "a tolerance is of numbers that one mechanism answers, and a quantile's error in values depends on how "
            "dense the rows are, which is private: state share=, epsilon= or rho=."
        )
    part = effort if effort.kind == "none" else effort.part(Fraction(1, len(query.parts)))
    asked = []
    for place, (of, own) in enumerate(zip(query.parts, query.bounds, strict=True)):
        key = None if request.key is None else f"{request.key}/{place}"
        bounds: Bounds | None = request.bounds if own is None else own.over(request.bounds)
        asked.append(replace(request, query=of, effort=part, key=key, select=None, bounds=bounds))
    return asked


def together(works: Sequence[Work], request: Request) -> Work:
    """All of them as one work, with one charge."""
    scopes = [work.scope for work in works]
    paying = {group for scope in scopes for group in scope or ()}
    scope = None if None in scopes else tuple(sorted(paying))
    return Work(
        scope,
        sum((work.cost for work in works), FREE),
        _named([work.name for work in works]),
        lambda bill: answers_apart(request, [work.compute(bill) for work in works], bill),
        lambda bill: prices_apart(request, [work.promise(bill) for work in works if work.promise], bill),
    )


def asked_apart(request: Request, query: Apart, ask: Callable[[Request], Answer]) -> Answer:
    """Asked one after the other."""
    answers = [ask(one) for one in requests_apart(request, query)]
    bill = replace(combined([one.cost for one in answers]), mechanism=_named([one.cost.mechanism for one in answers]))
    return answers_apart(request, answers, bill)


def priced_apart(request: Request, query: Apart, price: Callable[[Request], Price]) -> Price:
    """Priced likewise."""
    prices = [price(one) for one in requests_apart(request, query)]
    bill = replace(combined([one.cost for one in prices]), mechanism=_named([one.cost.mechanism for one in prices]))
    affordable = all(one.affordable for one in prices)
    return replace(prices_apart(request, prices, bill), affordable=affordable)


def _named(names: Sequence[str]) -> str:
    """The noise of sums first: margins of what is made of them go by it."""
    sums = [name for name in dict.fromkeys(names) if name in _SUMS]
    rest = [name for name in dict.fromkeys(names) if name not in sums]
    return "; ".join([" and ".join(sums), *rest] if sums else rest)


def _flat(numbers: Numbers | None, like: Numbers) -> np.ndarray:
    return np.zeros(np.size(like)) if numbers is None else np.broadcast_to(numbers, np.shape(like)).ravel()


def answers_apart(request: Request, answers: Sequence[Answer], bill: Bill) -> Answer:
    """Side by side."""
    total, spread, margin, grain = (
        np.concatenate([_flat(getattr(one, part), one.total) for one in answers])
        for part in ("total", "spread", "margin", "grain")
    )
    told = tuple(dict.fromkeys(sentence for one in answers for sentence in one.leaves_out))
    segments = tuple(one.segments[0] for one in answers)
    first = answers[0]
    known = str(request.query), total, spread, margin, first.confidence, first.rows, segments, bill
    return Answer(*known, all(one.proven for one in answers), told, grain)


def prices_apart(request: Request, prices: Sequence[Price], bill: Bill) -> Price:
    """Side by side, with the error of each printed column where the statement is known."""
    spread, margin = (np.concatenate([np.ravel(getattr(one, part)) for one in prices]) for part in ("spread", "margin"))
    told = "; ".join(dict.fromkeys(one.sensitivity for one in prices))
    known = str(request.query), bill, spread, margin, prices[0].confidence, prices[0].rows, told, True
    made = Price(*known, all(one.proven for one in prices))
    grain = np.concatenate([_flat(one.grain, one.spread) for one in prices])
    return replace(made, columns=expected_apart(request.select, prices, replace(made, grain=grain)))
