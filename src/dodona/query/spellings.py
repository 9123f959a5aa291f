"""Other databases' words for what there is: one tree of the parser is put in another's place before it is read.

``LAST_DAY(d)`` is a day before ``DATE_TRUNC('month', d) + INTERVAL '1' MONTH``, ``REGR_SLOPE(y, x)`` a quotient of
aggregates, ``INSTR(s, 'a') > 0`` is ``CONTAINS(s, 'a')``. A word stands here only if what it becomes says the same of
every row, NULL included; where databases differ, or a word is more than what it could become, it is refused with what
to write (``errors.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dodona.query.phrases import PARTS

Tree = Any  # a sqlglot expression
_UNITS = frozenset("millisecond microsecond".split())  # noqa: SIM905
_LARGEST = 200  # nodes of what is written more than once: no short text becomes a large tree
_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split()  # noqa: SIM905
_ONE_QUANTILE = frozenset(
    "APPROX_PERCENTILE APPROX_QUANTILE PERCENTILE PERCENTILE_APPROX QUANTILE_CONT QUANTILE_DISC".split()  # noqa: SIM905
)
_PLAIN = re.compile(r"(\^?)((?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])*)(\$?)", re.DOTALL)
_MATCHES = frozenset({"REGEXP_CONTAINS", "REGEXP_MATCHES", "RLIKE"})
_FOUND: dict[tuple[str, float], bool] = {
    ("GT", 0): True, ("GTE", 1): True, ("NEQ", 0): True, ("EQ", 0): False, ("LT", 1): False, ("LTE", 0): False,
}  # fmt: skip


def nodes_of(tree: Tree) -> list[Tree]:
    """A tree and all that is below it, level by level; the parser's own walk takes three times as long."""
    found = [tree]
    for node in found:
        for value in node.args.values():
            if type(value) is list:
                found += [part for part in value if hasattr(part, "args")]
            elif hasattr(value, "args"):
                found.append(value)
    return found


def respelled(root: Tree) -> Tree:
    """The tree with words of ours alone, as far as they are known; a part that is not stays as it is."""
    nodes = nodes_of(root)
    if all(type(node).__name__ not in _MADE and type(node).__name__ != "Anonymous" for node in nodes):
        return root
    from sqlglot import exp

    top = exp.Paren(this=root)
    for node in reversed(nodes):
        name = type(node).__name__
        known = _NAMED.get(str(node.this).upper()) if name == "Anonymous" else _MADE.get(name)
        made = None if known is None else known(exp, node)
        if made is not None:
            for key in ("start", "end", "word"):
                if key in node.meta:
                    made.meta[key] = node.meta[key]
            node.replace(made)
    return top.this


def _small(*trees: Tree) -> bool:
    return all(tree is not None for tree in trees) and sum(1 for tree in trees for _ in tree.walk()) <= _LARGEST


def _number(tree: Tree) -> float | None:
    """A number of few digits that is written out."""
    negative = type(tree).__name__ == "Neg"
    tree = tree.this if negative else tree
    plain = type(tree).__name__ == "Literal" and not tree.args.get("is_string")
    found = float(tree.this) if plain and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", str(tree.this)) else None
    return -found if negative and found is not None else found


def _text(tree: Tree) -> str | None:
    return str(tree.this) if type(tree).__name__ == "Literal" and tree.args.get("is_string") else None


def _unit(tree: Tree) -> str | None:
    """A unit of time as a bare word or a text."""
    if type(tree).__name__ not in ("Column", "Var", "Literal") or tree.args.get("table"):
        return None
    name = str(tree.name).lower().removesuffix("s")
    return name if name in _UNITS or name in PARTS else None


def _call(exp: Any, name: str, *args: Tree) -> Tree:
    return exp.Anonymous(this=name, expressions=list(args))


# -- dates -------------------------------------------------------------------------------------------------------------


def _date_trunc(exp: Any, node: Tree) -> Tree | None:
    """DATE_TRUNC(d, MONTH)."""
    if len(node.expressions) != 2 or _text(node.expressions[0]) is not None:
        return None
    value, unit = node.expressions
    return _call(exp, "DATE_TRUNC", exp.Literal.string(_unit(unit)), value) if _unit(unit) else None


def _difference(exp: Any, node: Tree) -> Tree | None:
    """DATE_DIFF(later, earlier, DAY); TIMESTAMPDIFF(DAY, earlier, later)."""
    if len(node.expressions) != 3 or _text(node.expressions[0]) is not None:
        return None
    first, second, third = node.expressions
    if _unit(third) and not _unit(first):
        return _call(exp, "DATEDIFF", exp.Literal.string(_unit(third)), second, first)
    return _call(exp, "DATEDIFF", exp.Literal.string(_unit(first)), second, third) if _unit(first) else None


