"""Learners written for any oracle run where nobody is trusted: more epsilon, a better model."""

import numpy as np
import pytest

from dodona.concepts.concept import Agreement
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.parities import MaskedParity
from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.oracles.exact import Exact
from dodona.oracles.local import Local
from dodona.papers.klnrs import learn_in_one_round, learn_in_two_rounds
from dodona.query.expr import Column
from dodona.query.schema import Flag, Real, Schema
from dodona.testing.oracles import SeededBits

CLASSIFIERS = {"LogisticRegression": "logistic", "Perceptron": "perceptron", "GaussianNB": "naive_bayes", "ID3": "id3"}
OTHERS = {"PCA": "pca", "SVD": "svd", "KMeans": "kmeans"}


def people(rows=30_000):
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(size=(rows, 3)) * [1.0, 0.5, 0.3], -2, 2)
    columns = {f"x{i}": x[:, i] for i in range(3)}
    schema = Schema({**dict.fromkeys(columns, Real(-2, 2)), "y": Flag()})
    return Table({**columns, "y": x[:, 0] + 0.3 * x[:, 1] > 0}, schema, name="people"), x


def local(table, epsilon, seed=0):
    oracle = Local(table, epsilon)
    oracle._bits = SeededBits(seed)
    return oracle


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_run_unchanged(name):
    module = pytest.importorskip(f"dodona.learn.{CLASSIFIERS[name]}")
    table, x = people()
    model = getattr(module, name)()
    model.fit(local(table, 8), "y")
    truth = x[:, 0] + 0.3 * x[:, 1] > 0
    assert np.mean(np.asarray(model.predict(x)).astype(bool) == truth) > 0.75


@pytest.mark.parametrize("name", OTHERS)
def test_other_learners_run_unchanged(name):
    module = pytest.importorskip(f"dodona.learn.{OTHERS[name]}")
    table, _ = people()
    oracle = local(table, 8).select_columns("x0", "x1", "x2")
    model = getattr(module, name)()
    assert model.fit(oracle) is model


def test_statistical_query_learners_run_unchanged():
    learners = pytest.importorskip("dodona.learn.sq")
    rng = np.random.default_rng(1)
    bits = rng.random((30_000, 4)) < 0.5
    columns = {f"b{i}": bits[:, i] for i in range(4)}
    schema = Schema({**dict.fromkeys(columns, Flag(missing=False)), "y": Flag(missing=False)})
    table = Table({**columns, "y": bits[:, 0] & ~bits[:, 2]}, schema, name="bits")
    model = learners.ConjunctionLearner()
    model.fit(local(table, 8), "y")
    predicted = np.asarray(model.predict(bits))
    assert np.mean(predicted.astype(bool) == (bits[:, 0] & ~bits[:, 2])) > 0.7


@pytest.mark.parametrize("negated", [False, True])
def test_masked_parity_is_learned_in_two_rounds_and_in_one_with_enough_rows(negated):
    concepts, mask = MaskedParity(4), (True, False, True, True)
    table = Table(concepts.sample(20_000, mask, negated, seed=3), concepts.schema, name="masked")
    for learn in (learn_in_two_rounds, learn_in_one_round):
        for oracle in (Exact(table), local(table, 4)):
            found = learn(oracle, concepts)
            assert (found.mask, found.negated) == (mask, negated)
    once = Local(table, 4, interactive=False)
    assert learn_in_one_round(once, concepts).rounds == 1
    with pytest.raises(Exception, match="interactive=False"):
        learn_in_two_rounds(Local(table, 4, interactive=False), concepts)
    with pytest.raises(BadQuery, match="at most"):
        learn_in_one_round(Exact(table), MaskedParity(40))


def test_a_class_scored_from_totals_is_searched_without_a_curator():
    rng = np.random.default_rng(2)
    bits = rng.random((30_000, 5)) < 0.5
    columns = {f"b{i}": bits[:, i] for i in range(5)}
    label = (bits[:, 0] & ~bits[:, 2]) ^ (rng.random(30_000) < 0.1)
    schema = Schema(dict.fromkeys([*columns, "y"], Flag(missing=False)))
    table = Table({**columns, "y": label}, schema, name="bits")
    concepts = Conjunctions.over(tuple(columns), 2)
    scores = Agreement(concepts, Column("y"))
    chosen = local(table, 2).select(scores, share=1)
    assert chosen.index == Exact(table).select(scores).index
    assert 0 < chosen.margin < 30_000
