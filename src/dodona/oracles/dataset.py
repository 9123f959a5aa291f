"""Where tables become oracles: several about the same people, and the arrays of a scikit-learn user; and how much each
of the people contributes to them (``Contributions``).

``Dataset``: one unit, one population, one budget, one ledger. A row of every private table belongs to one person. Each
table, and each join of tables, is an oracle with the same contract; whatever is asked of any of them, one ledger pays.

``curator_over`` and what follows it: the one door between the estimators, which know no engine and no trust model, and
the rooms that do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.engines.joined import together
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.engines.public import Public
from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.oracles.answer import Answer, Price
from dodona.oracles.curator import Curator
from dodona.oracles.effort import Stated
from dodona.oracles.oracle import Oracle, Question
from dodona.oracles.rows import Estimate, Rows
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import Ledger
from dodona.privacy.numbers import Number
from dodona.query.compiler import Compiler
from dodona.query.expr import Column, Expr, columns_of
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Schema, same_name
from dodona.query.select import read_from, split_options
from dodona.query.select.aggregates import ONE
from dodona.query.statistic import Partition, Value, as_expr, bucket
from dodona.query.text import parse_tree, uncommented


class Dataset(Mapping[str, Oracle]):
    """``tables``: private ones (``Table``) and public ones (``Public``), by the names that FROM calls them.

    ``unit``: what a person is called; needed where more than one table is private, and then each says whose row a row
    is. ``budget``, ``ledger``, ``analyst``, ``create``: as a ``Curator``'s, for all tables together. ``population``:
    whom the ledger protects; the places of the private tables, unless given.
    """

    def __init__(
        self,
        tables: Mapping[str, Table | Public],
        unit: str | None = None,
        *,
        budget: Budget,
        ledger: str | os.PathLike[str] | None = None,
        population: str | None = None,
        analyst: str = "curator",
        create: bool = False,
    ) -> None:
        first, *others = together(tables, unit, population).values()
        self._keep(Curator(first, budget, ledger, analyst=analyst, create=create), others)

    @classmethod
    def sharing(cls, first: Curator, others: Iterable[Table]) -> Dataset:
        """The other tables beside the one whose ledger is open already."""
        dataset = cls.__new__(cls)
        dataset._keep(first, others)
        return dataset

    def _keep(self, first: Curator, others: Iterable[Table]) -> None:
        self._curators = {first.name: first, **{table.name: first.beside(table) for table in others}}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(map(repr, self._curators.values()))}>"

    @property
    def ledger(self) -> Ledger:
        """What was asked of all tables, by whom, what it cost."""
        return next(iter(self._curators.values())).ledger

    @property
    def left(self) -> float:
        """What is left for a question about everyone, in the budget's unit."""
        return next(iter(self._curators.values())).left

    def __getitem__(self, name: str) -> Oracle:
        """A private table by its name, or tables joined as FROM writes it: ``dataset["visits JOIN zips USING (zip)"]``.

        Rows that a JOIN leaves out count in no total; means still divide by the number of all rows.
        """
        found = next((curator for own, curator in self._curators.items() if same_name(name, own)), None)
        if found is not None:
            return found
        return next(iter(self._curators.values())).join(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._curators)

    def __len__(self) -> int:
        return len(self._curators)

    def sql(self, text: str, *, request_id: str | None = None, **stated: Unpack[Stated]) -> Rows:
        """A SELECT from any of the tables, or from tables joined."""
        return self.reader(text).sql(text, request_id=request_id, **stated)

    def price(self, text: str, **stated: Unpack[Stated]) -> Price:
        """What a SELECT would cost, before anything is spent."""
        return self.reader(text).price(text, **stated)

    def explain(self, text: str, **stated: Unpack[Stated]) -> str:
        """How a SELECT is read, what it would cost, and how it would run."""
        return self.reader(text).explain(text, **stated)

    def with_keys(self, keys: Synopsis) -> Dataset:
        """The same, on the same budget, where the keys that ``release.keys`` found in one of its tables are a category:
        in statements about that table, in joins with it, and as what a public table is joined on.
        """
        first = self._first(keys.name).with_keys(keys)
        assert first._table.tables is not None
        made = {
            name: first if name == first.name else first.beside(table)
            for name, table in first._table.tables.private.items()
        }
        dataset = type(self).__new__(type(self))
        dataset._curators = {name: made[name] for name in self._curators}
        return dataset

    def reader(self, text: str) -> Curator:
        """Who reads a statement: the curator of the first private table it names."""
        statement = split_options(uncommented(text))[0]
        named = [str(node.name) for node in parse_tree(statement).walk() if type(node).__name__ == "Table"]
        for name in named:
            if any(same_name(name, own) for own in self._curators):
                return self._first(name)
        raise BadQuery(
            f"a SELECT names its table: FROM {' or '.join(self._curators)}. Got {', '.join(named) or 'none'}."
        )

    def _first(self, name: str) -> Curator:
        found = [curator for own, curator in self._curators.items() if same_name(name, own)]
        if not found:
            raise BadQuery(f"{name} is not a private table of this dataset. There are {', '.join(self._curators)}.")
        return found[0]


