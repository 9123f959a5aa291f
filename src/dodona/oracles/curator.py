"""A trusted server adds noise once: the SuLQ database (Blum, Dwork, McSherry, Nissim 2005).

A question is refused, or priced, charged durably, and only then computed (docs/design.md; HOSTILE R4). Noise is drawn
before the rows are read. What goes wrong after the charge costs budget, never privacy: one fixed exception, no refund.
"""

from __future__ import annotations

import operator
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar, Unpack

import numpy as np

from dodona.engines.table import Table, require_table
from dodona.errors import AnswerLost, BadQuery, LedgerError, Unsupported
from dodona.mechanisms import Bits, SecureBits
from dodona.oracles.answer import Answer, Bill, Finding, Price, Selection, plain
from dodona.oracles.apart import Work, requests_apart, together
from dodona.oracles.effort import Effort, Stated
from dodona.oracles.finishing import expected
from dodona.oracles.groups import Atoms
from dodona.oracles.noise import Noise, Plans, ballot_for, chooser_for, explained, finished_lines, in_words, noise_for
from dodona.oracles.oracle import Oracle, Question, Request, shortened
from dodona.oracles.procedures import prepared
from dodona.oracles.quantiles import Offer, better_counted, counted, counted_price, offer_for
from dodona.oracles.rows import beyond, beyond_norms, left_out, require_told, totals_of
from dodona.oracles.synopsis import Attached, Synopsis, published_answer, require_attachable
from dodona.oracles.view import persons_of
from dodona.privacy.budget import Budget, require_budget
from dodona.privacy.cost import FREE, Cost
from dodona.privacy.ledger import KEYS, Charge, Ledger
from dodona.privacy.ledger.places import full_place, open_ledger
from dodona.privacy.ledger.whole import Pocket, noted
from dodona.query.candidates import Procedure
from dodona.query.persons import OfPeople
from dodona.query.plan import Plan
from dodona.query.quantiles import Apart, Quantiles
from dodona.query.schema import Schema
from dodona.query.select import Scope, Source, is_select
from dodona.query.sensitivity import Norms

MOST_JOINED = 64  # joins whose compiled questions are kept
Stored = TypeVar("Stored")
During = Callable[[Callable[[], Any]], Any]


