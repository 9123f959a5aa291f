"""At most so many rows of each unit, in SQL: windows over the cleaned columns, under what a question can count.

``query/unit.py`` says which rows count, and why; in memory ``engines/people.py`` finds the same. A table of people made
of rows (``query/persons.py``) is one more such sub-select; in memory ``engines/people.py`` makes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dodona.engines.engine import Link, Part
from dodona.engines.sql.compile import Compiled
from dodona.engines.sql.dialect import Dialect, Physical, quote_name
from dodona.engines.units import order, require_alike, require_key
from dodona.errors import BadTable
from dodona.query.columns import LARGEST_INTEGER
from dodona.query.compiler import Compiler
from dodona.query.persons import Measure, Persons
from dodona.query.program import Block, Builder, Program, fate_of
from dodona.query.schema import Schema, Text
from dodona.query.unit import Cut, Unit, support

_NO_QUESTION = Program((), ())


class Bounded(NamedTuple):
    """The rows that count. ``relation``: stands in FROM. ``clean``: each schema column's cleaned value there, by name;
    none where ``relation`` holds raw columns.
    """

    relation: str
    clean: Mapping[str, str]


class Ranked(NamedTuple):
    """The rows with what they are ordered by: the columns ``order``, as ``by`` says. ``raw``: stored columns that are
    passed on.
    """

    relation: str
    clean: Mapping[str, str]
    order: list[str]
    raw: list[str]
    by: str


def ordered_relation(
    schema: Schema,
    dialect: Dialect,
    relation: str,
    *,
    fates: bool = False,
    clean: Mapping[str, str] = MappingProxyType({}),
) -> Ranked:
    """A sub-select of the cleaned columns, so that nothing is computed twice, and of the hash of each row.

    ``relation`` has, beside what the dialect reads, the unit as ``whose``; ``clean``: columns that it holds as cleaned
    values. ``fates``: with the raw values as well, and what cleaning did to them decides between rows that are the same
    otherwise: which one counts must follow from the rows of that unit, never from where the database finds them.
    """
    ranked = order(schema)
    stored = Compiler(schema, Builder()).stored
    texts = {name: column for name, column in schema.items() if isinstance(column, Text)}
    raw = [dialect.columns[name].expression for name in schema if fates or name in texts]
    steps = [stored(name) for name in schema] if fates else []
    told = {f"f{i}": dialect.fate(fate_of(constants)) for i, constants in enumerate(steps)}
    compiled = Compiled(ranked.program, dialect.naming(), relation, clean, ("whose", *raw))
    columns = {name: f"c{i}" for i, name in enumerate(schema) if name not in texts}
    told = {f"x{i}": dialect.text(column, name) for i, (name, column) in enumerate(texts.items())} | told
    own = [f"{compiled.read(ranked.columns[name])} AS {column}" for name, column in columns.items()]
    cleaned = ", ".join([*own, *raw, *(f"{fate} AS {name}" for name, fate in told.items())])
    inner = f"(SELECT whose, {compiled.read(ranked.hash)} AS h, {cleaned} FROM {compiled.inner}) AS ranked"
    by = ", ".join(["h", *(f"{column} NULLS FIRST" for column in (*columns.values(), *told))])
    return Ranked(inner, columns, ["h", *columns.values(), *told], raw, by)


def bounded_relation(
    schema: Schema,
    unit: Unit,
    dialect: Dialect,
    relation: str,
    program: Program = _NO_QUESTION,
    clean: Mapping[str, str] = MappingProxyType({}),
) -> Bounded:
    """At most so many rows of each unit: rows that the program can count are numbered within their unit by a window,
    and those beyond are left out.
    """
    cut = unit.cut(program)
    inner, columns, ranks, raw, by = ordered_relation(schema, dialect, relation, fates=program.fates, clean=clean)
    carried = ["whose", *ranks, *raw]
    asked, step = support(program)
    if step is not None or cut.key is not None:
        wanted = [own for own in (step, cut.key) if own is not None]
        chosen = Compiled(Program(asked.steps, (Block(tuple(wanted), 1),)), dialect.naming(), inner, columns, carried)
        cell = [] if cut.key is None else [f"{chosen.read(cut.key)} AS cell"]
        where = "" if step is None else f" WHERE {chosen.read(step)}"
        inner = f"(SELECT {', '.join([*carried, *cell])} FROM {chosen.inner}{where}) AS fit"
        carried += ["cell"] if cell else []
    inner = _grouped(inner, cut, [columns[name] for name in cut.columns] or ["cell"], by, carried)
    if cut.per_group is None or cut.groups is None or cut.rows < cut.per_group * cut.groups:
        inner = _first(inner, "whose", by, cut.rows, [*columns.values(), *raw], "bounded")
    return Bounded(inner, columns)


def _grouped(inner: str, cut: Cut, group: list[str], by: str, carried: list[str]) -> str:
    """Of each group of a unit the first rows, and of the unit so many groups: those of the least hash."""
    within = ", ".join(["whose", *(group if cut.columns or cut.key is not None else [])])
    if cut.per_group is not None:
        inner = _first(inner, within, by, cut.per_group, carried, "grouped")
    if cut.groups is not None:
        listed = ", ".join(carried)
        least = f"(SELECT {listed}, MIN(h) OVER (PARTITION BY {within}) AS least FROM {inner}) AS led"
        ranks = f"SELECT {listed}, DENSE_RANK() OVER (PARTITION BY whose ORDER BY least, cell) AS place FROM {least}"
        inner = f"(SELECT {listed} FROM ({ranks}) AS placed_groups WHERE place <= {cut.groups}) AS few"
    return inner


def deepest(unit: Unit, dialect: Dialect, program: Program) -> int:
    """How deep the sub-selects nest that say what a program can count, and in which group."""
    cut, (asked, step) = unit.cut(program), support(program)
    wanted = tuple(own for own in (step, cut.key) if own is not None)
    clean = {} if program.persons is None else dict.fromkeys(program.persons.schema, "c")
    return Compiled(Program(asked.steps, (Block(wanted, 1),)), dialect.naming(), "raw", clean).levels if wanted else 0


def dropped_rows(schema: Schema, unit: Unit, dialect: Dialect, relation: str, most: int) -> str:
    """The statement of ``Engine.dropped``: what a unit has beyond min(K, sum over its groups of min(m, their rows))."""
    ranked, cut = order(schema), unit.cut(_NO_QUESTION)
    steps = [ranked.columns[name] for name in cut.columns]
    program = Program(ranked.program.steps, (Block(tuple(steps), 1),))
    compiled = Compiled(program, dialect.naming(), relation, carried=("whose",))
    groups = "".join(f", {compiled.read(step)} AS g{i}" for i, step in enumerate(steps))
    named = "".join(f", g{i}" for i in range(len(steps)))
    keyed = f"(SELECT whose{groups} FROM {compiled.inner}) AS keyed"
    counted = f"(SELECT whose, COUNT(*) AS n FROM {keyed} GROUP BY whose{named}) AS counted"
    kept = "SUM(n)" if cut.per_group is None else f"SUM({_at_most('n', cut.per_group)})"
    beyond = f"(SELECT SUM(n) - {_at_most(kept, cut.rows)} AS b FROM {counted} GROUP BY whose) AS beyond"
    return f"SELECT COALESCE(SUM({_at_most('b', most)}), 0) FROM {beyond}"


def _at_most(x: str, most: int) -> str:
    return f"CASE WHEN {x} > {most} THEN {most} ELSE {x} END"


def _first(relation: str, within: str, by: str, most: int, columns: list[str], name: str) -> str:
    """The first ``most`` rows of ``relation`` in each window."""
    listed = ", ".join(columns)
    placed = f"SELECT {listed}, ROW_NUMBER() OVER (PARTITION BY {within} ORDER BY {by}) AS place FROM {relation}"
    return f"(SELECT {listed} FROM ({placed}) AS placed_{name} WHERE place <= {most}) AS {name}"


def persons_relation(schema: Schema, dialect: Dialect, relation: str, persons: Persons) -> Bounded:
    """A sub-select of the people: ``whose``, and the columns of ``persons.schema``, cleaned."""
    rows = ordered_relation(schema, dialect, relation)
    program, steps = persons.program, [step for _, step in persons.keys]
    for _, measure in persons.measures:
        steps += [step for step in (measure.step, measure.known, measure.by) if step is not None]
    wanted = tuple(dict.fromkeys([*steps, *([] if persons.fit is None else [persons.fit])]))
    carried = ["whose", *rows.order, *rows.raw]
    compiled = Compiled(
        Program(program.steps, (Block(wanted, 1),)), dialect.naming(), rows.relation, rows.clean, carried
    )
    keys = [f"k{i}" for i in range(len(persons.keys))]
    selected = [f"{compiled.read(step)} AS {key}" for key, (_, step) in zip(keys, persons.keys, strict=True)]
    for i, (_, measure) in enumerate(persons.measures):
        selected.append(f"{compiled.read(measure.step)} AS m{i}")
        if measure.known is not None:
            selected.append(f"{compiled.read(measure.known)} AS n{i}")
        if measure.by is not None:
            selected.append(f"{compiled.read(measure.by)} AS o{i}")
    fit = "" if persons.fit is None else f" WHERE {compiled.read(persons.fit)}"
    theirs = f"(SELECT {', '.join(['whose', *rows.order, *selected])} FROM {compiled.inner}{fit}) AS theirs"
    places = [
        _placed(f"place{i}", measure, i, keys, rows.by)
        for i, (_, measure) in enumerate(persons.measures)
        if measure.by is not None
    ]
    if places:
        theirs = f"(SELECT *, {', '.join(places)} FROM {theirs}) AS placed"
    grouped = ", ".join(["whose", *keys])
    sums = [f"{text} AS {name}" for i, (_, m) in enumerate(persons.measures) for name, text in _folded(dialect, m, i)]
    folded = f"(SELECT {', '.join([grouped, *sums])} FROM {theirs} GROUP BY {grouped}) AS folded"
    columns = {name: f"p{i}" for i, name in enumerate(persons.schema)}
    finished = {name: key for key, (name, _) in zip(keys, persons.keys, strict=True)}
    finished |= {name: _finished(dialect, m, i) for i, (name, m) in enumerate(persons.measures)}
    listed = ", ".join(f"{finished[name]} AS {column}" for name, column in columns.items())
    return Bounded(f"(SELECT whose, {listed} FROM {folded}) AS people", columns)


def _placed(name: str, measure: Measure, i: int, keys: list[str], by: str) -> str:
    """The place of a row among those of its person and group, by a column that it has."""
    known = "" if measure.known is None else f", n{i}"
    within = ", ".join(["whose", *keys])
    down = " DESC" if measure.kind == "last" else ""
    return f"ROW_NUMBER() OVER (PARTITION BY {within}{known} ORDER BY o{i}{down}, {by}) AS {name}"


def _folded(dialect: Dialect, measure: Measure, i: int) -> list[tuple[str, str]]:
    """What is made of a person's rows, before it is put within its range."""
    known = f"n{i}" if measure.known is not None else None
    number = "COUNT(*)" if known is None else f"SUM(CASE WHEN {known} THEN 1 ELSE 0 END)"
    match measure.kind:
        case "count":
            return [(f"a{i}", number)]
        case "sum":
            return [(f"a{i}", dialect.summed(f"m{i}", None, exact_double=False))]
        case "avg":
            return [(f"a{i}", dialect.summed(f"m{i}", None, exact_double=False)), (f"b{i}", number)]
        case "min" | "max":
            return [(f"a{i}", f"{measure.kind.upper()}(m{i})")]
    only = f"place{i} = 1" if known is None else f"place{i} = 1 AND {known}"
    return [(f"a{i}", f"MAX(CASE WHEN {only} THEN m{i} END)")]


