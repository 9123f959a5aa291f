"""The whole exact audit, as ``dodona audit`` runs it: every mechanism, every sampler, every small end-to-end path.

Among them the local oracle: what a row's report tells, by its tapes, and what each row's reports cost it in all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona import release
from dodona.audit import end_to_end
from dodona.audit.contributors import contributor_checks
from dodona.audit.enumeration import TapeAudit, tape
from dodona.audit.exact import Chances, ExactAudit, Pair, epsilon_audit, loss_audit
from dodona.audit.mechanisms import Check, mechanism_checks, together
from dodona.audit.neighbours import Rows, SmallDomain, shown
from dodona.concepts.conjunctions import Conjunctions
from dodona.errors import BudgetSpent
from dodona.mechanisms.parity import ParitySolver
from dodona.mechanisms.selection import choosers
from dodona.oracles.local import Local
from dodona.oracles.local.offer import Offer
from dodona.oracles.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.query.candidates import ParityProcedure
from dodona.query.schema import Category, Flag, Integer, Schema
from dodona.query.sensitivity import NEIGHBOURS
from dodona.query.statistic import Partition, Query, Stack, Value, as_expr

F = Fraction
ONE_ROW, UNTIL_SPENT = "Local.ask, one row", "Local, until it is spent"
_STATED = F(2)
_ASKED = (("x >= 1", F(1, 3)), ("x", F(1, 3)), ("x >= 1", F(1, 4)), ("x", F(1, 12)), ("x", F(1, 20)), ("x = 2", F(1)))


class WatchedLocal(Local):
    """A local oracle that keeps who has reported, and how, in ``reported``."""

    reported: list[Offer]

    def _means(self, offer: Offer) -> NDArray[np.float64]:
        self.reported.append(offer)
        return super()._means(offer)


def _open_local(domain: SmallDomain, rows: Rows, bits: Any = None) -> WatchedLocal:
    oracle = WatchedLocal(domain.table(rows, "replace"), _STATED)
    oracle.reported = []
    if bits is not None:
        oracle._bits = bits
    return oracle


def _one_row(domain: SmallDomain) -> list[ExactAudit]:
    """Half of a row's epsilon: the law of the answer on a table of one row, for the two rows farthest apart."""
    charged: set[int] = set()

    def law(rows: Rows) -> Chances:
        def once(bits: Any) -> float:
            oracle = _open_local(domain, rows, bits)
            answer = oracle.ask("x >= 1", share=F(1, 2))
            charged.add(oracle.ledger.spent())
            return float(np.asarray(answer.total))

        return tape(once, residual=F(1, 200), most_runs=200).masses

    pair = domain.kinds[:1], domain.kinds[-1:]
    laws = (shown(pair), law(pair[0]), law(pair[1]))
    return [epsilon_audit(ONE_ROW, Budget(epsilon=_STATED).amount(max(charged)), [laws], unexplored=F(1, 20))]


def _until_spent(domain: SmallDomain) -> list[ExactAudit]:
    """Questions until nothing is left, each put twice under one name: the epsilons of each row's reports, added up."""
    oracle = _open_local(domain, (domain.kinds[0], *domain.kinds))
    for turn, (question, share) in enumerate(_ASKED):
        for _ in range(2):
            try:
                oracle.ask(question, share=share, request_id=f"question {turn}")
            except BudgetSpent:
                break
    offers = (zip(offer.tiers, offer.schemes, strict=True) for offer in oracle.reported)
    reports = list(itertools.chain(*offers))
    audits = []
    for block in range(oracle._blocks.count):
        told = [scheme.epsilon for tier, scheme in reports if block in tier.blocks]
        charged = oracle.budget.amount(oracle.budget.capacity - oracle.ledger.left((block,)))
        losses = [(f"block {block}", sum(told, F(0)))]
        audits.append(loss_audit(f"{len(told)} reports", "epsilon", min(charged, _STATED), losses))
    return together(UNTIL_SPENT, audits)


def local_checks(domain: SmallDomain) -> list[Check]:
    """``domain``: whole numbers called x."""
    return [Check(ONE_ROW, lambda: _one_row(domain)), Check(UNTIL_SPENT, lambda: _until_spent(domain))]