def _moved(exp: Any, value: Tree, amount: Tree, unit: str | None) -> Tree | None:
    number = _number(amount)
    if number is None or not number.is_integer() or unit is None:
        return None
    interval = exp.Interval(this=exp.Literal.string(f"{int(abs(number))}"), unit=exp.Var(this=unit.upper()))
    return (exp.Sub if number < 0 else exp.Add)(this=value, expression=interval)


def _date_add(exp: Any, node: Tree) -> Tree | None:
    """DATEADD(year, 18, d)."""
    if len(node.expressions) != 3:
        return None
    unit, amount, value = node.expressions
    return _moved(exp, value, amount, _unit(unit))


def _add_months(exp: Any, node: Tree) -> Tree | None:
    return _moved(exp, node.this, node.expression, "month")


def _last_day(exp: Any, node: Tree) -> Tree | None:
    if node.args.get("unit"):
        return None
    month = _moved(
        exp, _call(exp, "DATE_TRUNC", exp.Literal.string("month"), node.this), exp.Literal.number(1), "month"
    )
    day = exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="DAY"))
    return _call(exp, "DATE", exp.Sub(this=exp.Paren(this=month), expression=day))


def _named_part(part: str, names: list[str], first: int) -> Callable[[Any, Tree], Tree | None]:
    """MONTHNAME and DAYNAME: a CASE, whose results are listed."""

    def made(exp: Any, node: Tree) -> Tree | None:
        if node.args.get("abbreviated"):
            return None
        whens = [
            exp.If(this=exp.Literal.number(first + place), true=exp.Literal.string(name))
            for place, name in enumerate(names)
        ]
        return exp.Case(this=_call(exp, part, node.this), ifs=whens)

    return made


# -- texts -------------------------------------------------------------------------------------------------------------


def _found(exp: Any, node: Tree) -> Tree | None:
    """INSTR(s, 'a') > 0 and its like."""
    place, number = node.this, _number(node.expression)
    if type(place).__name__ != "StrPosition" or number is None:
        return None
    odd = [part for part, value in place.args.items() if value and part not in ("this", "substr")]
    sought = _FOUND.get((type(node).__name__, number))
    if odd or sought is None or not _text(place.args.get("substr")):
        return None
    holds = exp.Contains(this=place.this, expression=place.args["substr"])
    return holds if sought else exp.Not(this=exp.Paren(this=holds))


def _matched(exp: Any, node: Tree) -> Tree | None:
    """A regular expression that is a plain text, at an end or anywhere."""
    given = node.expressions if type(node).__name__ == "Anonymous" else [node.this, node.expression]
    if len(given) != 2 or node.args.get("flag"):
        return None
    pattern = _text(given[1])
    found = None if pattern is None else _PLAIN.fullmatch(pattern)
    if found is None:
        return None
    start, body, stop = found.groups()
    plain = exp.Literal.string(re.sub(r"\\(.)", r"\1", body, flags=re.DOTALL))
    if start and stop:
        return exp.EQ(this=given[0], expression=plain)
    kind = exp.StartsWith if start else exp.EndsWith if stop else exp.Contains
    return kind(this=given[0], expression=plain)


def _decoded(exp: Any, node: Tree) -> Tree | None:
    """DECODE(x, a, b, c, d, e): CASE x WHEN a THEN b WHEN c THEN d ELSE e END, for values that are written out."""
    of, *pairs = node.expressions
    other = pairs.pop() if len(pairs) % 2 else None
    sought = pairs[::2]
    if not sought or any(type(one).__name__ not in ("Literal", "Boolean") for one in sought):
        return None
    whens = [exp.If(this=one, true=then) for one, then in zip(sought, pairs[1::2], strict=True)]
    return exp.Case(this=of, ifs=whens, **({} if other is None else {"default": other}))


def _all_known(exp: Any, node: Tree) -> Tree | None:
    """CONCAT_WS('-', a, b): those that are known, with the sign between; each with one before it, less the first."""
    sign, *parts = node.expressions
    text = _text(sign)
    if text is None or len(parts) < 2:
        return None
    led = [exp.Concat(expressions=[sign.copy(), part]) for part in parts]
    known = [exp.Coalesce(this=part, expressions=[exp.Literal.string("")]) for part in led]
    return exp.Substring(this=exp.Concat(expressions=known), start=exp.Literal.number(len(text) + 1))


