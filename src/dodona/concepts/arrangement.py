"""Linear arrangements (Alda and Simon 2014, section 6): classes whose members are thresholds of few bits.

A member is written f(x) = [<w, b(x)> >= t] with whole weights w over public conditions b. Lemma 9 embeds x and f as
unit vectors u_x and v_f with <u_x, v_f> proportional to <w, b(x)> - t, so the mean of u_x, asked once, gives the mean
of <w, b> for every f; equation (19) then turns it into a fraction,

    omega = (S - m_0) / (m_1 - m_0),   S = <w, mean of b>,   m_c = E[<w, b(x)> | f(x) = c]  for x uniform on X:

threshold and norms cancel. m_0 and m_1 (the margins (16), up to a common scale) are computed exactly by counting sums;
``margins.py`` has them for weights too large to count. X is the ``Universe`` of what the columns can hold, not all bit
patterns: x >= 3 and x < 2 are never both true, and one value of a category at a time is.
Definition 5 promises this for data drawn uniformly from X_{f,1} and X_{f,0}; on other data it can be biased.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.boxes import Boxes, Ladder
from dodona.concepts.concept import ConceptClass
from dodona.concepts.conjunctions import Conjunctions, Disjunctions
from dodona.concepts.parities import NONE
from dodona.concepts.trees import DecisionLists, splits_of
from dodona.errors import BadQuery, Unsupported
from dodona.query.expr import Call, Column, Expr, Literal, columns_of
from dodona.query.schema import Flag, Schema

MOST_SUM = 10_000_000
Literals = tuple[tuple[int, bool], ...]
"""(place among the conditions, whether it must be true)."""


Pattern = tuple[bool, ...]


@dataclass(frozen=True)
class Universe:
    """X: columns are independent, and each has some points, all as likely. ``groups``: for each column, the places of
    its conditions and which of them are true at each of its points.
    """

    groups: tuple[tuple[tuple[int, ...], tuple[Pattern, ...]], ...]

    @staticmethod
    def of(conditions: Sequence[Expr], nullable: frozenset[str] = NONE) -> Universe:
        """By the conditions alone: the cells between a number's cuts, the values of a category, true and false.

        A column that may be missing has one point more, where none is true. What is not understood is true or not, by
        itself.
        """
        places: dict[frozenset[str] | int, list[int]] = {}
        for place, condition in enumerate(conditions):
            read = columns_of(condition)
            places.setdefault(frozenset(read) if len(read) == 1 else place, []).append(place)
        groups: list[tuple[tuple[int, ...], tuple[Pattern, ...]]] = []
        for column, own in places.items():
            tests = [conditions[place] for place in own]
            points = None if isinstance(column, int) else _points(tests, bool(column & nullable))
            if points is None:
                groups += [((place,), ((False,), (True,))) for place in own]
            else:
                groups.append((tuple(own), points))
        return Universe(tuple(groups))

    @property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(len(points) for _, points in self.groups)

    def within(self, places: Sequence[int]) -> Universe:
        """Of these places alone, which are numbered anew: 0 for the first. Points keep how often they come."""
        new = {place: i for i, place in enumerate(places)}
        found = []
        for own, points in self.groups:
            kept = [i for i, place in enumerate(own) if place in new]
            if kept:
                found.append((tuple(new[own[i]] for i in kept), tuple(tuple(p[i] for i in kept) for p in points)))
        return Universe(tuple(found))

    @property
    def free(self) -> bool:
        """Whether every pattern of bits comes equally often."""
        return all(sorted(points) in ([(False,), (True,)], [(True,), (False,)]) for _, points in self.groups)

    def draw(self, samples: int, generator: np.random.Generator) -> NDArray[np.bool_]:
        """Uniform points (samples x places)."""
        out = np.zeros((samples, sum(len(own) for own, _ in self.groups)), dtype=np.bool_)
        for own, points in self.groups:
            out[:, list(own)] = np.array(points, dtype=np.bool_)[generator.integers(0, len(points), samples)]
        return out


def _points(tests: Sequence[Expr], nullable: bool) -> tuple[Pattern, ...] | None:
    """The truth of one column's tests at each of its points; None where a test is not understood."""
    numbers, values = set[float](), dict[Any, None]()
    for test in tests:
        if not _looked_at(test, numbers, values):
            return None
    if numbers and values:
        return None
    if numbers:
        cuts = sorted(numbers)
        held: list[Any] = [cuts[0] - 1.0, *cuts]
    elif values:
        # Of two values one test tells both apart: where it is false the other one is held.
        held = [*values, *([] if len(values) > 1 else [None])]
    else:
        held = [True, False]
    held += [None] if nullable else []
    return tuple(tuple(_true(test, value) is True for test in tests) for value in held)


