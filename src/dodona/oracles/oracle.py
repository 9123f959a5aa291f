"""THE contract: what every oracle answers, whoever is trusted.

An algorithm is a client of this class. It sees the schema, the public number of rows and noisy answers; never rows,
noise or budgets. ``ask``, ``price``, ``sql`` and ``select`` mean the same on every oracle; a new trust model implements
the three abstract methods and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, Unsupported
from dodona.oracles.answer import Answer, Bill, Finding, Price, Selection
from dodona.oracles.effort import Divisible, Effort, Stated
from dodona.oracles.finishing import expected, finish, require_kept, require_printable
from dodona.oracles.rows import Rows, tabled
from dodona.query.candidates import Procedure
from dodona.query.expr import Expr
from dodona.query.persons import OfPeople
from dodona.query.quantiles import quantiles
from dodona.query.schema import Schema, same_name
from dodona.query.select import (
    Scope,
    Select,
    Source,
    Statement,
    is_select,
    parse_select,
    quantile_table,
    read_from,
    split_persons,
)
from dodona.query.select.clip import split_clipped
from dodona.query.statistic import Losses, Query, Stack, as_expr, as_query
from dodona.query.unit import Bounds

if TYPE_CHECKING:
    from dodona.oracles.view import HasSubspace

Question = str | Expr | Query
Given = TypeVar("Given", Answer, Finding, Selection)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Request:
    """One question with its effort.

    ``key``: the asker's name for it; a retry is then neither charged nor re-noised. ``text``: how the asker put it.
    ``most``: how many numbers its answer may have, where a server sets a limit; a curator refuses more, uncharged.
    ``select``: the statement it was made of; then a tolerance is of each total as it is printed, not of means per row.
    ``bounds``: with how many rows and in how many groups one person counts, where the question says so.
    """

    query: Query
    effort: Effort
    key: str | None = None
    text: str | None = None
    most: int | None = None
    select: Select | None = None
    bounds: Bounds | None = None

    @staticmethod
    def of(select: Select, effort: Effort, key: str | None = None, most: int | None = None) -> Request:
        """A statement with its effort; refused where a tolerance could not be kept for all that it prints."""
        require_printable(select, effort)
        return Request(select.query, effort, key, select.text, most, select, select.bounds)

    def fingerprint(self, mechanism: str) -> str:
        """The exact question, so that a request id cannot be reused for another one."""
        effort = self.effort
        digest = hashlib.sha256(json.dumps(self.query.to_json(), sort_keys=True).encode()).hexdigest()
        kind = f"printed {effort.kind}" if effort.kind == "tolerance" and self.select is not None else effort.kind
        stated = f"{mechanism}; {kind}={effort.amount}; confidence={effort.confidence}; sha256={digest}"
        return stated if self.bounds is None else f"{stated}; {json.dumps(self.bounds.describe(), sort_keys=True)}"


def shortened(text: str, most: int = 2000) -> str:
    """A question's text as ledgers keep it."""
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True, eq=False)
class Prefixed:
    """How many rows have each prefix that was asked about, how far noise spreads it, its margin at a confidence."""

    counts: NDArray[np.float64]
    spread: NDArray[np.float64]
    margin: Callable[[float], float]
    bill: Bill


