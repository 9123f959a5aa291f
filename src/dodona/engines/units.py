"""Whose rows they are, as sources in memory say it, and in which order the rows of one unit count.

A unit is a whole number for each row. The order is by a hash of what the rows say, in operations that all engines agree
on. Where nobody knows whose they are, a row may stand for several (``Weighted``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine, Pick, Respond
from dodona.errors import BadTable, Unsupported
from dodona.query.compiler import Compiler, exponent
from dodona.query.expr import Column
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Category, Flag, Schema, Text
from dodona.query.unit import Unit


def require_unit(unit: Unit, family: str, kind: str) -> None:
    """Refuses a unit column whose equality is not plain."""
    if family not in ("integer", "text", "csv"):
        raise BadTable(
            f"the unit column {unit.column!r} must hold whole numbers or text. Got {kind}: store it as one of them."
        )


def require_key(column: str, family: str, kind: str) -> None:
    """Refuses a column that other tables' rows name rows by, whose equality is not plain."""
    if family not in ("integer", "text", "csv"):
        raise BadTable(f"the key {column!r} must hold whole numbers or text. Got {kind}: store it as one of them.")


def require_alike(kinds: Sequence[tuple[str, str]]) -> None:
    """Refuses units of other types in tables that are joined. ``kinds``: each unit's column, whole numbers or text."""
    if len({kind for _, kind in kinds}) > 1:
        listed = ", ".join(f"{column} holds {kind}" for column, kind in kinds)
        raise BadTable(f"whose rows they are must be of one type in all tables. Got {listed}: store them alike.")


def readable_twice(source: Any) -> Any:
    """The source itself, or, of an Arrow stream, which can be read once only, its table."""
    known = isinstance(source, np.ndarray | Mapping) or type(source).__name__ == "DataFrame"
    if known or not hasattr(source, "__arrow_c_stream__"):
        return source
    from dodona.engines.memory.frames import whole_table

    return whole_table(source)


def unit_codes(source: Any, unit: Unit) -> Callable[[], NDArray[np.int64]]:
    """A function that gives a whole number for each row's unit, from arrays, data frames and Arrow tables; rows without
    one share one. What it needs is held or copied now: a source in memory may change later.
    """
    try:
        column = source.column(unit.column) if hasattr(source, "column_names") else source[unit.column]
    except (KeyError, IndexError, ValueError, TypeError):
        raise BadTable(f"the data must have the unit column {unit.column!r}, by name.") from None
    if hasattr(column, "dictionary_encode"):  # Arrow
        return _arrow_codes(column, unit)
    if hasattr(column, "to_physical"):  # Polars
        texts = str(column.dtype).startswith(("String", "Categorical", "Enum"))
        family = "text" if texts else "integer" if column.dtype.is_integer() else "other"
        require_unit(unit, family, str(column.dtype))
        return lambda: np.asarray(column.rank("dense").fill_null(0).to_numpy()).astype(np.int64)
    if hasattr(column, "factorize"):  # pandas
        codes, labels = column.factorize()
        require_unit(unit, _array_family(np.asarray(labels)), str(column.dtype))
        found = np.asarray(codes).astype(np.int64)
        return lambda: found
    array = np.ma.array(column, copy=True)
    values, null = np.ma.getdata(array), np.ma.getmaskarray(array)
    require_unit(unit, _array_family(values), str(values.dtype))
    return lambda: _array_codes(values, null)


def _array_codes(values: NDArray[Any], null: NDArray[np.bool_]) -> NDArray[np.int64]:
    if values.dtype.kind in "OT":  # NumPy takes two texts of kind T for one if they differ after a NUL
        known: dict[Any, int] = {None: -1}
        whose = (value if isinstance(value, str | int) else None for value in values.tolist())
        return np.fromiter((known.setdefault(value, len(known)) for value in whose), np.int64, len(values))
    _, codes = np.unique(values, return_inverse=True)
    return np.where(null, -1, codes).astype(np.int64)


def _arrow_codes(column: Any, unit: Unit) -> Callable[[], NDArray[np.int64]]:
    import pyarrow as pa

    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    require_unit(unit, _arrow_family(plain.type), str(column.type))

    def codes() -> NDArray[np.int64]:
        encoded = plain.combine_chunks().dictionary_encode()
        return np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)

    return codes


def _array_family(values: NDArray[Any]) -> str:
    """Of a NumPy array; objects must be texts, whole numbers or None."""
    if values.dtype.kind == "O":
        listed = {type(value) for value in values.tolist()} - {type(None)}
        return "text" if listed <= {str, int} else "other"
    return {"i": "integer", "u": "integer", "U": "text", "T": "text"}.get(values.dtype.kind, "other")