def _finished(dialect: Dialect, measure: Measure, i: int) -> str:
    """The cleaned column: exact whole numbers within their range, then doubles."""
    low, high, x = measure.low, measure.high, f"a{i}"
    if measure.kind in ("count", "sum"):
        ends = [math.trunc(math.ldexp(end, measure.bits)) for end in (low, high)]
        return _stepped(dialect, _within(x, str(ends[0]), str(ends[1])), measure.bits)
    if measure.kind == "avg":
        most = str(LARGEST_INTEGER)
        total = _stepped(dialect, _within(x, f"-{most}", most), measure.bits)
        x = f"({total} / CAST(NULLIF(b{i}, 0) AS {dialect.double}))"
    return _within(x, dialect.number(low), dialect.number(high))


def _within(x: str, low: str, high: str) -> str:
    return f"CASE WHEN {x} > {high} THEN {high} WHEN {x} < {low} THEN {low} ELSE {x} END"


def _stepped(dialect: Dialect, whole: str, bits: int) -> str:
    """A whole number of steps as a double; both are exact."""
    return f"(CAST({whole} AS {dialect.double}) * {dialect.number(math.ldexp(1.0, -bits))})"


# Tables put together where SQL runs: joined on whose rows they are, led to a person by keys, or one below another.
#
# What stands in FROM afterwards is one sub-select, whose columns are named, and typed, as those it is made of.


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
