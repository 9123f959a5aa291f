"""Other libraries on the benchmark's people and keys; run by the Python that ``DODONA_PEER_PYTHON`` names.

``_keys_peer.py FOLDER KIND EACH``: in FOLDER whose.npy and key.npy hold each pair of a person and a key once, at most
EACH a person. KIND opendp (0.16: Gaussian and Laplace thresholds), pipelinedp (0.3: its strategies, by PyDP's own
selection) or tumult (0.21: ``get_groups``, by Spark). At epsilon 1, delta 1e-6. Prints one JSON object: how many keys
each way finds, the mean of three runs.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np

EPSILON, DELTA = 1.0, 1e-6
RUNS = 3


def opendp(counts, each):
    """The least scale and threshold that keep (epsilon, delta); Gaussian at the best of four splits of delta."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    keys = dp.map_domain(dp.atom_domain(T="i64"), dp.atom_domain(T="f64", nan=False))
    held = {int(key): float(n) for key, n in enumerate(counts) if n}
    near1, near2 = (kind(dp.absolute_distance(T="f64")) for kind in (dp.l01inf_distance, dp.l02inf_distance))
    moved1, moved2 = (each, float(each), 1.0), (each, math.sqrt(each), 1.0)

    def laplace(scale, least):
        return dp.m.make_laplace_threshold(keys, near1, scale=scale, threshold=least)

    def gaussian(scale, least):
        return dp.m.make_gaussian_threshold(keys, near2, scale=scale, threshold=least)

    found = {}
    scale = least_where(lambda t: laplace(t, 1e6).map(moved1)[0] <= EPSILON, each, 2.0 * each + 1)
    least = least_where(lambda t: laplace(scale, t).map(moved1)[1] <= DELTA, 1.0, 100.0 * each)
    found["OpenDP 0.16, Laplace"] = mean(lambda: len(laplace(scale, least)(held)))
    best = None
    for part in (0.25, 0.5, 0.75, 0.9):

        def spent(scale, part=part):
            told = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*plain(dp), scale=scale))
            return told.map(math.sqrt(each)).epsilon(delta=DELTA * (1 - part))

        def lone(least, scale, part=part):
            return gaussian(scale, least).map(moved2)[1] <= DELTA * part

        scale = least_where(lambda t, spent=spent: spent(t) <= EPSILON, 1.0, 100.0 * each)
        least = least_where(lambda t, lone=lone, scale=scale: lone(t, scale), 1.0, 1000.0 * each)
        if best is None or least < best[1]:
            best = scale, least
    found["OpenDP 0.16, Gaussian"] = mean(lambda: len(gaussian(*best)(held)))
    return found


def plain(dp):
    """A single number, for what the scale alone costs."""
    return dp.atom_domain(T="f64", nan=False), dp.absolute_distance(T="f64")


def pipelinedp(counts, whose, key, each):
    """As its partition selection does: PyDP's strategies on counts of people; weighted Gaussian by its own weights."""
    import pipeline_dp
    from pipeline_dp.partition_selection import (
        create_partition_selection_strategy,
        create_weighted_gaussian_thresholding,
    )

    found, kinds = {}, pipeline_dp.PartitionSelectionStrategy
    there = counts[counts > 0].tolist()
    for kind in (kinds.TRUNCATED_GEOMETRIC, kinds.LAPLACE_THRESHOLDING, kinds.GAUSSIAN_THRESHOLDING):
        strategy = create_partition_selection_strategy(kind, EPSILON, DELTA, each)
        found[f"PipelineDP 0.3, {kind.value}"] = mean(lambda own=strategy: sum(map(own.should_keep, there)))
    held = np.bincount(whose)
    totals = np.bincount(key, 1 / np.sqrt(held[whose]))
    weighted = create_weighted_gaussian_thresholding(EPSILON, DELTA, each)
    there = totals[totals > 0].tolist()
    found["PipelineDP 0.3, weighted Gaussian"] = mean(lambda: sum(map(weighted.should_keep, there)))
    return found


def tumult(key, each):
    """``get_groups`` of a session in which a person has at most EACH rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddMaxRows, ApproxDPBudget, QueryBuilder, Session

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    spark = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "8").getOrCreate()
    place = Path(sys.argv[1]) / "tumult.parquet"
    pq.write_table(pa.table({"key": pa.array(key)}), place)
    rows = spark.read.parquet(str(place))
    budget = ApproxDPBudget(EPSILON, DELTA)

    def run():
        session = Session.from_dataframe(budget, "t", rows, protected_change=AddMaxRows(each))
        return session.evaluate(QueryBuilder("t").get_groups(), budget).count()

    return {"Tumult Analytics 0.21, get_groups": float(run())}


def mean(run):
    """Of a few runs."""
    return float(np.mean([run() for _ in range(RUNS)]))


def least_where(holds, low, high):
    """The least number with ``holds``, to 1e-6 of it: false below, true above."""
    while not holds(high):
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


if __name__ == "__main__":
    folder, kind, each = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    whose, key = (np.load(folder / f"{name}.npy") for name in ("whose", "key"))
    counts = np.bincount(key)
    if kind == "opendp":
        told = opendp(counts, each)
    elif kind == "pipelinedp":
        told = pipelinedp(counts, whose, key, each)
    else:
        told = tumult(key, each)
    print(json.dumps(told))