_FORMS = {
    "YYYY": "year", "MM": "month", "DD": "day", "HH24": "hour", "MI": "minute",
    "%Y": "year", "%m": "month", "%d": "day", "%H": "hour",
}  # fmt: skip
_FORM = re.compile(r"(?P<part>YYYY|MM|DD|HH24|MI|%[A-Za-z%])|(?P<sign>[-/:. ])|(?P<odd>.)", re.DOTALL)


def _written(exp: Any, node: Tree) -> Tree | None:
    """TO_CHAR(d, 'YYYY-MM'), STRFTIME(d, '%Y-%m'), FORMAT_DATE('%Y', d): parts of a date as a text, for GROUP BY."""
    given = node.expressions if type(node).__name__ == "Anonymous" else [node.this, node.args.get("format")]
    if len(given) != 2 or given[1] is None:
        return None
    form, value = sorted(given, key=lambda one: _text(one) is None)
    found = [(match.lastgroup, match.group()) for match in _FORM.finditer(_text(form) or "")]
    named = [text for kind, text in found if kind == "part"]
    marks = {text.startswith("%") for text in named}
    if not named or len(marks) > 1 or any(kind != "sign" and text not in _FORMS for kind, text in found):
        return None
    if marks == {type(node).__name__ == "ToChar"} or not _small(value):
        return None
    parts = []
    for kind, text in found:
        if kind == "sign":
            parts.append(exp.Literal.string(text))
            continue
        part, more, width = _call(exp, _FORMS[text].upper(), value.copy()), 100, 2
        if _FORMS[text] == "year":
            more, width = 10_000, 4
        padded = exp.Cast(this=exp.Add(this=part, expression=exp.Literal.number(more)), to=exp.DataType.build("text"))
        parts.append(exp.Substring(this=padded, start=exp.Literal.number(2), length=exp.Literal.number(width)))
    return exp.Concat(expressions=parts)


# -- numbers and aggregates --------------------------------------------------------------------------------------------


def _bucketed(exp: Any, node: Tree) -> Tree | None:
    """WIDTH_BUCKET(x, low, high, n): 1 to n; 0 below, n + 1 from ``high`` on."""
    low, high, count = (_number(node.args.get(part)) for part in ("min_value", "max_value", "num_buckets"))
    if low is None or high is None or not count or not low < high or count > 1000 or not count.is_integer():
        return None
    start, width, last = (exp.Literal.number(repr(abs(one))) for one in (low, high - low, count))
    from_low = (exp.Sub if low >= 0 else exp.Add)(this=node.this, expression=start)
    many = exp.Mul(this=exp.Paren(this=from_low), expression=last)
    place = exp.Floor(this=exp.Div(this=many, expression=width))
    kept = exp.Greatest(this=place, expressions=[exp.Neg(this=exp.Literal.number(1))])
    kept = exp.Least(this=kept, expressions=[last.copy()])
    return exp.Paren(this=exp.Add(this=kept, expression=exp.Literal.number(1)))


def _quantile(exp: Any, node: Tree) -> Tree | None:
    return exp.Quantile(this=node.expressions[0], quantile=node.expressions[1]) if len(node.expressions) == 2 else None


def _distinct(exp: Any, node: Tree) -> Tree | None:
    return None if node.args.get("accuracy") else exp.Count(this=exp.Distinct(expressions=[node.this]))


def _regression(exp: Any, node: Tree) -> Tree | None:
    """REGR_...(y, x), over the rows where both are known."""
    y, x, kind = node.this, node.expression, type(node).__name__
    if not _small(y, x):
        return None

    def known(tree: Tree) -> Tree:
        return exp.Not(this=exp.Paren(this=exp.Is(this=tree.copy(), expression=exp.Null())))

    def over(aggregate: Tree, other: Tree) -> Tree:
        return exp.Filter(this=aggregate, expression=exp.Where(this=known(other)))

    def slope() -> Tree:
        varies = over(exp.VariancePop(this=x.copy()), y)
        return exp.Div(this=exp.CovarPop(this=y.copy(), expression=x.copy()), expression=varies)

    match kind:
        case "RegrCount":
            return exp.CountIf(this=exp.And(this=known(y), expression=known(x)))
        case "RegrAvgx":
            return over(exp.Avg(this=x.copy()), y)
        case "RegrAvgy":
            return over(exp.Avg(this=y.copy()), x)
        case "RegrSlope":
            return exp.Paren(this=slope())
    line = exp.Mul(this=exp.Paren(this=slope()), expression=over(exp.Avg(this=x.copy()), y))
    return exp.Paren(this=exp.Sub(this=over(exp.Avg(this=y.copy()), x), expression=line))