def curator_over(columns: Mapping[str, NDArray[Any]], schema: Schema, epsilon: Number, delta: Number) -> Oracle:
    """A curator over arrays with a budget of its own, kept as long as the oracle is."""
    cleaned, rows = read_columns(dict(columns), schema)
    engine = MemoryEngine(schema, cleaned, rows, public_rows=True)  # nobody asks a fit what cleaning left out
    return Curator(Table(engine, schema, name="data"), Budget(epsilon=epsilon, delta=delta))


# Conditions judged on rows a user holds: what a hypothesis predicts for a data frame or arrays.
#
# A hypothesis is a row condition;
# the same compiled program that an oracle sums over its rows is run here over the user's, so both faces agree on every
# row, clipping, missing values and unlisted categories included.


def truth(condition: Expr, rows: Any, schema: Schema) -> NDArray[np.bool_]:
    """Where ``condition`` is true of ``rows`` (a data frame, an Arrow table or a mapping of arrays); NULL is not.

    Only the columns it reads must be there.
    """
    build = Builder()
    step = Compiler(schema, build).condition(condition).step
    program = Program(tuple(build.steps), (Block((), 0, where=step),))
    read = columns_of(condition)
    known = {name: column for name, column in schema.items() if name in read} or dict(schema)
    columns, count = read_columns(rows, Schema(known))
    values, null = MemoryEngine(schema, columns, count, public_rows=True).run(program, 0, count)[step]
    true = values if null is None else values & ~null
    return np.array(np.broadcast_to(true, (count,)), dtype=bool)


# How much single people contribute, and so what a bound on it costs: noise against what the bound leaves out.
#
# The noise of a question under a bound is public and free to know (``price``). What the bound leaves out is not: it
# follows from how many rows people have, or what their rows come to. A histogram of people by that moves by 1 in one
# cell with whoever comes or goes, so it is as cheap as a question can be, and it tells the loss of every bound at once.

MOST_CELLS = 4096
DOUBLING = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Way:
    """One bound, the ``margin`` that noise has under it, and what it leaves out, where that is known.

    ``lost``: rows, or of a clip a part of the sum; ``people``: how many of them it leaves out something of.
    """

    bound: float
    margin: float
    lost: Estimate | None = None
    people: Estimate | None = None

    @property
    def error(self) -> float:
        """Noise and loss together, as if each row that is lost counted 1."""
        return self.margin + (0.0 if self.lost is None else max(self.lost.value, 0.0))


@dataclass(frozen=True)
class Ways:
    """What the bounds of one question cost. ``kind``: max_rows, or clip."""

    kind: str
    ways: tuple[Way, ...]

    @property
    def best(self) -> Way:
        """The one with the least noise and loss together; the least noise alone where no loss is known."""
        return min(self.ways, key=lambda way: way.error)

    def __str__(self) -> str:
        lines = [f"{self.kind:>12}  {'noise':>12}  left out"]
        for way in self.ways:
            lost = "not known before ask()" if way.lost is None else f"at least {way.lost}, of {way.people} people"
            best = "  (least together)" if way.lost is not None and way is self.best else ""
            lines.append(f"{way.bound:>12,.10g}  {way.margin:>12,.4g}  {lost}{best}")
        return "\n".join(lines)