def _looked_at(test: Expr, numbers: set[float], values: dict[Any, None]) -> bool:
    match test:
        case Column() | Literal(bool()):
            return True
        case Call("ge" | "lt", (Column(), Literal(float(cut)))):
            numbers.add(cut)
            return True
        case Call("eq", (Column(), Literal(value))):
            values[value] = None
            return True
        case Call("and" | "or" | "not" | "coalesce", args):
            return all(_looked_at(arg, numbers, values) for arg in args)
    return False


def _true(test: Expr, held: Any) -> bool | None:
    """Of a test that ``_looked_at`` understands, where its column holds a value, or none."""
    match test:
        case Literal(bool(value)):
            return value
        case Call("coalesce", (first, second)):
            found = _true(first, held)
            return _true(second, held) if found is None else found
        case Call("and" | "or" as op, args):
            parts, stop = [_true(arg, held) for arg in args], op == "or"
            return stop if stop in parts else None if None in parts else not stop
        case Call("not", (inner,)):
            found = _true(inner, held)
            return None if found is None else not found
        case Call(op, (_, Literal(value))) if held is not None:
            return bool({"ge": held >= value, "lt": held < value}[op] if op != "eq" else held == value)
        case Column():
            return None if held is None else bool(held)
    return None


@dataclass(frozen=True)
class Threshold:
    """f = [sum_i weights[i] b_{places[i]} >= least], whole numbers.

    ``rules``: where f is a decision list, (fires when, says) of the rule behind each weight, last rule first.
    """

    places: tuple[int, ...]
    weights: tuple[int, ...]
    least: int
    rules: tuple[tuple[bool, bool], ...] = ()

    def holds(self, bits: Sequence[bool]) -> bool:
        """f on the bits at ``places``."""
        return sum(w for w, bit in zip(self.weights, bits, strict=True) if bit) >= self.least

    def levels(self, universe: Universe | None = None) -> tuple[float, float]:
        """(m_0, m_1): the mean of <w, b> over the universe, where f is 0 and where it is 1; NaN where it never is.

        ``universe``: of all conditions; without one, all patterns of bits.
        """
        low = sum(w for w in self.weights if w < 0)
        high = sum(w for w in self.weights if w > 0)
        if high - low > MOST_SUM:
            raise Unsupported(
                f"counting an exact margin needs weights that sum to at most {MOST_SUM:,}. These sum to "
                f"{high - low:,}: dodona.concepts.margins.levels goes by the rules of a decision list, or samples."
            )
        ways = np.zeros(high - low + 1)
        ways[-low] = 1.0
        for sums in self._sums(universe):  # averaged each time, so that nothing overflows
            ways = np.sum([_shift(ways, by) for by in sums], axis=0) / len(sums)
        levels = np.arange(low, high + 1)
        true = levels >= self.least
        return _mean(levels, ways, ~true), _mean(levels, ways, true)

    def _sums(self, universe: Universe | None) -> list[list[int]]:
        """For each column, what it adds to <w, b> at each of its points."""
        if universe is None:
            return [[0, weight] for weight in self.weights]
        return [
            [sum(self.weights[i] for i, bit in zip(own, point, strict=True) if bit) for point in points]
            for own, points in universe.within(self.places).groups
        ]

    def margin(self, conditions: int, universe: Universe | None = None) -> tuple[float, float]:
        """(gamma_0, gamma_1) of (16) for unit vectors in Lemma 9's embedding over ``conditions`` bits as signs.

        u = (s, sqrt(k))/sqrt(2k) with signs s = 1 - 2b, v along (-w/2, -(t - sum w/2)/sqrt(k)), t midway between sums.
        """
        below, norm = self.least - 0.5, self.length(conditions)
        zero, one = self.levels(universe)
        return (below - zero) / norm, (one - below) / norm

    def length(self, conditions: int) -> float:
        """What <w, b> - t is divided by when u and v are made unit vectors."""
        offset = self.least - 0.5 - sum(self.weights) / 2
        squares = sum(w * w for w in self.weights) / 4
        return math.sqrt(2 * conditions) * math.sqrt(squares + offset * offset / conditions)


