"""Finishing as values: what is made of a noisy table once it is there. Free, before and after alike: no row is read.

A tree of tables. Its leaves are the statement's noisy tables (``Grouped``); a ``Stage`` is one SELECT over a table
(keep rows, group them, columns beside them, sort and cut), a ``Union`` puts tables below each other. Expressions name
the columns of a table by their place (``slot``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal

_MARK = "\x00"  # no text that is asked can hold it
_SLOT = re.compile(f'"{_MARK}([0-9]+)"')
LONGEST_NAME = 80


@dataclass(frozen=True)
class Fold:
    """An aggregate over the rows of a finished table: ``kind`` of ``of`` (None: of the rows), where a condition is."""

    kind: str
    of: Expr | None = None
    where: Expr | None = None


@dataclass(frozen=True)
class Order:
    """Sorted by an expression; rows without a value last, unless stated."""

    of: Expr
    falling: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Window:
    """A ``Fold`` or a rank over the rows that share ``by``, written beside each of them; up to each along ``order``.

    ``away``: of LAG and LEAD, how many rows before or behind.
    """

    fold: Fold
    by: tuple[Expr, ...] = ()
    order: tuple[Order, ...] = ()
    away: int = 0


@dataclass(frozen=True)
class Named:
    """A column of the result."""

    name: str
    of: Expr


@dataclass(frozen=True)
class Grouped:
    """The noisy table of the statement's core number ``core``; or, for each of ``sets`` of its keys, a table.

    ``beside``: cores with the same keys, whose columns stand beside it. ``asked``: for each of ``sets`` the core that
    asked it, where each was asked by itself; they are made consistent.
    """

    core: int
    sets: tuple[tuple[int, ...], ...] | None = None
    beside: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One SELECT over a table.

    ``where`` and, if there are ``folds``, ``by`` and they speak of the table's columns; all that follows speaks of the
    columns after them: those of ``by``, of ``folds``, and then of ``windows``. ``qualify``: a condition, last of all.
    """

    of: Source
    where: Expr | None = None
    by: tuple[Expr, ...] = ()
    folds: tuple[Fold, ...] | None = None
    windows: tuple[Window, ...] = ()
    having: Expr | None = None
    qualify: Expr | None = None
    columns: tuple[Named, ...] = ()
    distinct: bool = False
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def plain(self) -> bool:
        """Whether it prints columns of a noisy table as they are."""
        rest = self.where, self.folds, self.having, self.qualify, self.limit
        bare = not (self.windows or self.order or self.offset)
        return isinstance(self.of, Grouped) and self.of.sets is None and rest == (None,) * 5 and bare


@dataclass(frozen=True)
class Union:
    """Tables of as many columns below each other, under the names of the first."""

    parts: tuple[Source, ...]


Source = Grouped | Stage | Union


def slot(place: int) -> Column:
    """The column at a place of the table that is spoken of."""
    return Column(f"{_MARK}{place}")


def place_of(expr: Expr) -> int | None:
    """The place a slot names; None for anything else."""
    return int(expr.name[1:]) if isinstance(expr, Column) and expr.name.startswith(_MARK) else None


def places_of(expr: Expr) -> set[int]:
    """All that it names."""
    place = place_of(expr)
    if place is not None:
        return {place}
    return set().union(*map(places_of, expr.args)) if isinstance(expr, Call) else set()


def named(expr: Expr, names: Sequence[str]) -> str:
    """What a column is called where nobody named it: its own text."""
    text = _SLOT.sub(lambda found: names[int(found[1])], str(expr))
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def fold_name(fold: Fold, names: Sequence[str]) -> str:
    """What a fold is called where nobody named it."""
    of = "" if fold.of is None else f"({named(fold.of, names)})"
    where = "" if fold.where is None else f" filter (where {named(fold.where, names)})"
    return fold.kind + (of if of or fold.kind == "count" else "()") + where


def window_name(window: Window, names: Sequence[str]) -> str:
    """Likewise; its partition is not said."""
    order = ", ".join(named(one.of, names) for one in window.order)
    return f"{fold_name(window.fold, names)} over ({f'order by {order}' if order else ''})"