class Curator(Oracle):
    """Answers questions about ``table`` within ``budget``.

    ``ledger``: where charges are kept: a file (a relative name is beside the data file, wherever we work),
    ``postgresql://host/database#name``, or None for a private one that lasts as long as this object.
    ``analyst``: who is asking; the name stands in the ledger.
    ``create``: make the ledger where there is none; without it a missing one is refused, for opening must never become
    a second budget by mistake.

    Curators of the same rows with different ledgers have a budget each, and these add up.
    """

    def __init__(
        self,
        table: Table,
        budget: Budget,
        ledger: str | os.PathLike[str] | None = None,
        *,
        analyst: str = "curator",
        create: bool = False,
    ) -> None:
        kept = open_ledger(
            full_place(ledger, require_table(table).folder),
            require_budget(budget),
            atoms=Atoms(table.schema).count,
            neighbours=table.neighbours,
            population=table.population,
            create=create,
            same=table.protects,
        )
        self._keep(table, kept, analyst, SecureBits())

    @classmethod
    def sharing(cls, table: Table, ledger: Ledger, *, analyst: str, during: During = operator.call) -> Curator:
        """Another analyst on a ledger that is already open; the budget is the ledger's.

        ``during``: runs the work that reads rows, after its charge and before its answer is stored; a server lets it
        end on a schedule.
        """
        about, atoms = ledger.genesis, Atoms(table.schema).count
        if (about.neighbours, about.atoms) != (table.neighbours, atoms) or not table.protects(about.population):
            raise Unsupported(
                f"a ledger is for one population: this one is for {about.population!r} under {about.neighbours}, "
                f"not for {table.population!r} under {table.neighbours}."
            )
        curator = cls.__new__(cls)
        curator._keep(table, ledger, analyst, SecureBits())
        curator._during = during
        return curator

    def _keep(self, table: Table, ledger: Ledger, analyst: str, bits: Bits) -> None:
        self._table, self._ledger, self._analyst, self._bits = table, ledger, analyst, bits
        self._budget = ledger.genesis.budget
        self._during: During = operator.call
        self._atoms, self._plans = Atoms(table.schema), Plans(table.schema)
        self._published: list[Attached] = []
        self._joins: dict[Source, tuple[Curator, Scope]] = {}
        self._people = None if table.unit is None else table.promised

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._table.schema

    @property
    def rows(self) -> int | None:
        """The public number of rows."""
        return self._table.public_rows

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self._table.name

    @property
    def whose(self) -> str | None:
        """The column of the table's unit."""
        return None if self._table.unit is None else self._table.unit.column

    @property
    def budget(self) -> Budget:
        """The lifetime budget."""
        return self._budget

    @property
    def ledger(self) -> Ledger:
        """What was asked, by whom, what it cost."""
        return self._ledger

    def joined(self, source: Source) -> tuple[Oracle, Scope]:
        """Another curator of the same budget, on the tables of its dataset as they are joined."""
        if self._table.tables is None:
            return super().joined(source)
        if source not in (joins := self._joins):  # read once: another thread may keep others
            table, scope = self._table.tables.join(source)
            joins = self._joins = {**dict([*joins.items()][-MOST_JOINED:]), source: (self.beside(table), scope)}
        return joins[source]

    def persons(self, select: str, **stated: Unpack[OfPeople]) -> Oracle:
        """Another curator of the same budget, on the people that are made of the rows."""
        return persons_of(self, self._table, select, self.beside, **stated)

    def beside(self, table: Table, ledger: Ledger | None = None) -> Curator:
        """Ourselves, on another table of the same budget, or paid for by a part of it."""
        curator = type(self).sharing(table, ledger or self._ledger, analyst=self._analyst, during=self._during)
        curator._bits = self._bits
        return curator

    @property
    def left(self) -> float:
        """What is left for a question about everyone, in the budget's unit."""
        return float(self._budget.amount(self._ledger.left()))

    def _told(self) -> str:
        return f"; {self._ledger.left() / self._budget.capacity:.2%} left of {self._budget}"

    def purely(self) -> Curator | None:
        """The whole of an (epsilon, delta) budget as one of pure epsilon, paid for in full by its first question.

        None where the budget is another, or some of it is spent otherwise. Whoever paid may open what is left again.
        """
        if self._budget.pocket is None:
            return None
        pocket = Pocket(self._ledger, self._analyst)
        if not pocket.left():
            return None
        curator = self.beside(self._table, pocket)
        curator._published = list(self._published)
        return curator

    def with_keys(self, keys: Synopsis) -> Curator:
        """The same where the keys that ``release.keys`` found are a category: all other values are in *(other)*."""
        from dodona.oracles.procedures import with_listed

        return self.beside(with_listed(self._table, keys), self._ledger)

    def attach(self, synopsis: Synopsis, *, estimates: bool = False) -> None:
        """Answer from this published synopsis, free, where its stated error meets a question's tolerance.

        A tolerance promises an error, so the margin of each such answer must be proven. ``estimates``: accept also
        margins that are estimated, as from how well a model fits; every such answer says so.
        """
        require_attachable(synopsis, self.name, self.schema, self._people, estimates)
        self._published.append(Attached(synopsis, estimates))

    def answer(self, request: Request) -> Answer:
        """Price, charge, then sum and add noise; or from a published synopsis that is good enough."""
        if isinstance(request.query, Quantiles) and self._choice(request, request.query) is None:
            return counted(self, request, request.query)
        found = published_answer(self._published, request, self.rows)
        if found is not None:
            return self._given(request, found[1])
        work = self._work(request)
        self._table.engine.check()
        return self._charged(request, work, Answer.from_json)

    def _work(self, request: Request) -> Work:
        """A question about rows, priced."""
        if isinstance(request.query, Apart):
            return together([self._work(one) for one in requests_apart(request, request.query)], request)
        if isinstance(request.query, Procedure):
            bought = prepared(request.query, self._table).buy(request.effort, self._budget)
            return Work(
                None,  # to everyone: a procedure sees each row, also one of whose conditions none is true
                bought.cost,
                bought.name,
                lambda bill: Finding(bought.run(self._table.engine, self._bits), str(request.query), self.rows, bill),
                lambda bill: bought.price(request, self.rows, bill, self._due(request, bought.cost)),
                bought.part,
            )
        if isinstance(request.query, Quantiles):
            choice = self._offer(request, request.query)  # beside other questions never counts of cells
            table, scope = self._table.bounded(request.bounds), self._scope(choice.plan)
            return choice.work(request, table.engine, self._bits, self.rows, scope)
        table = self._table.bounded(request.bounds)
        plan, noise = self._priced(request)
        confidence = request.effort.confidence
        spread, margin, grain = noise.error(plan, confidence, self.rows)  # before the charge: what fails costs nothing
        told = left_out(request.query, plan, self.schema, table.unit)

        def compute(bill: Bill) -> Answer:
            drawn = noise.sample(plan, self._bits)
            steps = totals_of(table.engine, request.query, plan) + drawn
            total = plain(plan.shaped(steps.astype(np.float64) * plan.units))
            known = str(request.query), total, spread, margin, confidence, self.rows, plan.segments, bill
            return Answer(*known, True, told, grain)

        def price(bill: Bill) -> Price:
            words = in_words(plan, self._norms(request, plan), table.neighbours, table.unit)
            known = str(request.query), bill, spread, margin, confidence, self.rows, words
            return expected(request.select, Price(*known, affordable=False, grain=grain))

        return Work(self._scope(plan), noise.cost, noise.name, compute, price)

    def estimate(self, request: Request) -> Price:
        """The price; the data stay untouched."""
        quote = self.quote(request)
        keys_left = self._ledger.left(account=KEYS) if quote.keys else 0
        return quote.at(self._budget, self._ledger.left(quote.scope), keys_left)

    def quote(self, request: Request) -> Price:
        """The price but for what is left; reads neither rows nor ledger."""
        table = self._table.bounded(request.bounds)
        if isinstance(request.query, Quantiles) and self._choice(request, request.query) is None:
            return expected(request.select, counted_price(self, request, request.query, self.quote))
        found = published_answer(self._published, request, self.rows)
        if found is not None:
            free = self._bill(table, 0, 0, found[1].cost.mechanism)
            return expected(request.select, replace(found[0].estimate(request), cost=free))
        work = self._work(request)
        units = self._due(request, work.cost)
        assert work.promise is not None
        price, keys = work.promise(self._bill(table, units, 0, work.name)), self._budget.key_units(work.cost)
        known = {"affordable": False, "units": units, "scope": work.scope, "keys": keys}
        return Price(**{**vars(price), **known})  # faster than dataclasses.replace

    def explain(self, question: Question, **stated: Unpack[Stated]) -> str:
        """How the question is read, what a row can change, noise, price, statements; reads no row, costs nothing."""
        effort = Effort.of(**stated)
        if not (isinstance(question, str) and is_select(question)):
            return self._explained(Request(self._query(question), effort))
        from dodona.oracles.fronts import behind  # which knows curators

        oracle, select = self.read(question)
        return Curator._explained(*behind(oracle, Request.of(select, effort)))

    def _explained(self, request: Request) -> str:
        offer = self.estimate(request)
        if isinstance(request.query, Apart):
            lines = [*map(self._explained, requests_apart(request, request.query)), f"together    {offer}"]
        elif isinstance(request.query, Quantiles):
            lines = [f"read as     {request.query}", str(offer)]
        else:
            plan, engine = self._priced(request)[0], self._table.bounded(request.bounds).engine
            lines = [explained(request.query, plan, offer, engine.explain(plan.program))]
        return "\n".join([*lines, *finished_lines(request.select)])

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Price, charge, then score and choose."""
        table = self._table.bounded(request.bounds)
        ballot, effort = ballot_for(request.query, table), request.effort
        chooser = chooser_for(ballot, effort, self._budget, self.rows, mechanism)
        plan = ballot.plan
        require_told(table.engine, plan)
        told = left_out(request.query, plan, self.schema, table.unit)

        def compute(bill: Bill) -> Selection:
            index = chooser.sample(ballot.tally(table.engine.totals(plan.program)), self._bits)
            margin = chooser.error(ballot.count, effort.confidence) * ballot.unit
            what = f"candidate {index} of {ballot.count}"
            return Selection(index, what, margin, effort.confidence, self.rows, bill, True, told)

        self._table.engine.check()
        work = Work(self._scope(plan), chooser.cost(), chooser.name, compute)
        return self._charged(request, work, Selection.from_json)

    def perform(self, request: Request) -> Finding:
        """Price, charge, then run the procedure on the rows."""
        if request.bounds is not None:
            raise Unsupported("a procedure sees rows by its own bounds, or the table's own max_rows: state no other.")
        work = self._work(request)
        self._table.engine.check()
        return self._charged(request, work, Finding.from_json)

    def _choice(self, request: Request, query: Quantiles) -> Offer | None:
        """The private choice of quantiles; None where counts of all cells promise fewer ranks."""
        offer = self._offer(request, query)
        return None if better_counted(self, request, query, offer, self.quote) else offer

    def _offer(self, request: Request, query: Quantiles) -> Offer:
        table = self._table.bounded(request.bounds)
        offer = offer_for(query, table, request.effort, self._budget)
        require_told(table.engine, offer.plan)
        offer.require_room(request.most)
        return offer

    def _given(self, request: Request, answer: Answer) -> Answer:
        """An entry of amount 0 in the ledger, which says what asking the rows would have cost."""
        plan, noise = self._priced(request)
        saved = self._budget.amount(self._due(request, noise.cost))
        mechanism = f"{answer.cost.mechanism}; saved {self._budget.unit} {float(saved):.4g}"
        given = lambda bill: replace(answer, cost=bill, rows=self.rows)  # noqa: E731
        return self._charged(request, Work(self._scope(plan), FREE, mechanism, given), Answer.from_json)

    # -- the order that keeps the promise: price, charge, compute, store ---------------------------------------------

    def _priced(self, request: Request) -> tuple[Plan, Noise]:
        table = self._table.bounded(request.bounds)
        effort, level = request.effort, request.effort.kind == "tolerance"
        plan = self._plans.of(request.query, level=level)
        require_told(table.engine, plan)
        plan = beyond(plan, request.query, table.unit, level=level)
        if request.most is not None and plan.dimension > request.most:
            raise BadQuery(
                f"an answer must have at most {request.most:,} numbers. This one would have {plan.dimension:,}."
            )
        norms = self._norms(request, plan)
        return plan, noise_for(plan, norms, effort, self._budget, self.rows, request.select is not None)

    def _norms(self, request: Request, plan: Plan) -> Norms:
        """The sensitivity: of one row, or of all rows of one unit."""
        table, level = self._table.bounded(request.bounds), request.effort.kind == "tolerance"
        row, unit = plan.reach.under(table.neighbours), table.unit
        norms = row if unit is None else unit.norms(request.query, row, plan.program)
        return beyond_norms(norms, request.query, unit, plan.program, level=level)

    def _charged(self, request: Request, work: Work, restore: Callable[[str], Stored]) -> Stored:
        units, table = self._due(request, work.cost), self._table.bounded(request.bounds)
        asked: dict[str, Any] = {
            "amount": units,
            "analyst": self._analyst,
            "request_id": request.key or secrets.token_hex(16),
            "what": shortened(request.text or str(request.query)),
            "detail": f"{request.fingerprint(work.name)}{table.terms}; table={table.mark}{noted(work.cost)}",
            "scope": work.scope,
            "schema": self.schema.digest,  # what the columns mean: a stored answer is none to another meaning
            "keys": self._budget.key_units(work.cost),
        }
        charge = self._ledger.charge(**asked) if work.part is None else None
        if work.part is not None:
            charge, units = work.part.charge(self._ledger, self._budget, asked)
        assert charge is not None
        if charge.lost:
            raise AnswerLost
        if charge.answer is not None:
            return restore(charge.answer)
        try:
            bill = self._bill(table, units, charge.receipt.left, work.name, charge)
            result = self._during(lambda: work.compute(bill))
            self._ledger.store_answer(charge.entry.seq, result.to_json())
        except LedgerError:
            raise
        except Exception:  # whatever it says could tell of the data
            raise AnswerLost from None
        return result  # type: ignore[no-any-return]

    def _due(self, request: Request, cost: Cost) -> int:
        """In units. All of the budget for one question is charged only where the asker said so: ``share=1``."""
        return self._budget.due(cost) if request.effort.whole else self._budget.units(cost)

    def _scope(self, plan: Plan) -> tuple[int, ...] | None:
        """Who pays; everyone where no group can meet the condition."""
        return self._atoms.touched(plan.scopes) or None

    def _bill(self, table: Table, units: int, left: int, mechanism: str, charge: Charge | None = None) -> Bill:
        budget, place = self._budget, charge.receipt.place if charge else ()
        share = float(Fraction(units, budget.capacity))
        amounts = float(budget.amount(units)), budget.unit, share, float(budget.amount(max(left, 0)))
        return Bill(*amounts, table.promised, mechanism, *place)