def _joined(exp: Any, node: Tree) -> None:
    """FROM a, b WHERE a.k = b.k is FROM a JOIN b ON a.k = b.k."""
    where, source = node.args.get("where"), node.args.get("from") or node.args.get("from_")
    if where is None or source is None:
        return
    parts = [where.this]
    while type(parts[0]).__name__ == "And":
        parts[:1] = [parts[0].this, parts[0].expression]
    before = {str(source.this.alias_or_name).casefold()}
    for join in node.args.get("joins") or []:
        own = str(join.this.alias_or_name).casefold()
        bare = not any(join.args.get(part) for part in ("on", "using", "side", "method"))
        if bare and str(join.args.get("kind") or "").upper() in ("", "CROSS"):
            on = next((part for part in parts if any(_links(part, own, one) for one in before)), None)
            if on is not None:
                parts = [part for part in parts if part is not on]
                join.set("on", on.copy())
                join.set("kind", None)
        before.add(own)
    if not parts:
        node.set("where", None)
    else:
        kept = parts[0]
        for part in parts[1:]:
            kept = exp.And(this=kept, expression=part)
        where.set("this", kept)


_READS = {"expressions", "from", "from_", "where", "joins"}


def _total(exp: Any, node: Tree) -> Tree | None:
    """(SELECT COUNT(*) FROM t) beside groups of t by plain keys: the total of all groups, SUM(COUNT(*)) OVER ()."""
    inner, outer = node.this, node.find_ancestor(exp.Select)
    group = None if outer is None else outer.args.get("group")
    if type(inner).__name__ != "Select" or group is None or outer.args.get("having"):
        return None
    keys = {part for part, value in group.args.items() if value}
    if keys != {"expressions"} or group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        return None
    alike = all(str(inner.args.get(part)) == str(outer.args.get(part)) for part in _READS - {"expressions"})
    if not alike or {part for part, value in inner.args.items() if value} - _READS - {"kind"}:
        return None
    of = inner.expressions[0].unalias() if len(inner.expressions) == 1 else inner
    if type(of).__name__ not in ("Count", "Sum") or type(of.this).__name__ == "Distinct":
        return None
    within = node.find_ancestor(exp.From, exp.CTE, exp.Where, exp.Group)
    if within is not None and within.find_ancestor(exp.Select) is outer:
        return None
    return exp.Window(this=exp.Sum(this=of))


def _links(part: Tree, one: str, other: str) -> bool:
    """Whether it is an equation of a column of each."""
    sides = [part.this, part.expression] if type(part).__name__ == "EQ" else []
    named = sorted(str(side.table).casefold() for side in sides if type(side).__name__ == "Column")
    return len(named) == 2 and named == sorted((one, other))


_MADE: dict[str, Callable[[Any, Tree], Tree | None]] = {
    "Select": _joined,
    "Subquery": _total,
    **dict.fromkeys(("GT", "GTE", "NEQ", "EQ", "LT", "LTE"), _found),
    "RegexpLike": _matched,
    "DecodeCase": _decoded,
    "ConcatWs": _all_known,
    "ToChar": _written,
    "LastDay": _last_day,
    "AddMonths": _add_months,
    "Monthname": _named_part("MONTH", _MONTHS, 1),
    "Dayname": _named_part("WEEKDAY", _DAYS, 0),
    "WidthBucket": _bucketed,
    "ApproxDistinct": _distinct,
    **dict.fromkeys(("RegrCount", "RegrAvgx", "RegrAvgy", "RegrSlope", "RegrIntercept"), _regression),
}
_NAMED: dict[str, Callable[[Any, Tree], Tree | None]] = {
    "DATE_TRUNC": _date_trunc,
    "DATETIME_TRUNC": _date_trunc,
    **dict.fromkeys(("DATE_DIFF", "TIMESTAMP_DIFF", "DATETIME_DIFF", "TIMESTAMPDIFF"), _difference),
    "DATEADD": _date_add,
    **dict.fromkeys(("STRFTIME", "FORMAT_DATE", "FORMAT_TIMESTAMP", "DATE_FORMAT"), _written),
    **dict.fromkeys(_MATCHES, _matched),
    **dict.fromkeys(_ONE_QUANTILE, _quantile),
}
