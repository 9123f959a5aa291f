"""Where tables become oracles: several about the same people, and the arrays of a scikit-learn user.

``Dataset``: one unit, one population, one budget, one ledger. A row of every private table belongs to one person. Each
table, and each join of tables, is an oracle with the same contract; whatever is asked of any of them, one ledger pays.

``curator_over`` and what follows it: the one door between the estimators, which know no engine and no trust model, and
the rooms that do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.engines.joined import together
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.engines.public import Public
from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.oracles.answer import Price
from dodona.oracles.curator import Curator
from dodona.oracles.effort import Stated
from dodona.oracles.oracle import Oracle
from dodona.oracles.rows import Rows
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import Ledger
from dodona.privacy.numbers import Number
from dodona.query.compiler import Compiler
from dodona.query.expr import Expr, columns_of
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Schema, same_name
from dodona.query.select import split_options
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
