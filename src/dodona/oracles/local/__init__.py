"""Nobody is trusted: each row randomises itself, and only reports are added up (KLNRS section 5).

``Local`` simulates a population on stored rows with the randomisers that run on real devices (``dodona.local``). The
budget ``epsilon`` is each row's own, kept by public blocks of rows in the ledger: a row's reports cost at most epsilon
in all, whatever is asked (Definition 5.3). share= is a share of the whole: of every row's epsilon, or of the rows at
all of their epsilon, or between, as predicts the smaller error (Theorem 5.7 and its split).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table, require_table
from dodona.errors import AnswerLost, BadEffort, BadTable, LedgerError, Refused, Unsupported
from dodona.local.holdings import Holdings
from dodona.local.scheme import Scheme, known_randomiser
from dodona.mechanisms import Bits, SecureBits
from dodona.oracles.answer import Answer, Bill, Price, Selection, plain
from dodona.oracles.apart import asked_apart, priced_apart
from dodona.oracles.local.offer import (
    MOST_BLOCKS,
    ORDER,
    Blocks,
    Offer,
    Spent,
    Tier,
    block_count,
    maker,
    offer_for,
    offer_of,
    tier_key,
)
from dodona.oracles.noise import Ballot, ballot_for
from dodona.oracles.oracle import Oracle, Request, shortened
from dodona.oracles.quantiles import counted, counted_price
from dodona.oracles.rows import left_out
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import Charge, Ledger, Question
from dodona.privacy.ledger.places import full_place, open_ledger
from dodona.privacy.ledger.rules import ChainLedger
from dodona.privacy.numbers import Number
from dodona.query.candidates import Scores
from dodona.query.quantiles import Apart, Quantiles
from dodona.query.schema import Schema

Stored = TypeVar("Stored")
Floats = NDArray[np.float64]
_ONCE = "noninteractive"
_ONE_QUESTION = (
    "this oracle was opened with interactive=False: it answers one question, and that was asked. "
    "Put everything there is to ask into one Stack, or open it with interactive=True and a ledger of its own."
)


class Local(Oracle):
    """Answers questions about ``table`` at ``epsilon`` a row in all.

    ``interactive``: False admits one question, which may be a ``Stack`` of all there is to ask; the ledger enforces it.
    ``randomiser``: None picks the best for each question; "laplace" is Alda and Simon's (15), by name.
    ``ledger``: where charges are kept: a file (a relative name is beside the data file), ``postgresql://...#name``, or
    None for a private one in memory. ``create``: make it where there is none; without it a missing one is refused.
    """

    _who: ClassVar[str] = "local"
    _neighbours: ClassVar[str] = "replace, each row randomised by itself"
    _most_blocks: ClassVar[int] = MOST_BLOCKS

    def __init__(
        self,
        table: Table,
        epsilon: Number,
        ledger: str | os.PathLike[str] | None = None,
        *,
        interactive: bool = True,
        randomiser: str | None = None,
        analyst: str = "local",
        create: bool = False,
    ) -> None:
        if require_table(table).unit is not None:
            raise Unsupported(
                "nobody is trusted here, so nobody can look at all rows of a person: each row would randomise itself, "
                "and a person with several would be protected less. Open a table with one row a person, without a unit "
                "and with neighbours='replace', or ask a Curator."
            )
        if table.neighbours != "replace":
            raise Unsupported("the local model counts rows in public: use Table(..., neighbours='replace').")
        if not table.engine.lasting_order:
            raise Unsupported(
                "each row keeps its own budget by its place, and a DataFrame's rows have none: open files."
            )
        self._table, self._analyst, self._interactive = table, analyst, interactive
        self._randomiser = None if randomiser is None else known_randomiser(randomiser)
        self._bits: Bits = SecureBits()
        self._budget = Budget(epsilon=epsilon)
        mode = self._mode(interactive)
        blocks = block_count(table.engine.rows(), self._most_blocks)
        self._ledger: ChainLedger = open_ledger(
            full_place(ledger, table.folder),
            self._budget,
            atoms=blocks,
            neighbours="replace",
            population=mode + table.population,
            create=create,
            same=lambda text: text.startswith(mode) and table.protects(text.removeprefix(mode)),
        )
        self._blocks = Blocks(table.engine.rows(), self._ledger.genesis.population.removeprefix(mode), blocks)
        self._spent = Spent(self._ledger, self._blocks.count)
        self._order = table.engine.order
        self._keep_order(ledger is not None)

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._table.schema

    @property
    def rows(self) -> int:
        """The public number of rows."""
        return self._blocks.rows

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self._table.name

    @property
    def budget(self) -> Budget:
        """What each row may ever spend."""
        return self._budget

    @property
    def ledger(self) -> Ledger:
        """What was asked, of which blocks of rows, at what cost."""
        return self._ledger

    @property
    def left(self) -> float:
        """What is left a row, on average, in epsilon."""
        return float(self._budget.amount(int(self._spent.left().mean())))

    @property
    def sees_totals(self) -> bool:
        """No: what leaves a row is randomised before anything is added up."""
        return False

    def answer(self, request: Request) -> Answer:
        """Price, charge, then let the rows report."""
        if isinstance(request.query, Apart):
            return asked_apart(request, request.query, self.answer)
        if isinstance(request.query, Quantiles):
            return counted(self, request, request.query)
        offer, confidence = self._offer(request), request.effort.confidence
        plan = offer.schemes[0].plan

        def compute(bill: Bill) -> Answer:
            flat = self._means(offer) * plan.units * self.rows
            total, spread, margin = (
                plain(plan.shaped(values)) for values in (flat, offer.spread(), offer.margin(confidence))
            )
            known = str(request.query), total, spread, margin, confidence, self.rows, plan.segments, bill
            return Answer(*known, True, left_out(request.query, plan, self.schema, self._table.unit))

        self._check_source()
        return self._charged(request, offer, compute, Answer.from_json)

    def estimate(self, request: Request) -> Price:
        """The price; no row reports."""
        if isinstance(request.query, Apart):
            return priced_apart(request, request.query, self.estimate)
        if isinstance(request.query, Quantiles):
            return counted_price(self, request, request.query)
        offer, confidence = self._offer(request), request.effort.confidence
        plan = offer.schemes[0].plan
        spread, margin = (plain(plan.shaped(values)) for values in (offer.spread(), offer.margin(confidence)))
        bill = self._bill(offer, self._spent.left())
        how = "a row reports to nobody but itself what it holds"
        return Price(str(request.query), bill, spread, margin, confidence, self.rows, how, True)

    def choose(self, request: Request, mechanism: str) -> Selection:
        """The candidate with the largest estimated total; there is no exponential mechanism without a curator."""
        if mechanism != "best":
            raise BadEffort(
                f"rows that randomise themselves choose by estimated totals: mechanism='best'. Got {mechanism!r}."
            )
        query = request.query.statistics(self.schema) if isinstance(request.query, Scores) else request.query
        if isinstance(request.query, Scores) and not request.query.linear:
            raise Unsupported(
                f"rows that randomise themselves give noisy totals, and {request.query} is no linear function of them: "
                "its scores would be off by more than the noise says. Choose on a Curator, or by a linear score."
            )
        ballot = ballot_for(request.query, self._table)
        effort = request.effort
        offer = self._offer(replace(request, query=query))

        def compute(bill: Bill) -> Selection:
            totals = self._means(offer) * self.rows
            index = int(np.argmax(_scores(ballot, offer, totals)))
            margin = self._choice_margin(ballot, offer, effort.confidence)
            what = f"candidate {index} of {ballot.count}"
            told = left_out(request.query, ballot.plan, self.schema, self._table.unit)
            proven = ballot.count == offer.schemes[0].plan.dimension  # else by drawing noise
            return Selection(index, what, margin, effort.confidence, self.rows, bill, proven, told)

        self._check_source()
        return self._charged(request, offer, compute, Selection.from_json)

    def _choice_margin(self, ballot: Ballot, offer: Offer, confidence: float) -> float:
        """Twice what all candidates' errors stay within together; for candidates made of totals, by drawing noise."""
        each = 1 - (1 - confidence) / ballot.count
        if ballot.count == offer.schemes[0].plan.dimension:
            return 2 * float(offer.margin(min(each, 1 - 1e-12)).max())
        generator = np.random.default_rng(0)  # public noise: no row is behind it
        deviation = offer.spread() / offer.schemes[0].plan.units
        still = _scores(ballot, offer, np.zeros(len(deviation)))  # the public constant, no part of the noise
        draws = [
            _scores(ballot, offer, deviation * generator.standard_normal(len(deviation))) - still for _ in range(8)
        ]
        spread = float(np.sqrt(np.mean(np.square(draws), axis=0).max())) * ballot.unit
        return 2 * spread * float(np.sqrt(2 * np.log(2 / (1 - min(each, 1 - 1e-12)))))

    # -- the order that keeps the promise: price, charge, report, store ----------------------------------------------

    def _left(self) -> NDArray[np.int64]:
        if not self._interactive and self._spent.questions:
            raise Unsupported(_ONE_QUESTION)
        return self._spent.left()

    def _keep_order(self, lasting: bool) -> None:
        """The order of the rows, fixed in the ledger when it is first opened: blocks are places in it.

        In another order, rows that have spent all of their epsilon would be asked again under the name of others.
        """
        try:
            if lasting and self._order:
                what = "the rows, in their order"
                self._ledger.charge(amount=0, analyst=ORDER, request_id=ORDER, what=what, detail=self._order)
        except Refused:
            raise BadTable(
                "each row keeps its own budget by its place, so the file must be the one the ledger was made for. Its "
                "size or time is another: bring it back as it was (cp -p keeps the time), or, for other rows, state "
                "another population and make another ledger."
            ) from None

    def _check_source(self) -> None:
        """Before a charge: the source is the one that was opened, in the same order."""
        self._table.engine.check()
        if self._table.engine.order != self._order:
            raise BadTable("each row keeps its own budget by its place, and the file has changed: open the table anew.")

    def _claim(self, request: Request, key: str) -> None:
        """Take the one question of noninteractive use: an entry that costs nothing, under a name used for nothing else.

        The ledger admits a request id for one question only, in one atomic step, so of several processes one gets it.
        """
        detail = f"{request.fingerprint('local')}; key={key}; analyst={self._analyst}"
        try:
            self._ledger.charge(amount=0, analyst=_ONCE, request_id=_ONCE, what="the one question", detail=detail)
        except Refused:
            raise Unsupported(_ONE_QUESTION) from None

    def _offer(self, request: Request) -> Offer:
        make = maker(request.query, self.schema, self._randomiser)
        paid = self._spent.earlier(self._analyst, request.key, self._blocks.sizes)
        if paid:
            return offer_of(make, self._budget, self._blocks, paid)
        per = 1 if request.select is not None else max(self.rows, 1)
        return offer_for(make, request.effort, self._budget, self._blocks, self._left(), per)

    def _charged(
        self, request: Request, offer: Offer, compute: Callable[[Bill], Any], restore: Callable[[str], Stored]
    ) -> Stored:
        key = request.key or secrets.token_hex(16)
        if not self._interactive:
            self._claim(request, key)
        what, detail = (
            shortened(request.text or str(request.query)),
            f"{request.fingerprint('local')}; table={self._table.mark}",
        )
        # All tiers in one step. Each names its place among them, so none can be paid for under another's name.
        first = self._ledger.charge_together(
            [
                Question(
                    amount=tier.amount,
                    analyst=self._analyst,
                    request_id=tier_key(key, number),
                    what=what,
                    detail=f"{detail}; tier {number + 1} of {len(offer.tiers)}",
                    scope=tier.blocks,
                    schema=self.schema.digest,
                )
                for number, tier in enumerate(offer.tiers)
            ]
        )[0]
        if first.answer is not None:
            return restore(first.answer)
        if first.lost:
            raise AnswerLost
        try:
            result = compute(self._bill(offer, self._spent.left(), first))
            self._ledger.store_answer(first.entry.seq, result.to_json())
        except LedgerError:
            raise
        except Exception:  # whatever it says could tell of the data
            raise AnswerLost from None
        return result  # type: ignore[no-any-return]

    def _means(self, offer: Offer) -> Floats:
        """The combined estimate of the mean row, in the plan's steps."""
        parts = zip(offer.tiers, offer.schemes, offer.weights(), strict=True)
        means = [weight * self._tier_means(tier, scheme) for tier, scheme, weight in parts]
        return np.asarray(np.sum(means, axis=0))

    def _tier_means(self, tier: Tier, scheme: Scheme) -> Floats:
        taking_part = np.zeros(self._blocks.count, dtype=np.bool_)
        taking_part[list(tier.blocks)] = True

        def pick(start: int, stop: int) -> NDArray[np.intp]:
            return np.flatnonzero(taking_part[self._blocks.of(start, stop)])

        def respond(vectors: Any, length: int) -> Any:
            return scheme.tallies(scheme.respond(Holdings(scheme.program, vectors, length), self._bits))

        total: list[Any] | None = None
        for tallies in self._table.engine.reports(scheme.program, pick, respond):
            total = tallies if total is None else [a + b for a, b in zip(total, tallies, strict=True)]
        self._check_source()  # nobody has put the rows in another order meanwhile
        return scheme.means(total or scheme.tallies([]))

    def _bill(self, offer: Offer, left: NDArray[np.int64], charge: Charge | None = None) -> Bill:
        budget, paid = self._budget, sum(tier.amount * len(tier.blocks) for tier in offer.tiers)
        whole = budget.capacity * self._blocks.count
        after = int(left.sum()) - (0 if charge else paid)
        amount = max(float(budget.amount(tier.amount)) for tier in offer.tiers)
        place = (charge.receipt.seq, charge.receipt.hash) if charge else (None, None)
        rest = float(budget.amount(max(after, 0))) / self._blocks.count
        share = float(Fraction(paid, whole))
        bill = Bill(amount, "epsilon", share, rest, self._neighbours, offer.name, *place)
        return replace(bill, **self._crowd(offer))

    def _crowd(self, offer: Offer) -> dict[str, Any]:  # noqa: ARG002 - with a shuffler it depends on the offer
        """What more a bill says where nobody can tell whose a report is."""
        return {}

    @classmethod
    def _mode(cls, interactive: bool) -> str:
        """What stands before the population in the ledger: a row that is also under another oracle's ledger has two
        budgets; they must not be mistaken for each other.

        The mode is part of it, so it is fixed in the ledger's first hash: a file made for one question stays so.
        """
        return f"{cls._who}:" if interactive else f"{cls._who}, one question:"


def _scores(ballot: Ballot, offer: Offer, totals: Floats) -> Floats:
    """Scores of estimated totals, in steps of the offer's plan, whose grid is the ballot's."""
    factors = offer.schemes[0].plan.units / ballot.plan.units
    return np.asarray(ballot.tally(totals * factors), dtype=np.float64)