Judge = Callable[[end_to_end.Path], Sequence[ExactAudit | TapeAudit]]
_BITS = tuple(itertools.product((False, True), repeat=2))
NUMBERS = SmallDomain(Schema({"x": Integer(0, 2)}), ((0,), (1,), (2,)))
GROUPS = SmallDomain(Schema({"g": Category("a", "b"), "x": Integer(0, 2)}), (("a", 0), ("a", 2), ("b", 1)))
FLAGS = SmallDomain(Schema({"a": Flag(), "b": Flag()}), _BITS, 2)
POINTS = SmallDomain(Schema({"x": Integer(0, 3), "y": Integer(0, 3)}), ((0, 0), (1, 3), (3, 2)), 2)
ENDS = Integer(0, 2, missing=0)
EDGES = SmallDomain(Schema({"u": ENDS, "v": ENDS}), ((0, 1), (0, 2), (1, 2)), 2)
PURE, CONCENTRATED = Budget(epsilon=2), Budget(rho=F(1, 2))
EXACTLY = Budget(epsilon=8, delta=F(1, 10**6), accountant="gaussian")
PROMISED = Budget(epsilon=2, delta=F(1, 10**6))
_GROUP_BY = "SELECT g, COUNT(*), SUM(x) FROM tiny GROUP BY g"


def parity_audit(name: str, solver: ParitySolver, rows: int, bits: int) -> list[ExactAudit]:
    """The parity learner A by its exact law on every table of up to ``rows`` rows, contradictory ones too."""
    kinds = tuple(itertools.product((0, 1), repeat=bits + 1))
    columns = {f"x{i}": Flag() for i in range(bits + 1)}
    domain = SmallDomain(Schema(columns), kinds, rows)
    laws = {
        table: solver.probabilities(np.array(table, dtype=bool).reshape(len(table), bits + 1))
        for table in domain.tables()
    }
    audits = []
    for relation in NEIGHBOURS:
        pairs: list[Pair] = [(shown(pair), laws[pair[0]], laws[pair[1]]) for pair in domain.pairs(relation)]
        epsilon = solver.cost().epsilon
        assert epsilon is not None
        audits.append(epsilon_audit(f"{name} ({relation})", epsilon, pairs))
    return audits


def _parity_checks(slow: bool) -> list[Check]:
    epsilons = [F(n, 4) for n in range(1, 21)] if slow else [F(1, 2), F(2)]
    sizes = [(3, 1), (2, 2), *([(4, 1), (3, 2)] if slow else [])]

    def law() -> list[ExactAudit]:
        every = (parity_audit(f"epsilon {e}", ParitySolver(e), rows, bits) for e in epsilons for rows, bits in sizes)
        return together("parity learner A", itertools.chain(*every))

    def run(oracle: Oracle) -> Any:
        return oracle.run(ParityProcedure((as_expr("a"),), as_expr("b"), 1, 1, 1, 1), share=1)

    domain = SmallDomain(FLAGS.schema, FLAGS.kinds, 2 if slow else 1)
    path = end_to_end.Path("Curator.run(parity)", domain, "replace", Budget(epsilon=3), run)
    residual = F(1, 10**4)
    return [
        Check("parity learner A", law),
        *end_to_end.checks_of([(path, lambda p: end_to_end.finite_path(p, end_to_end.found, residual))]),
    ]


def _asks(oracle: Oracle, share: Fraction) -> Any:
    return oracle.ask("x", share=share)


def _groups(oracle: Oracle, share: Fraction) -> Any:
    return oracle.sql(_GROUP_BY, share=share)


def _curator_checks(slow: bool) -> list[Check]:
    few = SmallDomain(NUMBERS.schema, NUMBERS.kinds, 3 if slow else 2)
    listed: list[tuple[end_to_end.Path, Judge]] = []
    counted = (("Laplace", PURE), ("Gaussian", CONCENTRATED), ("rounded Gaussian", EXACTLY))
    for relation, (word, budget) in itertools.product(NEIGHBOURS, counted):
        share = _most_of(budget)
        ask = end_to_end.Path(f"Curator.ask, {word}", NUMBERS, relation, budget, partial(_asks, share=share))
        sql = end_to_end.Path(f"Curator.sql GROUP BY, {word}", GROUPS, relation, budget, partial(_groups, share=share))
        listed += [(ask, end_to_end.noisy_path), (sql, end_to_end.noisy_path)]
        drawn = replace(ask, name=f"noise of {ask.name}")
        listed.append((drawn, lambda p: [end_to_end.noise_drawn(p, ((0,), (1,)), F(1, 1000))]))
        for name in choosers():
            listed.append(
                (_selecting(name, few, relation, budget), lambda p: end_to_end.finite_path(p, end_to_end.chosen))
            )
    counting = end_to_end.Path(
        "noise of Curator.sql GROUP BY, counts",
        GROUPS,
        "replace",
        Budget(epsilon=10),
        lambda o: o.sql("SELECT g, COUNT(*) FROM tiny GROUP BY g", share=1),
    )
    listed.append((counting, lambda p: [end_to_end.noise_drawn(p, (("a", 0), ("b", 1)), F(1, 10**5))]))
    return end_to_end.checks_of(listed + _whole_checks(few))


