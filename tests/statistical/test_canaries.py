"""Canary audits: whole algorithms stay below what the ledger was charged; broken copies are caught."""

import importlib
from dataclasses import replace
from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest

import dodona as dd
import dodona.learn
from dodona import release
from dodona.audit.canaries import ATTACKS, Rates, canary, clopper_pearson
from dodona.audit.watched import WatchedCurator, watched
from dodona.concepts import Conjunctions
from dodona.errors import BadQuery
from dodona.graphs import edge_table
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.oracles.noise import Noise
from dodona.privacy.cost import FREE
from dodona.testing import SeededBits

SCHEMA = dd.Schema(
    {
        "u": dd.Real(-1, 1),
        "v": dd.Real(-1, 1),
        "flag": dd.Flag(),
        "group": dd.Category("x", "y"),
        "amount": dd.Real(-2, 2),
        "label": dd.Category("no", "yes"),
    }
)
PURE, CONCENTRATED = dd.Budget(epsilon=1), dd.Budget(rho=F(1, 2))


def table(row, rows=60):
    """Made-up people, the first of whom is the canary."""
    rng = np.random.default_rng(5)
    label = rng.random(rows) < 0.5
    columns = {
        "u": np.clip(np.where(label, 0.4, -0.4) + rng.normal(0, 0.2, rows), -1, 1),
        "v": rng.uniform(-1, 1, rows),
        "flag": label ^ (rng.random(rows) < 0.1),
        "group": np.array(["x", "y"])[rng.integers(0, 2, rows)],
        "amount": rng.uniform(-2, 2, rows),
        "label": np.where(label, "yes", "no"),
    }
    for name, value in zip(SCHEMA, row, strict=True):
        columns[name][0] = value
    return dd.Table(columns, SCHEMA, name="people")


ONE, OTHER = (1.0, 1.0, True, "y", 2.0, "yes"), (-1.0, -1.0, False, "x", -2.0, "no")
PAIR = table(ONE), table(OTHER)


def two_questions(oracle):
    """Half of the budget on each of two questions the canary moves as far as it can."""
    return oracle.ask("u", share=F(1, 2)), oracle.ask("v", share=F(1, 2))


# -- the bounds -------------------------------------------------------------------------------------------------------


def test_clopper_pearson_covers():
    rng = np.random.default_rng(0)
    for chance in (0.02, 0.3, 0.9):
        hits = rng.binomial(80, chance, 400)
        bounds = [clopper_pearson(int(h), 80, 0.05) for h in hits]
        assert np.mean([low <= chance for low, _ in bounds]) >= 0.92
        assert np.mean([chance <= high for _, high in bounds]) >= 0.92
    assert clopper_pearson(0, 10, 0.05)[0] == 0.0
    assert clopper_pearson(10, 10, 0.05)[1] == 1.0


def test_rates_need_what_they_need():
    assert Rates(0.5, 0.5).epsilon() == Rates(0.4, 0.5).rho() == 0.0
    assert Rates(0.5, 0.5 * np.exp(-1.0)).epsilon() == pytest.approx(1.0)
    assert Rates(0.5, 0.1).epsilon(0.4) == 0.0
    # Two unit normals one apart are 1/2-concentrated; a threshold shows some of it, never more.
    assert 0.25 < Rates(0.6915, 0.3085).rho() <= 0.5


# -- sound and broken -------------------------------------------------------------------------------------------------


class HalfTheNoise(WatchedCurator):
    """Charges for the noise it should have added."""

    def _priced(self, request):
        plan, noise = super()._priced(request)
        halved = {
            weight: DiscreteLaplace(law.scale / 2)
            if isinstance(law, DiscreteLaplace)
            else DiscreteGaussian(law.variance / 4)
            for weight, law in noise.by_weight.items()
        }
        return plan, Noise(noise.name, halved, noise.cost)


class ThirdOfTheReach(WatchedCurator):
    """Believes a row moves a total by a third of what it does."""

    def _norms(self, query, plan):
        norms = super()._norms(query, plan)
        return replace(norms, l1=norms.l1 / 3, l2_squared=norms.l2_squared / 9, linf=norms.linf / 3)