def _shift(ways: NDArray[np.float64], by: int) -> NDArray[np.float64]:
    out = np.zeros_like(ways)
    if by >= 0:
        out[by:] = ways[: len(ways) - by]
    else:
        out[:by] = ways[-by:]
    return out


def _mean(sums: NDArray[Any], ways: NDArray[np.float64], where: NDArray[np.bool_]) -> float:
    mass = float(ways[where].sum())
    return float((sums * ways)[where].sum()) / mass if mass > 0 else math.nan


def monomial(literals: Literals) -> Threshold:
    """All literals hold: weights +-1, least = the number of literals that must be true."""
    places = tuple(place for place, _ in literals)
    weights = tuple(1 if wanted else -1 for _, wanted in literals)
    return Threshold(places, weights, sum(wanted for _, wanted in literals))


def clause(literals: Literals) -> Threshold:
    """Some literal holds: the complement of all their opposites."""
    places = tuple(place for place, _ in literals)
    weights = tuple(1 if wanted else -1 for _, wanted in literals)
    return Threshold(places, weights, 1 - sum(not wanted for _, wanted in literals))


def decision_list(rules: Sequence[tuple[int, bool, bool]], default: bool) -> Threshold:
    """[(place, fires when, says), ...] then ``default``, with Theorem 9's weights.

    From the last rule backwards, rules that say the same form segments; W_1 = 1 and W_{j+1} = sum_{i<=j} k_i W_i over
    segments of k_i rules (with k_0 = W_0 = 1), signed by what they say. Rules at the end that say what the default
    says change nothing and are dropped.
    """
    listed = list(rules)
    while listed and listed[-1][2] == default:
        listed.pop()
    if len({place for place, _, _ in listed}) < len(listed):
        raise BadQuery("a decision list must test each condition once.")
    places, weights, least = [], [], 0 if default else 1
    size, total, count, says = 1, 1, 0, None
    for place, when, said in reversed(listed):
        if says is not None and said != says:
            total += count * size
            size, count = total, 0
        says, count = said, count + 1
        signed = size if said else -size
        # A rule that fires when its condition is false: [not b] = 1 - b moves its weight into the threshold.
        places.append(place)
        weights.append(signed if when else -signed)
        least -= 0 if when else signed
    return Threshold(tuple(places), tuple(weights), least, tuple((when, says) for _, when, says in reversed(listed)))


def weight_bound(variables: int, changes: int) -> float:
    """P_c(k) = (1 + (k-1)/(c-1))^(c-1): Theorem 9's bound on the weights; 1 at c = 1 (ERRATA 24: printed as 0/0)."""
    return 1.0 if changes <= 1 else (1 + (variables - 1) / (changes - 1)) ** (changes - 1)


# -- from expressions to thresholds ------------------------------------------------------------------------------------


