"""Tables put together where SQL runs: joined on whose rows they are, led to a person by keys, or one below another.

What stands in FROM afterwards is one sub-select, whose columns are named, and typed, as those it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dodona.engines.engine import Link, Part
from dodona.engines.sql.dialect import Physical, quote_name
from dodona.engines.units import require_alike, require_key
from dodona.errors import BadTable


class Held(NamedTuple):
    """``relation``: what stands in FROM. ``columns``: by name, where they stand there and what they are."""

    relation: str
    columns: Mapping[str, Physical]


Key = Callable[[str, Physical], str]
"""(what the table is called, its column) -> the id there, as a whole number or as a text compared byte by byte."""


def joined(parts: Sequence[Part], held: Sequence[Held], key: Key) -> Held:
    """Their rows side by side: of each person every row of the first with every one of the others."""
    require_ids([(part.unit, own.columns[part.unit]) for part, own in zip(parts, held, strict=True)])
    selected, columns, text = list[str](), dict[str, Physical](), ""
    first = key("t0", held[0].columns[parts[0].unit])
    for number, (part, own) in enumerate(zip(parts, held, strict=True)):
        names = {**part.names, **({} if number else {part.unit: part.unit})}
        selected += _selected(f"t{number}", names, own, columns)
        how = " LEFT JOIN " if part.outer else " JOIN " if number else ""
        on = f" ON {key(f't{number}', own.columns[part.unit])} = {first}" if number else ""
        text += f"{how}{_called(own, f't{number}')}{on}"
    return Held(f"(SELECT {', '.join(selected)} FROM {text}) AS joined", columns)


def led(first: Part, links: Sequence[Link], held: Sequence[Held], key: Key, text: str) -> Held:
    """The rows of the first, each once for everyone whom its key leads to (``engines/engine.py`` says why).

    ``held``: the first's, then those of the links. ``text``: the type that texts have, once they are compared.
    """
    own, tables = held[0], held[1:]
    left = (first.unit, own.columns[first.unit])
    found = ""
    for number, (link, table) in enumerate(zip(links, tables, strict=True)):
        if link.key not in table.columns:
            raise BadTable(f"the data must have the key {link.key!r}. It has {', '.join(table.columns)}.")
        right = (link.key, table.columns[link.key])
        require_ids([left, right])
        require_key(link.key, right[1].family, right[1].kind)
        on = f" ON {key(f'l{number}', right[1])} = {key(f'l{number - 1}', left[1])}" if number else ""
        found += f"{' JOIN ' if number else ''}{_called(table, f'l{number}')}{on}"
        left = (link.leads, table.columns[link.leads])
    whose, ends = links[-1].leads, (key("l0", tables[0].columns[links[0].key]), key(f"l{len(links) - 1}", left[1]))
    known = f"(SELECT DISTINCT {ends[0]} AS k, {ends[1]} AS w FROM {found}) AS known"
    columns = dict[str, Physical]()
    selected = [*_selected("t0", first.names, own, columns), f"known.w AS {quote_name(whose)}"]
    kind = left[1] if left[1].family == "integer" else Physical("", "text", text)
    columns[whose] = kind._replace(expression=quote_name(whose))
    on = f"{key('t0', own.columns[first.unit])} = known.k"
    return Held(f"(SELECT {', '.join(selected)} FROM {_called(own, 't0')} JOIN {known} ON {on}) AS led", columns)


def stacked(parts: Sequence[Part], held: Sequence[Held]) -> Held:
    """The rows of all, one table below another, under the first's names; types must be the same, or whole numbers."""
    first, columns, arms = parts[0], dict[str, Physical](), list[str]()
    wanted = [*first.names.values(), first.unit]
    for part, own in zip(parts, held, strict=True):
        require_ids([(first.unit, held[0].columns[first.unit]), (part.unit, own.columns[part.unit])])
        names, seen = {**part.names, part.unit: first.unit}, dict[str, Physical]()
        selected = dict(zip(names.values(), _selected("t", names, own, seen), strict=True))
        for name in wanted:
            require_same(name, columns.setdefault(name, seen[name]), seen[name])
        arms.append(f"SELECT {', '.join(selected[name] for name in wanted)} FROM {_called(own, 't')}")
    return Held(f"({' UNION ALL '.join(arms)}) AS stacked", columns)


def _selected(table: str, names: Mapping[str, str], own: Held, columns: dict[str, Physical]) -> list[str]:
    """The columns under their names in the whole, which go to ``columns``."""
    for name, called in names.items():
        columns[called] = own.columns[name]._replace(expression=quote_name(called))
    return [f"{table}.{own.columns[name].expression} AS {quote_name(called)}" for name, called in names.items()]


def _called(own: Held, name: str) -> str:
    """A table in FROM, called so; what was put together before has a name of its own inside."""
    return f"(SELECT * FROM {own.relation}) AS {name}" if own.relation.startswith("(") else f"{own.relation} AS {name}"


def require_same(name: str, one: Physical, other: Physical) -> None:
    """Refuses two ways of storing a column that stands once in what is made: nothing is cast from one to another."""
    if {one.family, other.family} != {"integer"} and one[1:] != other[1:]:
        raise BadTable(
            f"tables below each other must store a column alike. {name} is {one.kind} in one and {other.kind} in "
            "another: store them as one type."
        )


def require_ids(units: Sequence[tuple[str, Physical]]) -> None:
    """Refuses ids that are whole numbers in one column and texts in another."""
    require_alike([(name, "text" if kind.family in ("text", "csv") else "whole numbers") for name, kind in units])
