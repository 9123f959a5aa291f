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
from dodona.audit.neighbours import Families, Fixed, Near, People, SmallDomain, Weighed
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
HOMES = Schema({"h": Integer(-1, 2)})
FAMILIES = tuple(zip(PERSONS, (((2,),), ((2,), (2,)), ((9,), (-1,), (2,)), (), ((2,),), ((2,), (2,))), strict=True))
JOINED = Families(SCHEMA, FAMILIES, unit=Unit("who", 2), homes=HOMES)
LED = Families(SCHEMA, FAMILIES, unit=Unit("who", 3), homes=HOMES, led=True)
WEIGHED = Weighed(
    SCHEMA, (("a", 2, 3), ("a", 2, 4), ("b", 2, 2), ("b", 1, -1), ("other", 9, 4), ("b", 9, math.nan)),
    unit=Unit(None, 4, weight="n", heaviest=4),
)  # fmt: skip
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


PEOPLE_FIRST = (
    "SELECT g, COUNT(*), SUM(s) FROM (SELECT who, g, LEAST(SUM(x), 3) AS s FROM tiny GROUP BY who, g) GROUP BY g "
    "OPTIONS (max_groups = {})"
)
BOTH = "tiny JOIN homes ON tiny.who = homes.who"
BELOW = "(SELECT x FROM tiny UNION ALL SELECT h FROM homes)"


def _dataset_checks() -> list[Check]:
    """People made of rows, clipped sums, bounds of a question, and rows put together of several tables, or weighed."""

    def reading(*texts: str) -> Callable[[Oracle], Any]:
        def use(oracle: Oracle) -> Any:
            return [oracle.sql(text, share=F(1, 2 * len(texts))) for text in texts]

        return use

    wide = (
        "SELECT g, COUNT(*), SUM(x) FROM tiny GROUP BY g OPTIONS (max_rows = 3, max_groups = 1, max_rows_per_group = 2)"
    )
    gated = "SELECT COUNT(*) FROM tiny WHERE x > 0 OPTIONS (max_rows = 1)"
    several = "SELECT g, SUM(x), SUM(h), COUNT(h) FROM {} GROUP BY g OPTIONS (max_rows = 5)"
    uses: dict[str, tuple[Near, Callable[[Oracle], Any]]] = {
        "people made of rows": (PEOPLE, reading(PEOPLE_FIRST.format(1), PEOPLE_FIRST.format(2))),
        "HAVING of people": (
            PEOPLE,
            reading("SELECT COUNT(*) FROM (SELECT who FROM tiny GROUP BY who HAVING COUNT(*) > 1 AND SUM(x) > 2)"),
        ),
        "a clipped sum": (
            PEOPLE,
            reading(
                "SELECT g, SUM(x) FROM tiny GROUP BY g OPTIONS (clip = 3, max_groups = 1)",
                "SELECT SUM(1 - x) FROM tiny OPTIONS (clip = 2)",
            ),
        ),
        "COUNT(DISTINCT) of people": (
            PEOPLE,
            reading("SELECT g, COUNT(DISTINCT who) FROM tiny GROUP BY g OPTIONS (max_groups = 1)"),
        ),
        "bounds of the question": (PEOPLE, reading(wide, gated)),
        "private tables joined": (JOINED, reading(several.format(BOTH), f"SELECT COUNT(*) FROM {BOTH} WHERE h > 0")),
        "private tables joined, LEFT": (JOINED, reading(several.format(BOTH.replace("JOIN", "LEFT JOIN")))),
        "people made of joined rows": (
            JOINED,
            reading(f"SELECT SUM(s) FROM (SELECT tiny.who, LEAST(SUM(h + 1), 3) AS s FROM {BOTH} GROUP BY tiny.who)"),
        ),
        "UNION ALL of private tables": (
            Families(
                Schema({"g": Category("a", "b"), "x": Integer(-1, 2)}), FAMILIES, unit=Unit("who", 2), homes=HOMES
            ),
            reading(f"SELECT COUNT(*), SUM(x) FROM {BELOW}"),
        ),
        "a chain of keys": (LED, reading("SELECT g, COUNT(*), SUM(x) FROM tiny GROUP BY g", PEOPLE_FIRST.format(1))),
        "a chain of keys, joined": (LED, reading(several.format(BOTH))),
        "rows that are counts": (
            WEIGHED,
            reading("SELECT g, COUNT(*), SUM(x) FROM tiny GROUP BY g", "SELECT COUNT(DISTINCT x) FROM tiny"),
        ),
    }
    checks = []
    for name, (domain, use) in uses.items():
        paths = [Path(word, domain, ADD_REMOVE, budget, use) for word, budget in BUDGETS]
        checks.append(_join(f"Curator.sql, {name}", [(path, noisy_path) for path in paths]))
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
    return [
        *_row_checks(),
        *_person_checks(),
        *_dataset_checks(),
        *_town_checks(),
        *_choice_checks(),
        *_quantile_checks(),
    ]