def threshold_of(expr: Expr, known: Mapping[Expr, int], nullable: frozenset[str] = NONE) -> Threshold | None:
    """A monomial, clause or decision list over ``known`` conditions; None for anything else.

    Of ``nullable`` columns, that a condition is not true does not make its opposite true: there NOT must be known.
    (A decision list goes on where its test is not true, so it has no such case.)
    """
    rules = _rules(expr, known)
    if rules is not None and rules[0]:
        return decision_list(*rules)
    if isinstance(expr, Call) and expr.op in ("and", "or"):
        literals = _literals(expr, expr.op, known, nullable)
        if literals is not None and len({place for place, _ in literals}) == len(literals):
            return (monomial if expr.op == "and" else clause)(literals)
    literal = _literal(expr, known, nullable)
    return None if literal is None else monomial((literal,))


def _literal(expr: Expr, known: Mapping[Expr, int], nullable: frozenset[str]) -> tuple[int, bool] | None:
    if expr in known:
        return known[expr], True
    if isinstance(expr, Call) and expr.op == "not" and expr.args[0] in known and not columns_of(expr) & nullable:
        return known[expr.args[0]], False
    return None


def _literals(expr: Expr, op: str, known: Mapping[Expr, int], nullable: frozenset[str]) -> Literals | None:
    if isinstance(expr, Call) and expr.op == op:
        parts = [_literals(arg, op, known, nullable) for arg in expr.args]
        return None if None in parts else tuple(literal for part in parts for literal in part or ())
    literal = _literal(expr, known, nullable)
    return None if literal is None else (literal,)


def _rules(expr: Expr, known: Mapping[Expr, int]) -> tuple[list[tuple[int, bool, bool]], bool] | None:
    rules: list[tuple[int, bool, bool]] = []
    while True:
        match expr:
            case Literal(bool(default)):
                return rules, default
            case Call("if", (condition, Literal(bool(said)), rest)) if condition in known:
                rules.append((known[condition], True, said))
                expr = rest
            case Call("if", (condition, rest, Literal(bool(said)))) if condition in known:
                rules.append((known[condition], False, said))
                expr = rest
            case _:
                return None


# -- the conditions of a class -----------------------------------------------------------------------------------------


def conditions_of(concepts: ConceptClass, schema: Schema) -> tuple[Expr, ...]:
    """The public conditions a class's members are made of; refuses a class that has no arrangement here."""
    find = _CONDITIONS.get(type(concepts))
    if find is None:
        raise Unsupported(
            f"{concepts.describe()} have no linear arrangement with small weights here. Conjunctions, Disjunctions, "
            "DecisionLists and Boxes have; parities have none at all (see dodona.bounds.alda_simon)."
        )
    return tuple(dict.fromkeys(find(concepts, schema)))


def _axes(concepts: Any, schema: Schema) -> list[Expr]:
    like = Conjunctions(concepts.columns, concepts.width, concepts.edges)
    found: list[Expr] = []
    for axis in like.axes(schema):
        # A flag that is never missing has one condition, whose opposite is its NOT; any other test is its own.
        column = schema[axis.column]
        found += [axis.tests[1]] if isinstance(column, Flag) and column.missing is not None else axis.tests
    return found


def _box(concepts: Any, schema: Schema) -> list[Expr]:
    found: list[Expr] = []
    for rungs in concepts.ladders(schema):
        found += _ends(rungs)
    return found


def _ends(rungs: Ladder) -> list[Expr]:
    return [end(place) for end in (rungs.at_least, rungs.below) for place in range(1, rungs.cells)]


_CONDITIONS: dict[type, Callable[[Any, Schema], Sequence[Expr]]] = {
    Conjunctions: _axes,
    Disjunctions: _axes,
    DecisionLists: lambda c, schema: splits_of(schema, c.columns, c.edges),
    Boxes: _box,
}
