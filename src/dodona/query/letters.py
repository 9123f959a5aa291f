"""Rules of texts: what is observed of open ones (``terms.py``), and what functions of listed ones are.

An open text has no step of its own. A CASE of texts is a choice between terms, and what is asked of it is asked of each
of them: ``LENGTH(CASE WHEN a THEN x ELSE y END)`` is ``CASE WHEN a THEN LENGTH(x) ELSE LENGTH(y) END``. Of a column of
listed texts every function is known when the question is compiled, so it is a table from one list to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from dodona.errors import BadQuery
from dodona.query import terms
from dodona.query.columns import Label
from dodona.query.program import Builder, Listing, observed
from dodona.query.terms import Term
from dodona.query.types import NO_STEP, Choice, Rules, Tree, Value, any_nullable, boolean, label, number, open_text
from dodona.query.words import is_text

MOST_LISTED = 64  # values of a list that are joined with open texts, and terms that a text may be, case by case
MOST_JOINED = 4_096  # values of lists that are joined with each other
SIDES = {"trim": "both", "ltrim": "left", "rtrim": "right"}

Make = Callable[..., Term]


def register(rules: Rules) -> None:
    """Adds the rules of this file."""
    rules.add("length", least=1)(_length)
    rules.add("lower", "upper", least=1)(_cased)
    rules.add(*SIDES, least=1, most=2)(_trimmed)
    rules.add("substr", least=2, most=3)(_part)
    rules.add("left", "right", least=2)(_end)
    rules.add("concat", least=1, most=64)(_joined)
    rules.add("replace", least=3)(_replaced)
    rules.add("like", least=2, most=3)(_like)
    rules.add("starts_with", "ends_with", "contains", least=2)(_holds)


# -- the rules ---------------------------------------------------------------------------------------------------------


def _length(build: Builder, op: str, args: Sequence[Value]) -> Value:
    return _asked(build, op, args[0], lambda term: ("length", term))


def _cased(build: Builder, op: str, args: Sequence[Value]) -> Value:
    return _changed(build, op, args[:1], lambda term: (op, term))


def _trimmed(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """Blanks of the keyboard, as databases do; or any of the characters of a literal."""
    signs = " " if len(args) == 1 else _literal(build, args[1], "the characters that are trimmed")
    return _changed(build, op, args[:1], lambda term: ("trim", SIDES[op], signs, term) if signs else term)


def _part(build: Builder, op: str, args: Sequence[Value]) -> Value:
    first = _whole(build, args[1], "SUBSTR's start", 1)
    length = _whole(build, args[2], "SUBSTR's length", 0) if len(args) == 3 else None
    return _changed(build, op, args[:1], lambda term: ("part", first, length, term))


def _end(build: Builder, op: str, args: Sequence[Value]) -> Value:
    length = _whole(build, args[1], f"the length of {op.upper()}", 0)
    make: Make = (lambda term: ("part", 1, length, term)) if op == "left" else (lambda term: ("last", length, term))
    return _changed(build, op, args[:1], make)


def _joined(build: Builder, op: str, args: Sequence[Value]) -> Value:
    return _changed(build, op, args, lambda *parts: ("joined", *parts))


def _replaced(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """Of listed texts alone: of open ones, how long the result is would depend on what rows hold."""
    old, new = (_literal(build, arg, f"what {op.upper()} looks for and puts there") for arg in args[1:])
    value = args[0]
    if value.type.kind == "text":
        raise BadQuery("REPLACE takes listed texts: of open ones write LIKE or SUBSTR, or state a view or aliases.")
    made = [text.replace(old, new) if old else text for text in _texts(value, op)]
    labels: tuple[Label, ...] = tuple(dict.fromkeys(made))
    where = {text: float(place) for place, text in enumerate(labels)}
    if _constant(build, value) is not None:
        return Value(build.const(0.0), label(labels, False))
    return Value(
        by_place(build, value.step, [where[text] for text in made], value.type.nullable),
        label(labels, value.type.nullable),
    )


def _like(build: Builder, op: str, args: Sequence[Value]) -> Value:
    pattern = _literal(build, args[1], "the pattern of LIKE")
    sign = _literal(build, args[2], "ESCAPE") if len(args) == 3 else ""
    return _alike(build, args[0], _canonical(pattern, sign))


def _holds(build: Builder, op: str, args: Sequence[Value]) -> Value:
    plain = terms.escaped(_literal(build, args[1], f"what {op.upper()} looks for"))
    pattern = {"starts_with": plain + "%", "ends_with": "%" + plain, "contains": f"%{plain}%"}[op]
    return _alike(build, args[0], pattern)


def _alike(build: Builder, value: Value, pattern: str) -> Value:
    size = sum(map(len, terms.segments(pattern)))
    if size > terms.LONGEST_PATTERN:
        raise BadQuery(f"a pattern must have at most {terms.LONGEST_PATTERN} signs beside %. Got {size}.")
    return _asked(build, "like", value, lambda term: ("like", term, pattern))


def _canonical(pattern: str, sign: str) -> str:
    """The pattern with a backslash as its escape sign; without ESCAPE no sign is one."""
    if len(sign) > 1:
        raise BadQuery(f"ESCAPE takes one character. Got {sign!r}.")
    found, signs = "", iter(pattern)
    for own in signs:
        if own == sign:
            after = next(signs, "")
            if after not in (sign, "%", "_") or not after:
                raise BadQuery(f"the escape sign {sign!r} stands before %, _ or itself. Got {pattern!r}.")
            found += terms.ESCAPE + after
        else:
            found += terms.ESCAPE * 2 if own == terms.ESCAPE else own
    return found


# -- comparisons and choices, for the rules of numbers -----------------------------------------------------------------


def are_texts(*values: Value) -> bool:
    """Whether an open text is among them."""
    return any(value.type.kind == "text" for value in values)


def equal(build: Builder, a: Value, b: Value) -> Value:
    """Whether two texts have the same characters."""
    for one, other in ((a, b), (b, a)):
        if one.tree is not None and _constant(build, other) is not None:
            return is_in(build, one, [other])
    trees = [text_of(build, a), text_of(build, b)]
    return _asked_of(build, trees, lambda left, right: ("same", left, right), any_nullable(a, b))


def is_in(build: Builder, value: Value, listed: Sequence[Value]) -> Value:
    """Whether a text is one of literals."""
    texts = tuple(dict.fromkeys(_literal(build, option, "what a text is compared with") for option in listed))
    return _asked(build, "in", value, lambda term: ("in", term, texts))


def all_literal(build: Builder, values: Sequence[Value]) -> bool:
    """Whether all are texts as written."""
    return all(_constant(build, value) is not None for value in values)


def whole(build: Builder, tree: Tree) -> int:
    """The step that stands for a text itself, where its different values are counted; anything where it is NULL."""
    if isinstance(tree, Choice):
        return build.emit("if", tree.condition, whole(build, tree.then), whole(build, tree.other))
    return build.emit("column", constants=observed(("whole", ("text", "") if tree is None else tree)))


def is_missing(build: Builder, value: Value) -> int:
    """The step that says whether a text is NULL."""
    if value.type.kind != "text":
        return build.emit("is_null", value.step)
    return build.emit("is_null", _length(build, "length", [value]).step)


def chosen(build: Builder, condition: int, then: Value, other: Value) -> Value:
    """One text or another."""
    return _text(Choice(condition, text_of(build, then), text_of(build, other)), any_nullable(then, other))


def first_known(build: Builder, first: Value, other: Value) -> Value:
    """COALESCE."""
    tree = Choice(is_missing(build, first), text_of(build, other), text_of(build, first))
    return _text(tree, first.type.nullable and other.type.nullable)


def text_of(build: Builder, value: Value) -> Tree:
    """A text, a literal, NULL, or one of few listed texts, as a tree of terms."""
    step = build.steps[value.step] if value.step >= 0 else None
    if value.type.kind == "text":
        return value.tree
    if step is not None and step.op == "const" and step.constants[0] is None:
        return None
    if value.type.kind != "label" or not all(isinstance(own, str) for own in value.type.labels):
        raise BadQuery(f"a text is needed here. Got {value.type}.")
    if len(value.type.labels) > MOST_LISTED:
        raise BadQuery(f"an open text meets at most {MOST_LISTED} listed values. Got {len(value.type.labels)}.")
    tree: Tree = ("text", _known(value.type.labels[-1]))
    for place, text in reversed([*enumerate(value.type.labels[:-1])]):
        here = build.emit("eq", value.step, build.const(float(place)))
        tree = Choice(here, ("text", _known(text)), tree)
    return Choice(build.emit("is_null", value.step), None, tree) if value.type.nullable else tree


# -- trees -------------------------------------------------------------------------------------------------------------


def _text(tree: Tree, nullable: bool) -> Value:
    leaves = _leaves(tree)
    if len(leaves) > MOST_LISTED:
        raise BadQuery(f"a text may be at most {MOST_LISTED} different ones, case by case. Got {len(leaves)}.")
    size = max((terms.longest(leaf) for leaf in leaves if leaf is not None), default=0)
    if size > terms.LONGEST:
        raise BadQuery(f"a joined text may have at most {terms.LONGEST:,} characters. This one may have {size:,}.")
    return Value(NO_STEP, open_text(nullable), tree=tree)


def _leaves(tree: Tree) -> list[Term | None]:
    if isinstance(tree, Choice):
        return [*_leaves(tree.then), *_leaves(tree.other)]
    return [tree]


def _combined(trees: Sequence[Tree], make: Make, done: tuple[Term, ...] = ()) -> Tree:
    """``make`` of every combination of the terms that these may be; NULL where one is."""
    if not trees:
        return make(*done)
    first, *rest = trees
    if isinstance(first, Choice):
        branches = [_combined([branch, *rest], make, done) for branch in (first.then, first.other)]
        return Choice(first.condition, *branches)
    return None if first is None else _combined(rest, make, (*done, first))


def _changed(build: Builder, op: str, args: Sequence[Value], make: Make) -> Value:
    """A text made of texts."""
    if are_texts(*args):
        trees = [text_of(build, arg) for arg in args]
        _few([len(_leaves(tree)) for tree in trees], MOST_LISTED)
        return _text(_combined(trees, make), any_nullable(*args))
    return _listed(build, op, args, make)


def _asked(build: Builder, op: str, value: Value, make: Make) -> Value:
    """A number or a truth of one text."""
    if value.type.kind == "text":
        return _asked_of(build, [value.tree], make, value.type.nullable)
    return _tabled(build, op, value, make)


def _asked_of(build: Builder, trees: Sequence[Tree], make: Make, nullable: bool) -> Value:
    _few([len(_leaves(tree)) for tree in trees], MOST_LISTED)
    asked = _combined(trees, make)
    leaves = [leaf for leaf in _leaves(asked) if leaf is not None]
    if make(*[("text", "")] * len(trees))[0] in terms.BOOLEAN:
        return Value(_observed(build, asked, True), boolean(nullable))
    most = max((terms.longest(leaf) for leaf in leaves), default=0)
    return Value(_observed(build, asked, False), number(0.0, float(most), integral=True, nullable=nullable))


def _observed(build: Builder, tree: Tree, truth: bool) -> int:
    if isinstance(tree, Choice):
        branches = [_observed(build, branch, truth) for branch in (tree.then, tree.other)]
        return build.emit("if", tree.condition, *branches, boolean=truth)
    if tree is None:
        return _nothing(build, truth)
    if not [*terms.columns_in(tree)]:
        return _fixed(build, terms.observe(tree, lambda _: None))
    return build.emit("column", constants=observed(tree), boolean=truth)


def _nothing(build: Builder, truth: bool) -> int:
    """NULL, as a number or as a truth."""
    null = build.const(None)
    return build.emit("eq", null, build.const(0.0)) if truth else null


def _fixed(build: Builder, value: float | bool | None) -> int:
    if isinstance(value, bool):
        return build.emit("true" if value else "false")
    return build.const(value)


# -- listed texts ------------------------------------------------------------------------------------------------------


def _listed(build: Builder, op: str, args: Sequence[Value], make: Make) -> Value:
    """A text made of listed ones: another list, and for each place in the old ones a place in the new."""
    lists = [_texts(value, op) for value in args]
    _few([len(own) for own in lists], MOST_JOINED)
    step, nullable = args[0].step, args[0].type.nullable
    for value in args[1:]:
        many = build.const(float(len(value.type.labels)))
        step = build.emit("add", build.emit("mul", step, many), value.step)
        nullable = nullable or value.type.nullable
    made = [str(terms.text_of(make(*[("text", text) for text in texts]), lambda _: None)) for texts in product(*lists)]
    labels: tuple[Label, ...] = tuple(dict.fromkeys(made))
    where = {text: float(place) for place, text in enumerate(labels)}
    constants = [_constant(build, value) for value in args]
    if None not in constants:
        return Value(build.const(0.0), label(labels, False))
    return Value(by_place(build, step, [where[text] for text in made], nullable), label(labels, nullable))


def _tabled(build: Builder, op: str, value: Value, make: Make) -> Value:
    """A number or a truth of a listed text."""
    found = [terms.observe(make(("text", text)), lambda _: None) for text in _texts(value, op)]
    step = by_place(build, value.step, found, value.type.nullable)
    if isinstance(found[0], bool):
        return Value(step, boolean(value.type.nullable))
    ends = [float(one) for one in found if one is not None]
    return Value(step, number(min(ends), max(ends), integral=True, nullable=value.type.nullable))


def _texts(value: Value, op: str) -> list[str]:
    """The texts that it is one of."""
    if value.type.kind != "label" or not all(isinstance(own, str) for own in value.type.labels):
        raise BadQuery(f"{op.upper()} takes texts. Got {value.type}.")
    return [str(own) for own in value.type.labels]


def by_place(build: Builder, step: int, found: Sequence[Any], nullable: bool) -> int:
    """What stands at a place of a public table; NULL stays NULL."""
    truth = isinstance(found[0], bool)
    if len(set(found)) == 1:
        known = _fixed(build, found[0])
        return (
            build.emit("if", build.emit("is_null", step), _nothing(build, truth), known, boolean=truth)
            if nullable
            else known
        )
    if not truth and all(one == place for place, one in enumerate(found)):
        return step
    told = build.emit("lookup", step, constants=(Listing(tuple(map(float, found))),))
    return build.emit("eq", told, build.const(1.0)) if truth else told


# -- what is written ---------------------------------------------------------------------------------------------------


def _few(sizes: Sequence[int], most: int) -> None:
    total = 1
    for size in sizes:
        total *= size
    if total > most:
        raise BadQuery(f"these texts may be {total:,} different ones, case by case; at most {most:,} are taken.")


def _constant(build: Builder, value: Value) -> str | None:
    """A text as it is written."""
    single = value.type.kind == "label" and len(value.type.labels) == 1 and build.steps[value.step].op == "const"
    text = value.type.labels[0] if single else None
    return text if isinstance(text, str) else None


def _literal(build: Builder, value: Value, what: str) -> str:
    text = _constant(build, value)
    if text is None:
        raise BadQuery(f"{what} must be a literal text. Got {value.type}.")
    return _known(text)


def _known(text: Label) -> str:
    if not is_text(text):
        raise BadQuery("a text must be Unicode, without a NUL and without half a character.")
    return str(text)


def _whole(build: Builder, value: Value, what: str, least: int) -> int:
    constant = build.steps[value.step].constants if value.step >= 0 and build.steps[value.step].op == "const" else ()
    found = constant[0] if constant and value.type.kind == "number" else None
    if found is None or found != int(found) or not least <= found <= 10**6:
        raise BadQuery(f"{what} must be a constant whole number from {least} on, counted from the first character.")
    return int(found)
