"""People, not rows: a column says whose row it is, and no one counts with more than a stated number of rows.

A table with a unit protects everything one unit (a patient, a household) contributed: neighbours differ in all rows of
one unit. How many rows of a unit count is said by the question, or else by the table (``Bounds``). Each engine first
leaves aside the rows that no part of the question can count (``Cut.support``: not met by WHERE, in none of the groups),
then keeps at most K of the rest, chosen by what the unit's own rows say and by nothing else. Which rows a question can
count follows from each row alone, so which are kept follows from the unit's own rows and the question, and adding or
removing a unit adds or removes at most K rows, whatever the filter is:

* a sum of row vectors of L1, L2 and L-infinity norm at most a, b, c moves by at most K a, K b and K c. Where parts of a
  question have filters of their own, the K rows are of all parts together, and a, b, c are of a row's whole vector;
* where at most m = ``max_rows_per_group`` of them lie in one group, and the vector of a row is 0 but for its group's
  part, the unit puts n_c <= m rows in group c, sum n_c <= K, and the square of the L2 norm is at most
  b^2 sum n_c^2 <= b^2 (q m^2 + r^2) with K = q m + r (the sum is convex, so the fullest groups are the worst); no
  coordinate moves by more than m c;
* with at most g = ``max_groups`` groups, K is at most g m.

So the same people may be asked about under any bounds, and each charge is computed for its own: whom a ledger protects
does not change with them. Which rows are kept: the first by a hash of the row's own cleaned values, then by those
values; which groups: those of the least hash, then of the least number. So the choice is the same in every engine and
on every day, and is not the K smallest ages. Rows without a unit are one unit together.

A unit without a column is a promise that no one has more rows than ``max_rows``: nothing is cut, for nobody knows whose
rows they are, and sums reach as far as so many rows do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dodona.errors import BadQuery, BadSchema
from dodona.query.expr import Column
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Schema, Text
from dodona.query.sensitivity import Norms
from dodona.query.statistic import Gate, Partition, Query

MOST_ROWS = 1_000_000
MOST_CLIP = 10**12
MOST_HEAVY = 2**40


@dataclass(frozen=True)
class Bounds:
    """What one question lets a unit count with; what is None is as the table says.

    ``max_rows``: rows in all. ``max_groups``: groups of the question that its rows lie in. ``max_rows_per_group``: rows
    in each of them. ``clip``: of statements, how far from 0 its sums may be (``query/select/clip.py``).
    """

    max_rows: int | None = None
    max_groups: int | None = None
    max_rows_per_group: int | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        for name, bound in self.describe().items():
            require_bound(name, bound)

    def describe(self) -> dict[str, Any]:
        """What is stated, as plain data."""
        return {name: bound for name, bound in vars(self).items() if bound is not None}

    @staticmethod
    def read(described: Any) -> Bounds:
        """Bounds from plain data."""
        known = ("max_rows", "max_groups", "max_rows_per_group")
        if not isinstance(described, Mapping) or set(described) - set(known):
            raise BadSchema(f"bounds must be among {', '.join(known)}, each a whole number.")
        return Bounds(**described)

    def over(self, other: Bounds | None) -> Bounds:
        """These, and where they say nothing those."""
        return self if other is None else Bounds(**{**other.describe(), **self.describe()})


def require_bound(name: str, bound: Any) -> None:
    """Refuses what is no count of rows or groups, and no end of sums."""
    if name == "clip":
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not 1e-6 <= bound <= MOST_CLIP:
            raise BadSchema(f"a clip must be a number from 0.000001 to {MOST_CLIP:,}. Got {bound!r}.")
    elif isinstance(bound, bool) or not isinstance(bound, int) or not 1 <= bound <= MOST_ROWS:
        raise BadSchema(f"a unit's {name} must be a whole number from 1 to {MOST_ROWS}. Got {bound!r}.")


@dataclass(frozen=True)
class Unit:
    """``column``: whose row it is, whole numbers or text; not part of the schema, so nobody can ask about it. None:
    nobody knows, but it is public that nobody has more than ``max_rows`` rows. Where another table of the dataset says
    it, the way there: with ``order.customer`` the column ``order`` holds the key of a row there, whose unit is
    ``customer``. ``via``: that table's name, needed where several have such a key.

    ``weight``: where nobody knows whose they are, a column of whole numbers, not of the schema, that says how many rows
    a row stands for, none for more than ``heaviest``; nobody makes up more than ``max_rows`` of all of them.

    ``max_rows``: how many rows of a unit count, unless the question says so. ``group``: columns of the schema; then at
    most ``max_rows_per_group`` rows of a unit with the same values there count, which makes questions grouped by them
    more exact. Without ``group``, ``max_rows_per_group`` and ``max_groups`` are of each question's own groups.
    """

    column: str | None
    max_rows: int | None = None
    group: tuple[str, ...] = ()
    max_rows_per_group: int | None = None
    max_groups: int | None = None
    via: str | None = None
    weight: str | None = None
    heaviest: int = 1

    def __post_init__(self) -> None:
        if self.weight is not None and (not isinstance(self.weight, str) or not self.weight or self.column is not None):
            raise BadSchema(
                "weight names a column of numbers of rows, where nobody knows whose they are: Unit(None, max_rows=10, "
                "weight='views', heaviest=100_000). Where a column says it, a person's rows count one by one."
            )
        least, most = (1, 1) if self.weight is None else (2, MOST_HEAVY)
        if type(self.heaviest) is not int or not least <= self.heaviest <= most:
            told = "heaviest goes with weight, for how many rows one row stands at most, as everyone may know: "
            raise BadSchema(f"{told}a whole number from 2 to {MOST_HEAVY:,}. Got {self.heaviest!r}.")
        if self.via is not None and (not isinstance(self.via, str) or len(self.path) < 2):
            raise BadSchema(
                f"via names the table that a key leads to: Unit('order.customer', via='orders'). Got via={self.via!r} "
                f"with {self.column!r}."
            )
        if self.column is not None and (not isinstance(self.column, str) or not self.column):
            raise BadSchema(f"a unit must name the column that says whose row it is. Got {self.column!r}.")
        group = (self.group,) if isinstance(self.group, str) else tuple(self.group)
        object.__setattr__(self, "group", group)
        for name, bound in Bounds(self.max_rows, self.max_groups, self.max_rows_per_group).describe().items():
            require_bound(name, bound)
        if group and (self.max_rows_per_group is None or self.max_rows is None or self.max_groups is not None):
            raise BadSchema(
                "a unit's group goes with max_rows and max_rows_per_group: state both. max_groups is of the groups of "
                "a question: state it without group."
            )
        if self.column is None and (
            self.max_rows is None or set(self.describe()) - {"weight", "heaviest"} != {"max_rows"}
        ):
            raise BadSchema(
                "a unit without a column must state max_rows, how many rows one person has at most, and nothing else: "
                "nobody knows whose rows they are, so none can be left out."
            )
        if self.max_rows is not None and (self.max_rows_per_group or 1) > self.max_rows:
            raise BadSchema("a unit's max_rows_per_group must be at most its max_rows.")

    @property
    def path(self) -> tuple[str, ...]:
        """The keys that lead to whose row it is, and, last, the column that says it."""
        return () if self.column is None else tuple(self.column.split("."))

    def called(self, column: str) -> Unit:
        """The same bounds of a unit that another column says."""
        return replace(self, column=column, via=None)

    def checked(self, schema: Schema) -> Unit:
        """The unit, if it fits the schema."""
        if self.column is not None and schema.resembles(self.column):
            raise BadSchema(
                f"the unit column {self.column!r} must not be a column of the schema: nobody may ask of it."
            )
        if self.weight is not None and schema.resembles(self.weight):
            raise BadSchema(f"the weight {self.weight!r} must not be a column of the schema: a row counts so often.")
        if schema.public:
            raise BadSchema(
                f"a table with a unit cannot have public columns ({', '.join(schema.public)}): whose rows there are, "
                "and how many, is what the unit protects."
            )
        for name in self.group:
            if name not in schema:
                raise BadSchema(f"a unit's group must name columns of the schema. Got {name!r}.")
            if isinstance(schema[name], Text):
                raise BadSchema(f"a unit's group must have listed values or numbers. {name!r} is open text.")
        return self

    def within(self, bounds: Bounds | None) -> Unit:
        """The unit as one question bounds it."""
        if bounds is None or not bounds.describe():
            return self
        if bounds.clip is not None:
            raise BadQuery(
                "a clip is of the sums that a SELECT states: OPTIONS (clip = 500), or bounded(clip=500).sql(...)."
            )
        if self.column is None:
            raise BadQuery(
                "nobody knows whose rows these are, so no question can leave out any: a unit without a column has the "
                f"bounds of its table, {self.max_rows:,} rows."
            )
        grouped = bounds.max_groups is not None or bounds.max_rows_per_group is not None
        own = Bounds(self.max_rows, *(() if self.group else (self.max_groups, self.max_rows_per_group)))
        merged = bounds.over(own)
        if self.group and not grouped:
            most = min(self.max_rows_per_group or MOST_ROWS, merged.max_rows or MOST_ROWS)
            return Unit(self.column, merged.max_rows, self.group, most, via=self.via)
        rows, groups, each = merged.max_rows, merged.max_groups, merged.max_rows_per_group
        each = each if rows is None or each is None else min(each, rows)
        return Unit(self.column, rows, (), each, groups, self.via)

    def describe(self) -> dict[str, Any]:
        """The unit as plain data, for TOML and JSON."""
        own: dict[str, Any] = {} if self.column is None else {"column": self.column}
        own |= {} if self.via is None else {"via": self.via}
        own |= Bounds(self.max_rows).describe() | ({"group": list(self.group)} if self.group else {})
        own |= {} if self.weight is None else {"weight": self.weight, "heaviest": self.heaviest}
        return own | Bounds(None, self.max_groups, self.max_rows_per_group).describe()

    @staticmethod
    def read(described: Any) -> Unit:
        """From plain data."""
        known = ("column", "max_rows", "group", "max_rows_per_group", "max_groups", "via", "weight", "heaviest")
        described = {"column": described} if isinstance(described, str) else described
        if not isinstance(described, Mapping) or set(described) - set(known) or not set(known[:2]) & set(described):
            raise BadSchema(
                'a unit is { column = "...", max_rows = 4 }, with max_groups, max_rows_per_group, group and via if '
                "wanted; without column, it is public that nobody has more than max_rows rows."
            )
        group = described.get("group", ())
        if isinstance(group, str):
            group = (group,)
        if not isinstance(group, list | tuple) or not all(isinstance(name, str) for name in group):
            raise BadSchema(f"a unit's group must list columns. Got {group!r}.")
        if "column" in described and described["column"] is None:
            raise BadSchema("a unit's column must be a name; leave it out where there is none.")
        bounds = {name: described[name] for name in known[1:] if name != "group" and name in described}
        return Unit(described.get("column"), group=tuple(group), **bounds)

    def __str__(self) -> str:
        if self.column is None:
            what = "row(s)" if self.weight is None else f"of {json.dumps(self.weight)} up to {self.heaviest}"
            return f"one person of at most {self.max_rows} {what}"
        parts = [] if self.max_rows is None else [f"at most {self.max_rows} row(s)"]
        where = " and ".join(self.group) or "group"
        parts += [] if self.max_rows_per_group is None else [f"at most {self.max_rows_per_group} per {where}"]
        parts += [] if self.max_groups is None else [f"at most {self.max_groups} group(s)"]
        return f"one {self.column}" + (f" with {', '.join(parts)}" if parts else "")

    @property
    def whose(self) -> str:
        """The column, of those that have one: engines know of no others."""
        assert self.column is not None
        return self.column

    @property
    def limit(self) -> int | None:
        """How many rows count where a question has no groups; None where nothing says."""
        per_group = None if self.group else self.max_rows_per_group
        return min((bound for bound in (self.max_rows, per_group) if bound is not None), default=None)

    @property
    def whom(self) -> str:
        """Who is protected, whatever the bounds: so a ledger names its population."""
        if self.column is None:  # that is a promise about the people, and no bound that a question could change
            return str(self)
        return f"one {json.dumps(self.column)}"

    def named_by(self, text: str) -> bool:
        """Whether ``text`` names these people: as ``whom`` does, or with bounds, as ledgers did once."""
        bounds = r" with at most \d+ row\(s\)(, at most \d+ per .+)?"
        former = self.column is not None and re.fullmatch(f"one {re.escape(self.column)}{bounds}", text, re.DOTALL)
        return text == self.whom or bool(former)

    def cut(self, program: Program) -> Cut:
        """How many rows of a unit count in a program, and in which of its groups; refused where nothing bounds them."""
        if self.column is None:
            assert self.max_rows is not None
            return Cut(self.max_rows)
        m, g = self.max_rows_per_group, self.max_groups
        if self.group or (m is None and g is None):
            if self.max_rows is None:
                raise self._boundless()
            return Cut(self.max_rows, m, columns=self.group)
        keys = {_grouping(block) for block in program.blocks}
        if len(keys) > 1:
            raise BadQuery(
                "max_groups and max_rows_per_group are of the groups of a question, and this one has several ways of "
                "grouping: ask one GROUP BY at a time, or state max_rows alone."
            )
        ((key, cells),) = keys or {(None, 1)}
        groups = min(cells, g or cells)
        if m is None and self.max_rows is None:
            raise self._boundless()
        rows = min(self.max_rows or groups * (m or 1), groups * m if m else MOST_ROWS)
        m = None if m is None or m >= rows else m
        apart = all(block.kernel is None for block in program.blocks)
        return Cut(rows, m, None if groups == cells else groups, key, apart=apart)

    def _boundless(self) -> BadQuery:
        return BadQuery(
            f"one {self.column} may have any number of rows, so the question must say how many count: "
            "bounded(max_rows=4), or OPTIONS(max_rows = 4) in SQL; for the table's questions, max_rows of its unit."
        )

    def norms(self, query: Query, row: Norms, program: Program) -> Norms:
        """How far all rows of one unit reach, when one row reaches ``row``; the argument is above."""
        cut = self.cut(program)
        k, m = cut.rows, cut.per_group
        if m is None or not (cut.apart if not cut.columns else set(cut.columns) <= _parted_by(query)):
            return Norms(k * row.l1, Fraction(k * k) * row.l2_squared, k * row.linf)
        fullest, rest = divmod(k, m)
        return Norms(k * row.l1, (fullest * m * m + rest * rest) * row.l2_squared, m * row.linf)


@dataclass(frozen=True)
class Cut:
    """Which rows of a unit count: at most ``rows``, of them ``per_group`` in a group, in at most ``groups`` of them.

    The groups are the values of the step ``key``, or of the ``columns``. ``apart``: whether rows in different groups
    move different coordinates.
    """

    rows: int
    per_group: int | None = None
    groups: int | None = None
    key: int | None = None
    columns: tuple[str, ...] = ()
    apart: bool = True

    @property
    def grouped(self) -> bool:
        """Whether groups matter."""
        return self.per_group is not None or self.groups is not None


def _grouping(block: Block) -> tuple[int | None, int]:
    """The step that names a row's group, and how many groups there are.

    Cells that are counted as different values (``Block.distinct``) are no groups: all rows of a unit in them move one
    number, so a bound on the rows in each would bound nothing.
    """
    if block.distinct is None:
        return block.key, block.cells
    if block.cells == block.distinct:
        return None, 1
    raise BadQuery(
        "max_groups and max_rows_per_group are of the groups of a question, and COUNT(DISTINCT ...) of values by group "
        "is bounded by max_rows alone: state that one, and leave the others out."
    )


def support(program: Program) -> tuple[Program, int | None]:
    """The program with one more step, if one is needed: whether any of its sums can count a row.

    A row that meets no block's condition, or is in none of its cells, adds nothing to any sum.
    """
    known = _never_null(program)
    gates = [(block.where, None if block.key is None or known[block.key] else block) for block in program.blocks]
    if not gates or (None, None) in gates:
        return program, None
    build = Builder(list(program.steps), {step: i for i, step in enumerate(program.steps)})
    reached: list[int] = []
    for where, block in gates:
        parts = [] if where is None else [where]
        if block is not None and block.key is not None:
            parts.append(build.emit("le", build.const(0.0), block.key))
            parts.append(build.emit("le", block.key, build.const(block.cells - 1.0)))
        while len(parts) > 1:
            parts = [build.emit("and", parts[0], parts[1]), *parts[2:]]
        reached += parts
    while len(reached := list(dict.fromkeys(reached))) > 1:
        reached = [*reached[2:], build.emit("or", reached[0], reached[1])]
    return Program(tuple(build.steps), program.blocks), reached[0]


def _never_null(program: Program) -> list[bool]:
    """For each step, whether it is never NULL: then, as the number of a group, it puts every row in one."""
    known: list[bool] = []
    for step in program.steps:
        given = [known[arg] for arg in step.args]
        match step.op:
            case "const":
                sure = step.constants[0] is not None
            case "column":
                sure = step.constants[1] == "fate" or (step.constants[1] != "text" and step.constants[-1] is not None)
            case "nearest" | "grid" | "dot" | "is_null":
                sure = True
            case "coalesce":
                sure = any(given)
            case "if":
                sure = all(given[1:])
            case "div" | "mod" | "sqrt" | "finite" | "lookup":
                sure = False
            case _:  # the rest is NULL where an argument is
                sure = all(given)
        known.append(sure)
    return known


def _parted_by(query: Query) -> set[str]:
    """The columns whose values the cells around everything the query sums tell apart."""
    found: set[str] = set()
    while isinstance(query, Gate | Partition):
        if isinstance(query, Partition) and isinstance(query.by, Column):
            found.add(query.by.name)
        query = query.of
    return found