class SplitWrongly(WatchedCurator):
    """Charges the first question only: the rest of the split is given away."""

    def _charged(self, request, work, restore):
        return super()._charged(request, replace(work, cost=FREE) if self.seen else work, restore)


class SeedReused(WatchedCurator):
    """Starts its generator anew at every question."""

    def answer(self, request):
        self._bits = SeededBits(7)
        return super().answer(request)


def opened(kind):
    return lambda rows, budget: watched(rows, budget, kind=kind)


def four_times(oracle):
    """A whole budget each, on an oracle that charges only one of them."""
    return [oracle.ask("u", share=1) for _ in range(4)]


@pytest.mark.parametrize("budget", [PURE, CONCENTRATED], ids=["epsilon", "rho"])
def test_a_sound_curator_stays_within_its_claim(budget):
    audit = canary(two_questions, *PAIR, budget, runs=150, confidence=0.99999)
    assert audit.holds, audit
    assert audit.claimed == pytest.approx(float(budget.total))
    assert audit.attack in ATTACKS


@pytest.mark.parametrize(
    ("kind", "algorithm", "budget", "runs"),
    [
        (HalfTheNoise, lambda o: o.ask("u", share=1), CONCENTRATED, 1000),
        (ThirdOfTheReach, lambda o: o.ask("u", share=1), CONCENTRATED, 400),
        (SplitWrongly, four_times, PURE, 400),
        (SeedReused, two_questions, PURE, 160),
    ],
    ids=["noise halved", "sensitivity wrong", "budget split wrong", "seed reused"],
)
def test_a_broken_curator_is_caught(kind, algorithm, budget, runs):
    audit = canary(algorithm, *PAIR, budget, runs=runs, curator=opened(kind))
    assert not audit.holds, audit
    assert "BROKEN" in str(audit)


def test_the_attack_is_near_the_best_there_is():
    """At a large budget the likelihood attack shows most of what is spent: an auditor that sees nothing is none."""
    audit = canary(lambda o: o.ask("u", share=1), *PAIR, dd.Budget(epsilon=2), runs=500, confidence=0.99999)
    assert 0.4 < audit.bound <= 2


def test_the_perceptron_stays_within_its_claim():
    from dodona.learn import Perceptron

    def fit(oracle):
        return Perceptron(share=1, max_iter=3).fit(oracle, "label")

    audit = canary(fit, *PAIR, dd.Budget(epsilon=3, delta=1e-6), runs=40, confidence=0.9999)
    assert audit.holds, audit


def test_too_few_runs_are_refused():
    with pytest.raises(BadQuery, match="at least 20"):
        canary(two_questions, *PAIR, PURE, runs=5)


# -- every algorithm --------------------------------------------------------------------------------------------------