def told(source: Source, fields: Sequence[Sequence[str]], keys: Sequence[int]) -> tuple[list[str], list[str]]:
    """(the columns of a table, what is done to the noisy ones to make it, a line a step). ``fields``: the columns of
    each core, ``keys``: how many of these are keys.
    """
    if isinstance(source, Union):
        made = [told(part, fields, keys) for part in source.parts]
        return made[0][0], [line for _, lines in made for line in lines] + [f"{len(made)} tables below each other"]
    if isinstance(source, Grouped):
        beside = [name for core in source.beside for name in fields[core][keys[core] :]]
        sets = [] if source.sets is None else [f"totals over {len(source.sets)} sets of keys"]
        if source.asked and source.sets is not None:
            own = {axis: n for one, core in zip(source.sets, source.asked, strict=True)
                   for axis, n in zip(one, fields[core], strict=False)}  # fmt: skip
            sets[0] += ", each asked by itself and made consistent by least squares"
            return [*(own[axis] for axis in sorted(own)), *fields[source.core][keys[source.core] :]], sets
        return [*fields[source.core], *beside], sets
    names, lines = told(source.of, fields, keys)
    if source.where is not None:
        lines.append(f"rows where {named(source.where, names)}")
    if source.folds is not None:
        by = [named(key, names) for key in source.by]
        found = [fold_name(fold, names) for fold in source.folds]
        lines.append(f"{', '.join(found) or 'rows'} by {', '.join(by) or 'nothing: one row'}")
        names = [*by, *found]
    if source.having is not None:
        lines.append(f"rows having {named(source.having, names)}")
    for window in source.windows:
        by = [named(key, names) for key in window.by]
        lines.append(f"{window_name(window, names)}{f' within {chr(44).join(by)}' if by else ''}")
        names = [*names, window_name(window, names)]
    if source.qualify is not None:
        lines.append(f"rows where {named(source.qualify, names)}")
    columns = [(column.name, named(column.of, names)) for column in source.columns]
    lines += [f"{name} = {of}" for name, of in columns if name != of]
    if source.order:
        lines.append("sorted by " + ", ".join(f"{named(o.of, names)}{' DESC' * o.falling}" for o in source.order))
    if source.limit is not None or source.offset:
        last = "on" if source.limit is None else f"to {source.offset + source.limit}"
        lines.append(f"rows {source.offset + 1} {last}")
    return [name for name, _ in columns], lines


def is_public(expr: Expr, public: Sequence[bool]) -> bool:
    """Whether noise has no part in it: it is made of keys."""
    place = place_of(expr)
    if place is not None:
        return public[place]
    return all(is_public(arg, public) for arg in expr.args) if isinstance(expr, Call) else True


def rewritten(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """From the top down, each part that ``change`` knows something else for."""
    other = change(expr)
    if other is not None:
        return other
    if isinstance(expr, Call):
        return Call(expr.op, tuple(rewritten(arg, change) for arg in expr.args), expr.position)
    return expr


# -- kinds: what can be made of what is decided before anything is charged ---------------------------------------------

NUMBERS = frozenset(
    "add sub mul div mod neg abs floor ceil sqrt ln log exp power least greatest round sign".split()  # noqa: SIM905
)
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "in", "between"})


def kind_of(expr: Expr, kinds: Sequence[str]) -> str:
    """number, condition, text, or null; refuses what finished numbers cannot be put through."""
    if isinstance(expr, Literal):
        return {bool: "condition", str: "text", type(None): "null"}.get(type(expr.value), "number")
    if isinstance(expr, Column):
        place = place_of(expr)
        assert place is not None
        return kinds[place]
    of = [kind_of(arg, kinds) for arg in expr.args]
    if expr.op in NUMBERS:
        _require(expr, {"number", "condition", "null"}.issuperset(of), "numbers")
        return "number"
    if expr.op in COMPARISONS:
        _require(expr, len(_families(of)) <= 1, "values of one kind: all numbers, or all text")
        return "condition"
    if expr.op in ("and", "or", "not"):
        _require(expr, {"condition", "null"}.issuperset(of), "conditions")
        return "condition"
    if expr.op == "is_null":
        return "condition"
    if expr.op in ("if", "coalesce"):
        _require(expr, expr.op != "if" or of[0] in ("condition", "null"), "a condition first")
        results = [kind for kind in (of[1:] if expr.op == "if" else of) if kind != "null"]
        _require(expr, len(_families(results)) <= 1, "results of one kind: all numbers, or all text")
        return results[0] if len(set(results)) == 1 else "number" if results else "null"
    raise BadQuery(
        f"{expr.op.upper()} is taken of a row's own values, and these are finished ones: write it inside the aggregate "
        "or in GROUP BY, or take arithmetic, a comparison, CASE, COALESCE, LEAST, GREATEST, ABS, ROUND, FLOOR, CEIL, "
        "SIGN, SQRT, LN, LOG, EXP or POWER",
        expr.position,
    )


def _families(kinds: Sequence[str]) -> set[str]:
    return {"number" if kind == "condition" else kind for kind in kinds if kind != "null"}


def _require(expr: Call, holds: bool, what: str) -> None:
    if not holds:
        raise BadQuery(f"{expr.op.upper()} takes {what}", expr.position)


def require_condition(expr: Expr, kinds: Sequence[str], clause: str) -> Expr:
    """What WHERE and HAVING take."""
    if kind_of(expr, kinds) not in ("condition", "null"):
        raise BadQuery(f"{clause} takes a condition, such as COUNT(*) > 100", getattr(expr, "position", None))
    return expr