def _whole_checks(few: SmallDomain) -> list[tuple[end_to_end.Path, Judge]]:
    """All of an (epsilon, delta) budget at once, as pure epsilon: one question, one choice, several in a pocket."""

    def several(oracle: Oracle) -> Any:
        pure = oracle.purely()
        assert pure is not None
        pure.ask("x", share=F(1, 2))
        pure.select(["x = 0", "x = 1"], share=F(1, 4))
        return pure.ask("x >= 1", share=F(1, 4))

    uses: dict[str, Callable[[Oracle], Any]] = {
        "ask": lambda o: o.ask("x", share=1),
        "ask, a stack": lambda o: o.ask(Stack((Value(as_expr("x")), Value(as_expr("x >= 1")))), share=1),
        "select": lambda o: o.select(["x = 0", "x = 1", "x = 2"], share=1),
        "purely": several,
    }
    both = itertools.product(uses.items(), NEIGHBOURS)
    return [
        (end_to_end.Path(f"Curator.{name}, whole", few, way, PROMISED, use), end_to_end.whole_path)
        for (name, use), way in both
    ]


def _most_of(budget: Budget) -> Fraction:
    """All of it, or, where all at once would be spent as a pure epsilon, nearly."""
    return F(1) if budget.pure_whole is None else F(9, 10)


def _selecting(mechanism: str, domain: SmallDomain, relation: str, budget: Budget) -> end_to_end.Path:
    candidates = ["x = 0", "x = 1", "x = 2"]

    def use(oracle: Oracle) -> Any:
        return oracle.select(candidates, share=_most_of(budget), mechanism=mechanism)

    return end_to_end.Path(f"Curator.select, {mechanism}, {budget.unit}", domain, relation, budget, use)


def _release_checks(slow: bool) -> list[Check]:
    concepts = Conjunctions.over(["a", "b"], 1)
    synthetic = SmallDomain(FLAGS.schema, FLAGS.kinds, 2 if slow else 1)
    listed: list[tuple[end_to_end.Path, Judge]] = [
        (
            end_to_end.Path(
                "release.small_database",
                synthetic,
                "replace",
                PURE,
                lambda o: release.small_database(o, concepts, size=1, share=1),
            ),
            lambda p: end_to_end.finite_path(p, end_to_end.chosen),
        ),
        _along("conjunctions", FLAGS if slow else synthetic, lambda o: release.conjunctions(o, width=2, share=1)),
        _along(
            "conjunctions, submodular",
            FLAGS if slow else synthetic,
            lambda o: release.conjunctions(o, width=1, share=1, method="submodular"),
        ),
        _along("boxes", POINTS, lambda o: release.boxes(o, ["x", "y"], share=1)),
        _along("arrangement", FLAGS, lambda o: release.arrangement(o, concepts, share=1)),
        _along("cuts", EDGES, lambda o: release.cuts(o, share=1), "add-remove"),
    ]
    if slow:
        listed += [
            _along("intervals", POINTS, lambda o: release.intervals(o, "x", share=1)),
            _along("halfspaces", POINTS, lambda o: release.halfspaces(o, ["x", "y"], share=1, probes=8)),
            _along("halfspace_nets", POINTS, lambda o: release.halfspace_nets(o, ["x", "y"], share=1, projections=2)),
            _along(
                "multiplicative_weights",
                FLAGS,
                lambda o: release.multiplicative_weights(o, concepts, beta=0.5, rounds=2, share=1),
            ),
        ]
    return end_to_end.checks_of(listed)


def _along(
    name: str, domain: SmallDomain, use: Callable[[Oracle], Any], relation: str = "replace"
) -> tuple[end_to_end.Path, Judge]:
    return end_to_end.Path(
        f"release.{name}, its questions", domain, relation, CONCENTRATED, use
    ), end_to_end.questions_path


def _report_checks(slow: bool) -> list[Check]:
    one = Value(as_expr("1"))
    questions: list[tuple[str, Query]] = [
        ("a condition", Value(as_expr("x >= 1"))),
        ("a number", Value(as_expr("x"))),
        ("a partition", Partition(as_expr("x"), one)),
        ("a stack", Stack((Value(as_expr("x")), Value(as_expr("x >= 1"))))),
    ]
    epsilons = (F(1, 2), F(1), F(2)) if slow else (F(1),)

    def check(name: str, query: Query) -> Check:
        title = f"local report on {name}"
        return Check(
            title,
            lambda: together(
                title, [a for e in epsilons for a in end_to_end.report_audit(f"epsilon {e}", query, NUMBERS, e)]
            ),
        )

    return [check(*item) for item in questions]


def every_check(slow: bool = False) -> list[Check]:
    """The audit, line by line; nothing is computed before a line's ``work`` is called."""
    return [
        *mechanism_checks(slow),
        *_parity_checks(slow),
        *_curator_checks(slow),
        *contributor_checks(),
        *_release_checks(slow),
        *_report_checks(slow),
        *local_checks(NUMBERS),
    ]