NUMBERS, FLAGS = ("u", "v"), ("flag", "group")
SURE = 0.9999
"""There are some thirty algorithms: at 95 % a sound one would be called broken in most runs of them all."""
LEARNERS = {
    "SVD": (NUMBERS, {"n_components": 1}, None),
    "PCA": (NUMBERS, {"n_components": 1}, None),
    "KMeans": (NUMBERS, {"n_clusters": 2}, None),
    "StandardScaler": (NUMBERS, {}, None),
    "Perceptron": ((*NUMBERS, "label"), {"max_iter": 4}, "label"),
    "SulqPerceptron": ((*NUMBERS, "label"), {"max_iter": 4}, "label"),
    "SulqID3": ((*NUMBERS, *FLAGS, "label"), {"max_depth": 2}, "label"),
    "LogisticRegression": ((*NUMBERS, "label"), {"max_iter": 4}, "label"),
    "LinearSVC": ((*NUMBERS, "label"), {"max_iter": 4}, "label"),
    "BoostedTrees": ((*NUMBERS, *FLAGS, "label"), {}, "label"),
    "GaussianNB": ((*NUMBERS, "label"), {}, "label"),
    "ID3": ((*NUMBERS, *FLAGS, "label"), {}, "label"),
    "Ridge": ((*NUMBERS, "amount"), {}, "amount"),
    "LinearRegression": ((*NUMBERS, "amount"), {}, "amount"),
    "ConjunctionLearner": ((*FLAGS, "label"), {}, "label"),
    "DecisionListLearner": ((*FLAGS, "label"), {}, "label"),
    "WeakLearner": ((*FLAGS, "label"), {}, "label"),
    "AgnosticLearner": ((*NUMBERS, "flag", "label"), {}, "label"),
    "CompressionLearner": (
        (*FLAGS, "label"),
        {"concept_classes": [Conjunctions(("flag",), 1), Conjunctions(("flag", "group"), 2)]},
        "label",
    ),
    "ParityLearner": (("flag", "label"), {"alpha": 0.3, "beta": 0.3}, "label"),
}
CONCEPTS = Conjunctions(("flag", "group"), 1)
RELEASES = {
    "conjunctions": lambda o: release.conjunctions(o.select_columns(*FLAGS), width=2, share=1),
    "small_database": lambda o: release.small_database(o, CONCEPTS, size=2, share=1),
    "small_database, iterative": lambda o: release.small_database(o, CONCEPTS, size=20, share=1, method="iterative"),
    "intervals": lambda o: release.intervals(o, "u", bits=5, share=1),
    "boxes": lambda o: release.boxes(o, ["u", "v"], bits=3, share=1),
    "halfspaces": lambda o: release.halfspaces(o, ["u", "v"], share=1, probes=12),
    "halfspace_nets": lambda o: release.halfspace_nets(o, ["u", "v"], share=1, projections=3),
    "arrangement": lambda o: release.arrangement(o, CONCEPTS, share=1),
    "multiplicative_weights": lambda o: release.multiplicative_weights(o, CONCEPTS, beta=0.3, rounds=4, share=1),
    "submodular": lambda o: release.conjunctions(o.select_columns("flag"), width=1, share=1, method="submodular"),
    "parity": lambda o: release.parity(o, ["flag", "u > 0"], share=F(1, 3)),
    "bounds": lambda o: release.bounds(o, "u", share=1),
    "hierarchy": lambda o: release.hierarchy(o, "group", {"x": "all", "y": "all"}, share=1),
}


def fitting(name):
    columns, settings, target = LEARNERS[name]
    kind = getattr(dodona.learn, name)

    def fit(oracle):
        model, view = kind(share=1, **settings), oracle.select_columns(*columns)
        return model.fit(view) if target is None else model.fit(view, target)

    return fit


def test_every_learner_and_release_has_a_case():
    fitted = {name for name in dodona.learn.__all__ if hasattr(getattr(dodona.learn, name), "fit")}
    assert fitted == set(LEARNERS)
    home = set(importlib.import_module("dodona.release").__all__) - {"load"}
    free = {
        "Bounds",
        "TextCode",
        "fitted_by",
        "learn_by_release",
        "cdf",
        "histogram",
        "median",
        "quantile",
        "arrangement_question",
        "areas",
        "running_totals",
    }
    # Of keys by enumeration: test_threshold.py; frequent values ask for counts alone, which others here do; running
    # totals by law: tests/laws/test_running_streams.py.
    known = {name.split(",")[0] for name in RELEASES} | {"cuts", "keys", "heavy_hitters", "running"}
    assert {name for name in home if not name.startswith("plan_")} - free == known


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LEARNERS))
def test_every_learner_stays_within_its_claim(name):
    rows = table(ONE, 400), table(OTHER, 400)
    audit = canary(fitting(name), *rows, dd.Budget(rho=2), name=name, runs=120, confidence=SURE)
    print(audit)
    assert audit.holds, audit


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RELEASES))
def test_every_release_stays_within_its_claim(name):
    rows = table(ONE, 400), table(OTHER, 400)
    audit = canary(RELEASES[name], *rows, dd.Budget(rho=2), name=name, runs=80, confidence=SURE)
    print(audit)
    assert audit.holds, audit


@pytest.mark.slow
def test_cuts_stay_within_their_claim():
    """One edge more or less: the relation graphs are under."""
    rng = np.random.default_rng(1)
    pairs = np.unique(np.sort(rng.integers(0, 12, (40, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    edges = edge_table(pairs, vertices=12, rows=30), edge_table(pairs[1:], vertices=12, rows=30)
    audit = canary(
        lambda o: release.cuts(o, share=1),
        *edges,
        dd.Budget(rho=2),
        name="cuts",
        runs=80,
        confidence=SURE,
    )
    print(audit)
    assert audit.holds, audit