class Contributions:
    """How many people have 1, 2, ..., ``most`` rows, and more; or, ``of`` an expression, whose rows come to so much, in
    ``cells`` steps up to ``most``. ``where``: of which rows.

    ``price`` says what that costs, ``ask`` pays for it and gives it answered, ``plan`` weighs the bounds of a question.
    """

    answer: Answer | None = None

    def __init__(
        self, oracle: Oracle, of: str | None = None, *, most: float = 64, cells: int = 64, where: str | None = None
    ) -> None:
        cells = int(most) if of is None and not isinstance(most, bool) else cells
        if isinstance(most, bool) or not 1 <= most <= 10**9 or (of is None and most != cells):
            raise BadQuery(f"most must be a number from 1 to a milliard, a whole one of rows. Got {most!r}.")
        if isinstance(cells, bool) or not isinstance(cells, int) or not 1 <= cells <= MOST_CELLS:
            raise BadQuery(f"a histogram of contributions has 1 to {MOST_CELLS:,} cells. Got {cells!r}.")
        source, step = read_from(oracle.name), most / cells
        whose = f"{Column(source.alias)}.{Column(str(oracle.whose))}"
        had = (
            f"LEAST(COUNT(*), {cells + 1})" if of is None else f"GREATEST(LEAST(SUM({as_expr(of)}), {most + step}), 0)"
        )
        rows = "" if where is None else f" WHERE {as_expr(where)}"
        self._oracle, self._of, self._most = oracle, of, most
        self._people = oracle.persons(f"SELECT {whose}, {had} AS had FROM {source}{rows} GROUP BY {whose}")
        # What a person of each cell has, at most; whoever is in the last has more than ``most``.
        self._had = np.arange(cells + 2) * step if of is None else np.arange(1, cells + 2) * step
        by = Column("had") if of is None else bucket("had", [0.0, *self._had])
        self._query = Partition(by, Value(ONE))

    def price(self, **stated: Unpack[Stated]) -> Price:
        """What it costs to know; reads no row."""
        return self._people.price(self._query, **stated)

    def ask(self, *, request_id: str | None = None, **stated: Unpack[Stated]) -> Contributions:
        """The same, answered; pays for it."""
        found = copy(self)
        found.answer = self._people.ask(self._query, request_id=request_id, **stated)
        return found

    @property
    def people(self) -> dict[float, Estimate]:
        """How many have so much, and, under the last of the keys, more than that."""
        counts, margins = self._counts()
        told = [*self._had[:-1].tolist(), float("inf")]
        return {had: Estimate(float(n), float(m)) for had, n, m in zip(told, counts, margins, strict=True)}

    def over(self, bound: float) -> Estimate:
        """How many people a bound leaves out something of."""
        return self._sum((self._had > bound).astype(np.float64))

    def lost(self, bound: float) -> Estimate:
        """What a bound leaves out of all that people have; of more than ``most`` as if they had just that."""
        return self._sum(np.maximum(np.minimum(self._had, self._most) - bound, 0.0))

    def plan(self, question: Question, bounds: Sequence[float] | None = None, **stated: Unpack[Stated]) -> Ways:
        """The noise of a question under each bound: max_rows, or, of the sum of an expression, clip. Free, and once
        this is answered with what each bound leaves out.
        """
        kind = "max_rows" if self._of is None else "clip"
        usual = DOUBLING if self._of is None else self._had[:-1][:: max(1, len(self._had) // 8)].tolist()
        ways = []
        for bound in bounds or [one for one in usual if one <= self._most]:
            rows = {"max_rows": int(bound)} if self._of is None else {}
            clip = None if self._of is None else float(bound)
            price = self._oracle.bounded(clip=clip, **rows).price(question, **stated)
            margin = max([column.margin for column in price.columns] or [float(np.max(price.margin))])
            known = (self.lost(bound), self.over(bound)) if self.answer is not None else (None, None)
            ways.append(Way(float(bound), margin, *known))
        return Ways(kind, tuple(ways))

    def __str__(self) -> str:
        what = "rows" if self._of is None else f"of {self._of}"
        if self.answer is None:
            return f"how many people have so many {what}: not asked for yet"
        told = [f"{had:,.10g} {what}: {n}" for had, n in self.people.items() if np.isfinite(had)]
        return "\n".join([*told, f"more: {list(self.people.values())[-1]}"])

    def _counts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.answer is None:
            raise BadQuery("nothing is known of what people have before ask(share=...) has paid for it.")
        counts = np.ravel(np.asarray(self.answer.total, dtype=np.float64))[: len(self._had)]
        return counts, np.broadcast_to(np.asarray(self.answer.margin, dtype=np.float64).ravel(), counts.shape)

    def _sum(self, weights: NDArray[np.float64]) -> Estimate:
        """A sum of cells. Their noise is drawn apart, so deviations add as squares: an estimate, as if normal."""
        counts, margins = self._counts()
        return Estimate(float(weights @ counts), float(np.sqrt(weights**2 @ margins**2)), proven=False)
