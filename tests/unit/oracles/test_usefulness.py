"""Usefulness: numbers and a plot, for curators only."""

import numpy as np
import pytest

from dodona.concepts.boxes import Intervals, even_cuts
from dodona.engines.table import Table
from dodona.errors import Unsupported
from dodona.oracles.exact import Exact
from dodona.oracles.synopsis import usefulness
from dodona.privacy.budget import Budget
from dodona.query.schema import Integer, Schema
from dodona.release.intervals import intervals
from dodona.testing.oracles import seeded_curator

SCHEMA = Schema({"age": Integer(0, 127)})


@pytest.fixture(scope="module")
def table():
    return Table({"age": np.random.default_rng(0).integers(0, 128, 5000)}, SCHEMA, name="t")


def test_errors_over_the_class_or_a_sample_of_it(table):
    concepts = Intervals("age", even_cuts(SCHEMA, "age", 20))
    synopsis = intervals(seeded_curator(table, Budget(epsilon=1), 0), "age", share=1)
    whole = usefulness(synopsis, Exact(table), concepts)
    assert len(whole.errors) == whole.members == 231
    assert 0 < whole.mean <= whole.quantile(0.99) <= whole.worst < 0.05
    assert "NOT PRIVATE" in str(whole)
    part = usefulness(synopsis, Exact(table), concepts, most=50, seed=1)
    assert len(part.errors) <= 50
    assert part.worst <= whole.worst


def test_a_perfect_synopsis_has_no_error(table):
    concepts = Intervals("age", (32.0, 64.0, 96.0))
    assert usefulness(intervals(Exact(table), "age"), Exact(table), concepts).worst < 1e-9


def test_only_the_truth_will_do(table):
    synopsis = intervals(Exact(table), "age")
    with pytest.raises(Unsupported, match="Exact"):
        usefulness(synopsis, seeded_curator(table, Budget(epsilon=1), 0), Intervals("age", (64.0,)))


def test_the_plot_says_it_is_not_private(table):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    usefulness(intervals(Exact(table), "age"), Exact(table), Intervals("age", (64.0,))).plot(axes)
    assert [text.get_text() for text in axes.texts] == ["not private"]
