"""How far one contributor moves each kind of question: a line for each rule of sensitivity, units and groups.

Each kind of question is put to a real curator over small tables of extreme rows: at the ends of their ranges, missing,
outside the schema, no numbers at all. Noise and charge follow from the rule; what is released is compared with them
(``audit/end_to_end.py``). The tables are small because a sum moves by what one contributor moves it, whatever the
others hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from dodona.audit.end_to_end import (
    Path,
    chosen,
    finite_path,
    groups_path,
    noise_drawn,
    noisy_path,
    questions_path,
    ranked_path,
)
from dodona.audit.exact import ExactAudit
from dodona.audit.mechanisms import Check, together
from dodona.audit.neighbours import Fixed, Near, People, SmallDomain
from dodona.concepts.concept import Agreement
from dodona.concepts.conjunctions import Conjunctions
from dodona.errors import BadEffort, BudgetSpent
from dodona.oracles.curator import Curator
from dodona.oracles.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.query import statistic
from dodona.query.schema import Category, Integer, Real, Schema
from dodona.query.sensitivity import NEIGHBOURS
from dodona.query.unit import Unit

F = Fraction
Judge = Callable[[Path], Sequence[ExactAudit]]
ADD_REMOVE = "add-remove"
MIXED = Near(
    Schema({"g": Category("a", "b"), "x": Integer(-1, 2), "y": Real(1, 2)}),
    (
        *(("a", -1.0, 1.0), ("a", 2.0, 2.0), ("b", 2.0, 2.0)),
        *(("other", 9.0, math.inf), ("b", math.nan, math.nan), ("b", -1.0, math.nan)),
    ),
)
ROUND = Near(
    Schema({"x": Real(-1, 1), "y": Real(-1, 1)}), ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, -1.0), (-1.0, -1.0))
)
SCHEMA = Schema({"g": Category("a", "b"), "x": Integer(0, 2)})
PERSONS = (
    (("a", 2),),
    (("a", 2), ("a", 2)),
    (("a", 2), ("a", 2), ("a", 2), ("a", 2)),
    (("a", 2), ("b", 2), ("a", 2), ("b", 2)),
    (("b", 0), ("b", 1)),
    (("other", 9), ("other", 9), ("other", 9), ("b", 9)),
)
PEOPLE = People(SCHEMA, PERSONS, unit=Unit("who", 2))
GROUPED = People(SCHEMA, PERSONS, unit=Unit("who", 3, ("g",), 2))
TOWNS = Fixed(
    Schema({"town": Category("a", "b", public=True), "x": Integer(0, 2)}), (("a", 0), ("a", 2), ("b", 0), ("b", 2))
)
BUDGETS = (("Laplace", Budget(epsilon=F(23, 17))), ("Gaussian", Budget(rho=F(7, 17))))
"""No whole numbers of ledger units: rounding the wrong way shows."""
SCORED = Agreement(Conjunctions.over(["g"], 1), statistic.as_expr("x > 1"))
_ONE = statistic.Value(statistic.as_expr("1"))
_PAIR = (statistic.as_expr("x"), statistic.as_expr("y"))


def _questions() -> dict[str, tuple[Near, statistic.Query]]:
    """A question for each rule, on the rows that stretch it."""
    x, y = statistic.Value(statistic.as_expr("x")), statistic.Value(statistic.as_expr("y"))
    box, ball = statistic.Features(_PAIR), statistic.Features(_PAIR, 1.0)
    cells = statistic.bucket("y", [0, 1.5, 3])
    return {
        "a number": (MIXED, x),
        "a number that may be missing": (MIXED, y),
        "COALESCE": (MIXED, statistic.Value(statistic.as_expr("COALESCE(y, 2)"))),
        "a condition": (MIXED, statistic.Value(statistic.as_expr("x > 0 OR y IS NULL"))),
        "a weighted sum": (MIXED, statistic.linear(["x", "y"], [2.0, -1.0])),
        "a stack": (MIXED, statistic.Stack((x, y, statistic.Value(statistic.as_expr("g = 'a'"))))),
        "WHERE": (MIXED, statistic.Gate(statistic.as_expr("x > 0"), statistic.Stack((_ONE, y)))),
        "WHERE and GROUP BY": (
            MIXED,
            statistic.Gate(
                statistic.as_expr("y > 1"), statistic.Partition(statistic.as_expr("g"), statistic.Stack((_ONE, x)))
            ),
        ),
        "GROUP BY and (other)": (
            MIXED,
            statistic.Partition(
                statistic.as_expr("g"), statistic.Partition(cells, statistic.Stack((_ONE, x)), other=True), other=True
            ),
        ),
        "losses": (MIXED, statistic.Losses(("g", "x", "y"))),
        "buckets": (MIXED, statistic.Partition(cells, statistic.Stack((_ONE, y)))),
        "features": (MIXED, box),
        "products": (MIXED, statistic.Outer(box)),
        "features in a ball": (ROUND, ball),
        "products in a ball": (ROUND, statistic.Outer(ball)),
        "nearest centre": (ROUND, statistic.Nearest(ball, ((0.5, 0.5), (-0.5, -0.5)), statistic.Stack((_ONE, x)))),
        "conjunctions": (
            MIXED,
            statistic.Products((statistic.as_expr("x > 0"), statistic.as_expr("y > 1")), statistic.as_expr("1"), 2),
        ),
        "prefix sums": (MIXED, statistic.PrefixRoots(cells)),
        "range sums": (MIXED, statistic.RangeRoots(cells)),
    }


def _asking(query: statistic.Query) -> Callable[[Oracle], Any]:
    """By a share, whose noise is as the parts are wide, and by a tolerance, whose noise is as the error asked for."""

    def use(oracle: Oracle) -> Any:
        oracle.ask(query, share=F(1, 2))
        return oracle.ask(query, tolerance=40)

    return use


def _join(name: str, listed: Sequence[tuple[Path, Judge]]) -> Check:
    """Several paths as one line a unit: the one with the least slack, or a violated one."""
    return Check(name, lambda: together(name, [audit for path, judge in listed for audit in judge(path)]))


def _row_checks() -> list[Check]:
    checks = []
    for name, (domain, query) in _questions().items():
        both = itertools.product(BUDGETS, NEIGHBOURS)
        paths = [Path(word, domain, relation, budget, _asking(query)) for (word, budget), relation in both]
        checks.append(_join(f"Curator.ask, {name}", [(path, noisy_path) for path in paths]))
    for word, budget in (("Laplace", Budget(epsilon=12)), ("Gaussian", Budget(rho=12))):
        path = Path(f"noise of Curator.ask, two weights, {word}", ROUND, "replace", budget, _two_weights)
        checks.append(Check(path.title, lambda p=path: [noise_drawn(p, ((1.0, 0.0),), F(1, 1000))]))  # type: ignore[misc]
    return checks


def _two_weights(oracle: Oracle) -> Any:
    wide, narrow = (
        statistic.Value(statistic.as_expr("CASE WHEN x > 0 THEN 3 ELSE 0 END")),
        statistic.Value(statistic.as_expr("y > 0")),
    )
    return oracle.ask(statistic.Stack((wide, narrow)), share=1)


def _person_checks() -> list[Check]:
    """A whole person: asked, parted by the group that bounds them, chosen by, and handed to a procedure."""
    parted = statistic.Partition(
        statistic.as_expr("g"), statistic.Stack((_ONE, statistic.Value(statistic.as_expr("x"))))
    )
    merged = statistic.Partition(statistic.as_expr("g"), _ONE, other=True)
    uses: dict[str, tuple[Callable[[Oracle], Any], Judge]] = {
        "ask": (_asking(statistic.Value(statistic.as_expr("x"))), noisy_path),
        "ask, GROUP BY": (_asking(parted), noisy_path),
        "ask, GROUP BY and (other)": (_asking(merged), noisy_path),
        "ask, losses": (_asking(statistic.Losses(("g", "x"))), noisy_path),
        "select": (lambda o: o.select(["x", "g = 'a'", "g = 'b'"], share=1), questions_path),
        "select, scores": (lambda o: o.select(SCORED, share=1), questions_path),
    }
    checks = []
    for unit, domain in (("a unit of 2 rows", PEOPLE), ("a unit of 3 rows, 2 a group", GROUPED)):
        for way, (use, judge) in uses.items():
            paths = [(Path(word, domain, ADD_REMOVE, budget, use), judge) for word, budget in BUDGETS]
            checks.append(_join(f"Curator.{way}, {unit}", paths))
    return checks


def _town_checks() -> list[Check]:
    """Public groups, on a ledger where each pays for itself: parted, gated, and asked until nothing is left."""

    def spend(oracle: Oracle) -> None:
        x = statistic.Value(statistic.as_expr("x"))
        here, there = (statistic.Gate(statistic.as_expr(f"town = '{town}'"), x) for town in ("a", "b"))
        for query, share in (
            (there, 6),
            (here, 2),
            (statistic.Stack((here, there)), 3),
            (here, 3),
            (x, 3),
            (there, 9),
            (x, 6),
        ):
            for _ in range(2):
                try:
                    oracle.ask(query, share=F(1, share))
                except BudgetSpent:
                    break

    def part(oracle: Oracle) -> Any:
        return oracle.sql("SELECT town, COUNT(*), SUM(x) FROM tiny WHERE x > 0 GROUP BY town", share=1)

    checks = []
    for name, use in (("until they are spent", spend), ("GROUP BY", part)):
        both = itertools.product(BUDGETS, NEIGHBOURS)
        paths = [Path(word, TOWNS, way, budget, use, scratch=False) for (word, budget), way in both]
        checks.append(_join(f"Public groups, {name}", [(path, groups_path) for path in paths]))
    return checks


def _choose_all(oracle: Oracle) -> None:
    """Half of the budget; then a ledger unit more than is left; then what is left. The second must be refused."""
    assert isinstance(oracle, Curator)
    oracle.select(["x", "-x"], share=F(1, 2))
    for more in (1, 0):
        try:
            oracle.select(["x", "-x"], epsilon=oracle.budget.amount(oracle.ledger.left() + more))
        except (BadEffort, BudgetSpent):
            continue


def _choice_checks() -> list[Check]:
    """A choice among numbers of either sign, by its tapes; and one among scores, by how far a row moves them."""
    few = SmallDomain(MIXED.schema, MIXED.kinds[:3], 2)
    paths = [Path("numbers", few, way, BUDGETS[0][1], lambda o: o.select(["x", "-x"], share=1)) for way in NEIGHBOURS]
    judged: list[tuple[Path, Judge]] = [(path, lambda p: finite_path(p, chosen, F(1, 10**4))) for path in paths]
    both = itertools.product(BUDGETS, NEIGHBOURS)
    scored = [Path(word, MIXED, way, budget, lambda o: o.select(SCORED, share=1)) for (word, budget), way in both]
    spent = [Path("choices", MIXED, way, BUDGETS[0][1], _choose_all, scratch=False) for way in NEIGHBOURS]
    return [
        _join("Curator.select, numbers", judged),
        _join("Curator.select, until it is spent", [(path, questions_path) for path in spent]),
        _join("Curator.select, scores", [(path, questions_path) for path in scored]),
    ]


def _quantile_checks() -> list[Check]:
    """Quantiles of all rows, of groups that a row may leave for another, and of people."""

    def several(oracle: Oracle) -> Any:
        return oracle.quantile("y", [0.1, 0.5, 0.75], bits=9, share=F(1, 2))

    def grouped(oracle: Oracle) -> Any:
        return oracle.quantile("y", 0.25, by="g", where="x > 0", bits=9, share=F(1, 2))

    def of_people(oracle: Oracle) -> Any:
        return oracle.quantile("x / 2", [0.25, 0.5], by="g", bits=9, share=F(1, 2))

    few = Near(MIXED.schema, (*MIXED.kinds[:3], MIXED.kinds[4]))
    uses: dict[str, tuple[Near, Sequence[str], Callable[[Oracle], Any]]] = {
        "of all rows": (few, NEIGHBOURS, several),
        "by group": (few, NEIGHBOURS, grouped),
        "a unit of 2 rows": (PEOPLE, (ADD_REMOVE,), of_people),
    }
    checks = []
    for name, (domain, ways, use) in uses.items():
        both = itertools.product(BUDGETS, ways)
        paths = [(Path(word, domain, way, budget, use), ranked_path) for (word, budget), way in both]
        checks.append(_join(f"Curator.quantile, {name}", paths))
    return checks


def contributor_checks() -> list[Check]:
    """Every rule, for rows, for people, for public groups, for choices and for quantiles."""
    return [*_row_checks(), *_person_checks(), *_town_checks(), *_choice_checks(), *_quantile_checks()]