def _arrow_family(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return "integer"
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return "text" if any(test(kind) for test in texts) else "other"


PRIME = 33_554_393  # the largest below 2^25, so that squares of (twice) its remainders are exact in a double
_TERMS = 64  # of one inner product: each below 2^25 2^20, so their sum is exact
_HALF = 25  # bits of each half of a number


@dataclass(frozen=True)
class Order:
    """The program that ranks rows: its ``hash`` step, and for each column of the schema its cleaned value's step.

    Open texts have none: they decide, as they are, between rows that are the same in all other columns.
    """

    program: Program
    hash: int
    columns: dict[str, int]


def order(schema: Schema) -> Order:
    """A hash of a row's cleaned values in whole doubles, of the operations that all engines agree on to the last bit.

    Each number, on a grid of 50 bits, is cut in two halves g; inner products with fixed weights are taken modulo a
    prime and chained by h <- h^2 + g.w mod p. It spreads the choice; it need not resist anyone, because a unit's rows
    only ever compete with each other.
    """
    build = Builder()
    compiler = Compiler(schema, build)
    columns: dict[str, int] = {}
    terms: list[int] = []
    for name, column in schema.items():
        if isinstance(column, Text):  # compared after all others, where the rows are
            continue
        value = compiler.value(Column(name))
        columns[name] = value.step
        if isinstance(column, Category | Flag):
            number = build.emit("number", value.step) if isinstance(column, Flag) else value.step
            terms.append(build.emit("coalesce", number, build.const(-1.0)))
            continue
        bits = 2 * _HALF - exponent(max(abs(column.low), abs(column.high)))
        whole = build.emit("grid", value.step, constants=(min(column.low, 0.0), max(column.high, 0.0), bits))
        high = build.emit("floor", build.emit("mul", whole, build.const(2.0**-_HALF)))
        low = build.emit("sub", whole, build.emit("mul", high, build.const(2.0**_HALF)))
        terms += [low, high, build.emit("number", build.emit("is_null", value.step))]
    mixed = build.const(1.0)
    for start in range(0, len(terms), _TERMS):
        part = terms[start : start + _TERMS]
        weights = [_weight(start + i) for i in range(len(part))]
        inner = _remainder(build, build.emit("dot", *part, constants=weights))
        mixed = _mixed(build, mixed, inner)
    for _ in range(2):
        mixed = _mixed(build, mixed, build.const(0.0))
    block = Block((mixed, *columns.values()), 1)
    return Order(Program(tuple(build.steps), (block,)), mixed, columns)


def _mixed(build: Builder, mixed: int, inner: int) -> int:
    """h^2 + h + inner + a constant, modulo p: whole and below 2^53 on the way."""
    square = build.emit("add", build.emit("mul", mixed, mixed), mixed)
    shifted = build.emit("add", inner, build.const(12_345.0))
    return _remainder(build, build.emit("add", square, shifted))


def _remainder(build: Builder, x: int) -> int:
    """x - floor(x/p) p, in [-p, 2p): the rounded quotient may be one off, alike everywhere; far faster than fmod."""
    quotient = build.emit("floor", build.emit("mul", x, build.const(1.0 / PRIME)))
    return build.emit("sub", x, build.emit("mul", quotient, build.const(float(PRIME))))


def _weight(index: int) -> float:
    """A fixed number below 2^20 for the index."""
    return float(int.from_bytes(hashlib.sha256(b"dodona row order %d" % index).digest()[:4]) % 2**20 | 1)


EXACT = 2**53  # whole doubles below it are exact, and so are products that stay below it
MOST_PRODUCTS = 4096


class Weighted(Engine):
    """``engine``, which holds the column ``unit.weight`` too, with each row as often as that says.

    A row of weight w is as w copies of it, so each sum of values is one of values times weights, whole numbers both,
    and a number of different values is of rows with a weight above 0. What a person may change is ``max_rows`` of the
    weights in all, so many copies, one after the other: sums move by that many times what one row moves them by.
    """

    def __init__(self, engine: Engine, schema: Schema, unit: Unit) -> None:
        super().__init__(schema, unit=engine.unit, public_rows=engine.public_rows)
        self._engine, self._weight, self._heaviest = engine, str(unit.weight), unit.heaviest
        self.tells_losses, self.reads_texts = engine.tells_losses, engine.reads_texts

    @property
    def lasting_order(self) -> bool:
        """Nobody needs it: rows that stand for several report nothing."""
        return False

    def check(self) -> None:
        """As behind."""
        self._engine.check()

    def keeps(self, program: Program) -> bool:
        """As behind; refused where weights cannot be taken into account."""
        return self._engine.keeps(self._weighted(program))

    def counts_values(self, program: Program) -> bool:
        """As behind."""
        return self._engine.counts_values(self._weighted(program))

    def rows(self) -> int:
        """The sum of the weights."""
        from dodona.engines.people import counted

        return counted(self)

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums, each row as often as it counts."""
        return self._engine.totals(self._weighted(program))

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """None (``lasting_order``)."""
        del program, pick, respond
        raise Unsupported("rows that stand for several report nothing for themselves: ask a curator of them.")

    def explain(self, program: Program) -> str:
        """As behind."""
        return self._engine.explain(self._weighted(program))

    def _weighted(self, program: Program) -> Program:
        build = Builder(list(program.steps), {step: i for i, step in enumerate(program.steps)})
        weight = Compiler(self._engine.schema, build).value(Column(self._weight)).step
        blocks = tuple(self._block(block, weight, build) for block in program.blocks)
        return replace(program, steps=tuple(build.steps), blocks=blocks)

    def _block(self, block: Block, weight: int, build: Builder) -> Block:
        if block.counts_values:
            there = build.emit("lt", build.const(0.0), weight)
            return replace(block, where=there if block.where is None else build.emit("and", block.where, there))
        values, bound = block.values, block.bound
        if block.order is not None or block.width > MOST_PRODUCTS:
            raise Unsupported(
                "where rows stand for several, products of many conditions are not counted together: ask narrower "
                "questions, or state conditions one by one."
            )
        if block.gram:
            bound = bound**2
            values = tuple(build.emit("mul", x, y) for i, x in enumerate(values) for y in values[i:])
        if bound * self._heaviest > EXACT:
            raise Unsupported(
                f"one row may count {self._heaviest:,} times, and its values, in steps, be {bound:,}: their product "
                "is beyond exact sums. State a smaller heaviest, or narrower bounds of the columns."
            )
        values = tuple(build.emit("mul", value, weight) for value in values)
        return replace(block, values=values, bound=bound * self._heaviest, gram=False)
