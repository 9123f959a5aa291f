"""What is published once: every release by every method, each question judged against the rows it came from."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from dodona import release
from dodona.concepts.concept import Finite
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.set_functions import Disjunctions
from dodona.engines.table import Table
from dodona.graphs import distinct_edges, edge_table
from dodona.oracles.synopsis import Synopsis
from dodona.query.statistic import Query, Stack, as_query
from dodona.testing.margins import Asked, Covered, Told, Truth, World
from dodona.testing.oracles import seeded_curator
from tests.support.covered.tables import NAMES, cloud, flags, ints, line, many_flags, plane, small

GAUSS = {"delta": 1e-6}
MEMBERS = Finite.of(["a", "k = 'x'", "v >= 2", "a AND v >= 1", "k = 'y' OR a"])


def published(make: Callable[[Any], Synopsis]) -> Callable[[Table, World, int], Synopsis]:
    """The synopsis of a curator with fresh noise, which spends all of its budget."""
    return lambda table, world, seed: make(seeded_curator(table, world.budget, seed))


def asked(made: Synopsis, truth: Truth, question: Any, confidence: float) -> Told:
    """One question of a synopsis."""
    return Told.of(made.ask(question, confidence=confidence), truth(question), proven=made.body.proven)


def stack(texts: Any) -> Query:
    return Stack(tuple(map(as_query, texts)))


@cache
def literals(count: int, widths: tuple[int, ...]) -> Query:
    """Conjunctions of flags with signs as they fall."""
    rng = np.random.default_rng(22)
    chosen = [c for width in widths for c in itertools.combinations("abcdgh", width)]
    picked = [chosen[i] for i in rng.choice(len(chosen), count, replace=False)]
    return stack(" AND ".join(n if rng.random() < 0.5 else f"NOT {n}" for n in names) for names in picked)


def conjunctions(
    method: str,
    kind: str,
    *,
    runs: int,
    fixed: dict[str, Any] | None = None,
    proven: bool = True,
    unit: bool = False,
    missing: str = "stated",
    delta: float = 0.0,
) -> Covered:
    width = 3
    return Covered(
        f"conjunctions by {method}",
        ("release:conjunctions", "oracle:Synopsis", f"synopsis:{kind}", f"conjunctions:{method}"),
        flags,
        published(
            lambda oracle: release.conjunctions(oracle, width=width, columns=list("abcdgh"), method=method, share=1)
        ),
        asked,
        (Asked((literals(8, (3,)) if method == "submodular" else literals(8, (1, 2, 3)),)),),
        edge=("NOT a AND NOT b AND NOT c",)
        if method == "submodular"
        else ("NOT g AND NOT h", "a OR b OR c", "a IS NULL"),
        outside=("a AND b",) if method == "submodular" else ("a AND b AND c AND d", "a AND e"),
        proven=proven,
        quick=World(rows=1500, epsilon=1.0, unit=unit, missing=missing, delta=delta),
        runs=runs,
        fixed=fixed or {},
    )


SUFFIXES = [f"x >= {low}" for low in (1, 60, 120)] + [f"x <= {high}" for high in (10, 77, 126)]
RANGES = [f"x BETWEEN {a} AND {b}" for a, b in np.sort(ints(9, 0, 128, (4, 2)), axis=1)]


def ranges(method: str, *, runs: int, rows: int = 1500, epsilon: float = 1.0, missing: str = "stated") -> Covered:
    gaussian = method in ("factorisation", "circle")
    return Covered(
        f"intervals by {method}",
        ("release:intervals", "synopsis:Ranges", f"intervals:{method}"),
        line,
        published(lambda oracle: release.intervals(oracle, "x", method=method, share=1)),
        asked,
        (Asked((stack([*SUFFIXES, *RANGES]),)),),
        edge=("x = 77", "x", "x < 20 OR x > 100", "NOT x = 77", "x IS NULL"),
        outside=("y > 3",),
        proven=False,
        quick=World(rows=rows, epsilon=epsilon, delta=1e-6 if gaussian else 0.0, missing=missing),
        runs=runs,
        full=4 * runs,
        fixed=GAUSS if gaussian else {},
    )


BOXES = [
    f"x BETWEEN {a} AND {b} AND y BETWEEN {c} AND {d}"
    for (a, b), (c, d) in zip(
        np.sort(ints(3, 0, 32, (6, 2)), axis=1), np.sort(ints(4, 0, 16, (6, 2)), axis=1), strict=True
    )
]
FORMS = [
    f"{a:.3f} * p + {b:.3f} * q + {c:.3f} * r >= {d:.3f}"
    for a, b, c, d in np.random.default_rng(6).normal(size=(8, 4)) * np.array([1, 1, 1, 0.4])
]


def worst(made: Synopsis, truth: Truth, question: Any, confidence: float) -> Told:
    """Of a release whose margin holds for all members at once."""
    return asked(made, truth, question, confidence)


CERTIFIED = "the worst member is found by a private choice, whose own margin counts in full where noise hides it"
UNION = "Theorem 3.1: a union bound over all databases, and Hoeffding's for the best one of so few rows"


def table_of_members(method: str, size: int, *, runs: int, world: World, **more: Any) -> Covered:
    members = stack(["a", "k = 'x'", "v >= 2", "a AND v >= 1", "k = 'y' OR a"])
    return Covered(
        f"a small database by {method}",
        ("release:small_database", "synopsis:Rows", f"small_database:{method}"),
        small,
        published(lambda oracle: release.small_database(oracle, MEMBERS, size=size, method=method, share=1)),
        worst,
        (Asked((members,), joint=True),),
        edge=("NOT a", "v < 2"),
        outside=("a AND k = 'x'", "v = 0", "v", "k = 'z'"),
        quick=world,
        runs=runs,
        **more,
    )


def cut_table(world: World) -> Table:
    """A random graph of three communities; heavy: one vertex that knows nearly all."""
    rng = np.random.default_rng(3)
    vertices = 60
    own = rng.integers(0, 3, vertices)
    pairs = np.array(list(itertools.combinations(range(vertices), 2)))
    likely = np.where(own[pairs[:, 0]] == own[pairs[:, 1]], 0.3, 0.05) * min(world.rows / 1500 + 0.3, 2.0)
    likely = np.where(pairs[:, 0] == 0, 0.95 if world.heavy else likely, likely)
    return edge_table(distinct_edges(pairs[rng.random(len(pairs)) < likely]), vertices=vertices, name="t")


def cut(members: Any) -> str:
    listed = ", ".join(map(str, sorted(int(i) for i in members)))
    return f"(u IN ({listed})) <> (v IN ({listed}))"


CUTS = tuple(as_query(cut(np.flatnonzero(row))) for row in ints(12, 0, 2, (6, 60)))


def weighted(beta: float) -> Callable[[Any], Synopsis]:
    return lambda oracle: release.multiplicative_weights(
        oracle, Conjunctions(tuple("abcd"), 2), beta=beta, rounds=12, share=1
    )


def grown(oracle: Any) -> Synopsis:
    function = Disjunctions.of(oracle.schema, list("abcd"), both=True)
    return release.submodular(oracle, function, share=1)


SETS = stack(" OR ".join(names) for names in itertools.combinations("abcd", 3))
SIGNS = Conjunctions(tuple(NAMES), 2)

RELEASES: tuple[Covered, ...] = (
    conjunctions("characters", "Marginals", runs=20),
    conjunctions("residuals", "Marginals", runs=6, missing="some", delta=1e-6),
    conjunctions("blocks", "Marginals", runs=20),
    conjunctions("pairs", "Cells", runs=6, proven=False, unit=True),
    conjunctions("adaptive", "Cells", runs=2, proven=False),
    conjunctions("tree", "JunctionTree", runs=2, proven=False),
    conjunctions("submodular", "Tree", runs=6, proven=False),
    ranges("tree", runs=30),
    ranges("quantile buckets", runs=10),
    ranges("factorisation", runs=30),
    ranges("circle", runs=30, missing="some"),
    ranges("binary search", runs=6, rows=6000, epsilon=4.0),
    Covered(
        "boxes",
        ("release:boxes", "synopsis:Boxes"),
        plane,
        published(lambda oracle: release.boxes(oracle, ["x", "y"], share=1)),
        asked,
        (Asked((stack(BOXES),)),),
        edge=("x = 5 AND y = 9", "x <= 5", "NOT (x <= 5)", "x BETWEEN 4 AND 6 AND y BETWEEN 8 AND 10", "y IS NULL"),
        outside=("z > 1",),
        proven=False,
        quick=World(rows=1500, epsilon=1.0, heavy=True),
        runs=30,
        full=120,
    ),
    Covered(
        "halfspaces",
        ("release:halfspaces", "synopsis:Halfspaces"),
        cloud,
        published(lambda oracle: release.halfspaces(oracle, tuple("pqr"), probes=60, share=1)),
        asked,
        (Asked((stack(FORMS),)),),
        edge=("p >= 0", "NOT (p >= 0)", "COALESCE(p, 0) > 0", "COALESCE(p, 0) + COALESCE(q, 0) >= 0"),
        outside=("p * q >= 0", "p >= 0 AND q >= 0", "p"),
        proven=False,
        quick=World(rows=1500, epsilon=1.0),
        runs=8,
    ),
    Covered(
        "halfspaces by nets",
        ("release:halfspace_nets", "synopsis:HalfspaceNets"),
        cloud,
        published(lambda oracle: release.halfspace_nets(oracle, list("pqr"), share=1)),
        asked,
        (Asked((stack(FORMS),)),),
        edge=("COALESCE(p, 0) > 0", "COALESCE(p, 0) + COALESCE(q, 0) >= 0"),
        outside=("p * q >= 0",),
        proven=False,
        quick=World(rows=1500, epsilon=1.0),
        runs=8,
    ),
    table_of_members("selection", 4, runs=40, world=World(rows=1500, epsilon=0.3), forced=(10.0, UNION)),
    table_of_members("iterative", 60, runs=12, world=World(rows=1500, epsilon=2.0), forced=(6.0, CERTIFIED)),
    Covered(
        "multiplicative weights",
        ("release:multiplicative_weights", "synopsis:Cells"),
        flags,
        published(weighted(0.2)),
        asked,
        (Asked((stack(["a", "a AND b", "NOT a AND c", "NOT b AND NOT d"]),)),),
        outside=("a AND b AND c",),
        proven=False,
        quick=World(rows=1500, epsilon=2.0),
        runs=6,
    ),
    Covered(
        "submodular",
        ("release:submodular", "synopsis:Tree"),
        flags,
        published(grown),
        asked,
        (Asked((SETS,)),),
        edge=("a", "a OR b"),
        proven=False,
        quick=World(rows=1500, epsilon=2.0),
        runs=8,
    ),
    Covered(
        "arrangement of products",
        ("release:arrangement", "synopsis:Arrangement"),
        flags,
        published(lambda oracle: release.arrangement(oracle, SIGNS)),
        asked,
        (Asked((literals(8, (1, 2)),)),),
        edge=("NOT a", "a OR b", "a <> b"),
        outside=("a <> b OR c <> d",),
        quick=World(rows=1500, epsilon=1.0, missing="none", unit=True),
        runs=40,
        full=120,
    ),
    Covered(
        "arrangement of signs",
        ("release:arrangement", "synopsis:Arrangement"),
        flags,
        published(lambda oracle: release.arrangement(oracle, SIGNS, order=1)),
        asked,
        (Asked((stack(NAMES),), independent=True),),
        edge=("NOT a",),
        quick=World(rows=6000, epsilon=1.0),
        runs=200,
    ),
    Covered(
        "arrangement by margins",
        ("release:arrangement", "synopsis:Arrangement", "synopsis:Projected"),
        flags,
        published(lambda oracle: release.arrangement(oracle, Conjunctions(tuple(NAMES), 8), order=1, project=True)),
        asked,
        (Asked((literals(4, (3, 4)),)),),
        proven=False,
        quick=World(rows=1500, epsilon=1.0),
        runs=10,
    ),
    Covered(
        "conjunctions of many columns",
        ("release:conjunctions", "synopsis:Mixture"),
        many_flags,
        published(lambda oracle: release.conjunctions(oracle, width=2, method="adaptive", share=1)),
        asked,
        (Asked((stack(["w0", "w0 AND w1", "NOT w2 AND w3", "NOT w5 AND NOT w9"]),)),),
        outside=("w0 AND w1 AND w2",),
        proven=False,
        quick=World(rows=600, epsilon=2.0),
        runs=10,
        slow=True,
        fixed={"rows": 600, "missing": "none", "unit": False},
    ),
    Covered(
        "cuts",
        ("release:cuts", "synopsis:Degrees"),
        cut_table,
        published(lambda oracle: release.cuts(oracle, share=1)),
        asked,
        (Asked(CUTS),),
        edge=(as_query("1"),),
        outside=("u > 3", "u"),
        proven=False,
        quick=World(rows=1500, epsilon=2.0),
        runs=30,
        fixed={"missing": "stated", "unit": False},
    ),
)