class Oracle(ABC):
    """Answers statistical queries about rows it does not show."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The public facts about the columns."""

    @property
    @abstractmethod
    def rows(self) -> int | None:
        """The public number of rows; None where it is private and nobody stated one."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What FROM calls the table."""

    @property
    def prefix_lengths(self) -> tuple[int, ...]:
        """Where rows have reported on prefixes of a whole number's bits already, the lengths; else none, and any may be
        asked about.
        """
        return ()

    def count_prefixes(self, prefixes: Sequence[int], length: int) -> Prefixed:
        """How many rows' numbers begin with each of the ``prefixes``, where reports are on such."""
        raise Unsupported(f"no reports on {len(prefixes)} prefixes of {length} bits are here: ask for counts.")

    @property
    def whose(self) -> str | None:
        """The column that says whose row it is, where the oracle knows of one."""
        return None

    @property
    def clip(self) -> float | None:
        """How far from 0 one person's sums may be, where statements say nothing else."""
        return None

    @property
    def sees_totals(self) -> bool:
        """Whether choices are made on totals, not on noisy reports: only then may scores be other than linear."""
        return True

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f" of {self.rows:,} rows"
        return f"<{type(self).__name__}: {self.name}{rows} ({', '.join(self.schema)}){self._told()}>"

    def _told(self) -> str:
        """What else it says of itself when it is printed: what is left to spend, say."""
        return ""

    @abstractmethod
    def answer(self, request: Request) -> Answer:
        """Charge, then answer."""

    @abstractmethod
    def estimate(self, request: Request) -> Price:
        """What ``answer`` would cost and how good it would be; reads no row, charges nothing."""

    @abstractmethod
    def choose(self, request: Request, mechanism: str) -> Selection:
        """Charge, then pick the coordinate of the request's query whose total is about the largest."""

    def perform(self, request: Request) -> Finding:
        """Charge, then run the request's procedure; only oracles that hold rows can."""
        raise Unsupported(
            f"{type(self).__name__} answers statistical queries only, and {request.query} cannot be had from them: no "
            "local or statistical-query learner finds parities from fewer than exponentially many rows or questions "
            "(Kasiviswanathan et al. 2011, Corollary 5.15). Run it on a Curator, a server trusted with the rows."
        )

    def purely(self) -> Oracle | None:
        """Its whole promise as one budget of pure epsilon, where that is another way to spend all of it: None here.

        For algorithms of several questions that may spend everything (``share=1``) and plan both ways; one question
        chooses the better noise by itself.
        """
        return None

    @property
    def free(self) -> bool:
        """Whether questions need no effort: it adds no noise, or what it tells was paid for before."""
        return False

    def ask(self, question: Question, *, request_id: str | None = None, **stated: Unpack[Stated]) -> Answer:
        """The sum and mean over rows of an expression or query, with error and cost."""
        effort = Effort.of(free=self.free, **stated)
        return self.answer(Request(self._query(question), effort, request_id))

    def price(self, question: Question, **stated: Unpack[Stated]) -> Price:
        """What the question would cost, before anything is spent; of a SELECT, with the error of each column."""
        effort = Effort.of(free=self.free, **stated)
        if not (isinstance(question, str) and is_select(question)):
            return self.estimate(Request(self._query(question), effort))
        select, price = self.statement(question, effort, None, lambda oracle, request: oracle.estimate(request))
        return expected(select, price)

    def sql(self, text: str, *, request_id: str | None = None, **stated: Unpack[Stated]) -> Rows:
        """A SELECT: aggregates under WHERE and GROUP BY, finished by HAVING, ORDER BY and the like, with their errors.

        A tolerance is the error of each number that is printed, in its own units: of a COUNT, so many rows.
        """
        effort = Effort.of(free=self.free, **stated)
        select, answer = self.statement(text, effort, request_id, lambda oracle, request: oracle.answer(request))
        rows = finish(select, answer)
        return require_kept(rows, effort) if self.free else rows

    def statement(
        self, text: str, effort: Effort, key: str | None, to: Callable[[Oracle, Request], Result]
    ) -> tuple[Select, Result]:
        """A statement, and what ``to`` makes of it and of the oracle it is of. Where answers are free, a tolerance is
        judged when they are there.

        What was published without the rows that are in no group is shown without them.
        """
        oracle, select = self.read(text)
        if not self.free:
            return select, to(oracle, Request.of(select, effort, key))
        try:
            return select, to(oracle, Request(select.query, effort, key, text, select=select, bounds=select.bounds))
        except Unsupported:
            oracle, select = self.read(text, other=False)
            return select, to(oracle, Request(select.query, effort, key, text, select=select, bounds=select.bounds))

    def read(self, text: str | Statement, *, other: bool = True) -> tuple[Oracle, Select]:
        """A statement as a question, and the oracle to ask it: this one, one of the tables that FROM joins, or one of
        people, each made of its rows first.
        """
        statement = Statement(text) if isinstance(text, str) else text
        nested = split_persons(statement.text, self.whose) or split_clipped(
            statement, self.schema, self.whose, self.clip
        )
        if nested is not None:
            made = self.persons(nested.inner, max_groups=nested.bounds.max_groups, max_rows=nested.bounds.max_rows)
            oracle, select = made.read(nested.outer(made.name), other=other)
            return oracle, replace(select, text=statement.text)
        source = statement.source
        own = source is None or (
            not source.joins and source.table == source.alias and same_name(source.table, self.name)
        )
        oracle, scope = (self, None) if source is None or own else self.joined(source)
        select = parse_select(statement, oracle.schema, oracle.name, oracle.whose, other=other, scope=scope)
        if select.bounds is not None:
            from dodona.oracles.view import require_people

            require_people(oracle)
        return oracle, select

    def joined(self, source: Source) -> tuple[Oracle, Scope]:
        """The oracle of tables that are joined, and what names mean there; only datasets of several tables have one."""
        if not source.joins and same_name(source.table, self.name):
            return self, Scope({source.alias: {name: name for name in self.schema}})
        if not source.joins:
            raise BadQuery(f"FROM must name the one table there is: {self.name}.")
        raise Unsupported(
            f"{self.name} is one table, by itself: a JOIN is asked of a dataset that holds both, dataset.sql(...) "
            "(dodona.Dataset, or [tables.NAME] in survey.toml)."
        )

    def join(self, text: str, *, rows: int | None = None) -> Oracle:
        """Another table of the same dataset, or tables joined, as FROM writes them: ``visits JOIN zips USING (zip)``.

        Rows that a JOIN leaves out count in no total; means still divide by the number of all rows. ``rows``: about how
        many rows a join of private tables has, if that is publicly known; means and learners need it.
        """
        from dodona.oracles.fronts import gated

        return gated(*self.joined(read_from(text)), rows=rows)

    def losses(
        self, columns: Sequence[str] | None = None, *, request_id: str | None = None, **stated: Unpack[Stated]
    ) -> Rows:
        """How much the schema and the unit leave out: noisy counts of rows that are clipped at each end, missing, not
        listed, or beyond a person's limit. One request and one bill; of all columns unless some are named. What another
        limit would leave out is told by ``dodona.Contributions``.

        Only who holds the raw values can count them: a curator, ``Exact``, or a server's curator.
        """
        effort = Effort.of(free=self.free, **stated)
        query = Losses(tuple(self.schema.stored if columns is None else columns))
        text = f"losses of {', '.join(query.columns)}"
        return tabled(query, self.schema, self.answer(Request(query, effort, request_id, text)))

    def quantile(
        self,
        of: str | Expr,
        fractions: float | Sequence[float] = 0.5,
        *,
        by: str | Expr | Sequence[str | Expr] = (),
        where: str | Expr | None = None,
        bits: int | None = None,
        bracket: bool = True,
        request_id: str | None = None,
        **stated: Unpack[Stated],
    ) -> Rows:
        """The values below which these fractions of the rows lie: a median, unless others are named.

        ``by``: of each group; ``where``: of the rows that meet a condition; all together cost as one question.
        ``bits``: the precision, 2^bits cells of the range. ``bracket``: False spends all on the values, and nothing on
        the two beside each that hold the true one between them; then its margin is what the range says.
        """
        if isinstance(of, int | float):
            raise BadQuery(f"say first of what: quantile('age', {of:g}).")
        listed = [fractions] if isinstance(fractions, int | float | str | Fraction) else list(fractions)
        keys = [by] if isinstance(by, str | Expr) else list(by)
        exprs = [as_expr(key) for key in keys]
        query = quantiles(
            [(as_expr(of), listed)],
            by=exprs,
            where=None if where is None else as_expr(where),
            bits=bits,
            bracket=bracket,
        )
        effort = Effort.of(free=self.free, **stated)
        return finish(quantile_table(query, self.schema), self.answer(Request(query, effort, request_id)))

    def select(
        self,
        candidates: Question | Sequence[Question],
        *,
        mechanism: str = "best",
        request_id: str | None = None,
        **stated: Unpack[Stated],
    ) -> Selection:
        """The candidate with about the largest total: a list of questions, or the coordinates of one vector query.

        ``mechanism``: "permute-and-flip", "exponential", or "best": the one with the smaller predicted error.
        """
        effort = Effort.of(free=self.free, **stated)
        several = not isinstance(candidates, str | Query) and isinstance(candidates, Sequence)
        if several and not candidates:
            raise BadQuery("select needs at least one candidate.")
        query = Stack(tuple(map(self._query, candidates))) if several else self._query(candidates)  # type: ignore[arg-type]
        return self.choose(Request(query, effort, request_id), mechanism)

    def run(self, procedure: Procedure, *, request_id: str | None = None, **stated: Unpack[Divisible]) -> Finding:
        """Run an algorithm that no statistical query can express; trusted servers only (KLNRS section 4)."""
        if not isinstance(procedure, Procedure):
            raise BadQuery(f"run() takes a procedure, such as ParityProcedure. Got {type(procedure).__name__}.")
        effort = Effort.divisible(free=self.free, **stated)
        return self.perform(Request(procedure, effort, request_id))

    def select_columns(self, *names: str) -> Oracle:
        """The same oracle with these columns only; itself where these are all it has."""
        from dodona.oracles.view import narrowed

        return self if names == tuple(self.schema) else narrowed(self, names)

    def project(self, fitted: HasSubspace) -> Oracle:
        """The same oracle with the projections a fitted model (PCA, SVD) found as its columns: pc1, pc2, ..."""
        from dodona.oracles.view import projected

        return projected(self, fitted.subspace)

    def bounded(
        self,
        *,
        max_rows: int | None = None,
        max_groups: int | None = None,
        max_rows_per_group: int | None = None,
        clip: float | None = None,
    ) -> Oracle:
        """The same oracle, each of whose questions counts at most so much of one person's rows.

        ``max_rows``: in all. ``max_groups``: in so many groups of the question. ``max_rows_per_group``: in each of
        them. What is not stated is as the table says. Rows that a question does not count take nobody's place.
        ``clip``: of statements, and of sums of an expression; one person's sum is put within -clip and clip, whatever
        rows it is of, none of which is left out: ``max_rows`` is then what their number is put within.
        """
        from dodona.oracles.view import Bounded

        return Bounded(self, Bounds(max_rows, max_groups, max_rows_per_group, clip))

    def persons(self, select: str, **stated: Unpack[OfPeople]) -> Oracle:
        """The people that an inner SELECT makes of the rows, one row each: ``persons("SELECT patient, LEAST(SUM(cost),
        500) AS cost FROM visits GROUP BY patient")``. Ask, learn and release with it as with any oracle.

        ``max_groups``: in how many groups each counts, where there are further keys. ``max_rows``: sums and counts that
        state no range get that of so many rows; no row is left out. ``rows``: about how many rows of people there are,
        if that is publicly known.
        """
        del stated
        raise Unsupported(
            f"{type(self).__name__} cannot make people of rows ({shortened(select, 60)}): that needs who holds the "
            "rows and knows whose they are, a Curator of a table with a unit."
        )

    def _query(self, question: Question) -> Query:
        if isinstance(question, str) and is_select(question):
            raise BadQuery("a SELECT goes to sql(), not ask(); ask() takes one row expression.")
        return as_query(question)
