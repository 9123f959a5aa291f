"""Boxes over two or three ordered columns, published once (BLR section 4 names them; the method here is a tree).

Counts by level over joint cells, each level splitting every column alike: the levels stack, the cells of each
partition. Least squares makes the levels agree (``release/_ranges``), going up; going down, a family's total is
shared out by its children's counts only so far as these differ by more than their noise (James and Stein 1961), and
none is negative. Where the data are smooth or absent a box then pays for few levels, and where they are not, for all;
on steep data shrinkage is a bias that adds up over a box. The stated error counts both. With N the noise of a box by
plain least squares and g what sharing out changed, seen, the mean square over random boxes is

    E(N + g)^2 = E N^2 + 2 E N g + g^2,    E N g = E N' dg(y + t N')/dt,

N' noise like N, drawn anew (Stein 1981; by simulation: Ramani, Blu and Unser 2008; for Laplace noise by approximation:
a box sums many). E N^2 is added once more, as the estimate's own standard error is about a quarter of it, and as errors
of boxes have longer tails than a normal distribution of their variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outlook, Outlooks
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.effort import Divisible, Effort
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.schema import Integer, Schema
from dodona.query.statistic import Partition, Query, Stack
from dodona.release._ranges import ONE
from dodona.release.registry import Case, Release, Setting, registered, whole_cost, within
from dodona.synopses.boxes import Boxes
from dodona.synopses.noise import STATED, TreeNoise
from dodona.synopses.ranges import Axis

Floats = NDArray[np.float64]
MOST_CELLS = 1_000_000
_Z = NormalDist().inv_cdf((1 + STATED) / 2)
_JUDGED, _DRAWS, _STEP = 2000, 4, 0.5
BRANCH = 4
"""Along every axis: 16 children on a plane. More make families too coarse to shrink, fewer make too many levels."""


def boxes(
    oracle: Oracle,
    columns: Sequence[str],
    *,
    bits: int | Sequence[int | None] | None = None,
    **stated: Unpack[Divisible],
) -> Synopsis:
    """A synopsis of all boxes over two or three ``columns``, each at its ``bits`` (one number, or one for each)."""
    effort = Effort.divisible(**stated)
    axes, levels = layout(oracle, columns, bits)
    deviation = predicted(oracle, axes, effort, levels)
    answer = oracle.ask(levels_query(axes, levels), effort=effort.part())
    counts, variances = _split(np.ravel(answer.total), axes, levels), _variances(np.ravel(answer.spread), axes, levels)
    own = tuple(slice(axis.cells) for axis in axes)
    weights, plain = (shared_out(counts, variances, shrink=shrink)[own].ravel() for shrink in (True, False))
    deviation = risk(counts, variances, own, deviation)
    about = f"boxes over {', '.join(map(str, axes))}, over the rows where all are known"
    accuracy = (
        f"a random box is off by about {deviation:.3g} rows (root mean square: noise, and what shrinkage changed)"
    )
    words = f"counts on {len(levels)} levels of joint cells, least squares, shrinkage"
    header = Header(oracle.name, about, accuracy, words, oracle.schema, oracle.rows, answer.cost, {"method": "tree"})
    noise = TreeNoise(tuple(table.shape for table in counts), tuple(variances))
    body = Boxes(oracle.schema, axes, weights, deviation, plain, noise, answer.cost.normal)
    return Synopsis(header, body)


def plan_boxes(
    oracle: Oracle,
    columns: Sequence[str],
    *,
    bits: int | Sequence[int | None] | None = None,
    e: float | None = None,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """The error in rows that 95 of 100 random boxes stay within, by noise alone. The paper has no theorem for boxes.

    ``e``: a wish, an error of at most this fraction of the rows.
    """
    effort = Effort.divisible(**stated)
    axes, levels = layout(oracle, columns, bits)
    deviation = predicted(oracle, axes, effort, levels)
    error = _Z * deviation
    outcome, needed = within(oracle, error, e)
    found = Outlook(
        f"boxes over {', '.join(map(str, axes))}",
        outcome,
        error=error,
        rows_needed=needed,
        cost=whole_cost(oracle, effort),
        why="Shrinkage lessens the noise on smooth data and may add to it on steep ones; the release states both.",
        details={"rows off, root mean square": deviation, "levels": float(len(levels))},
        method="tree",
        measure="a random box",
        scale="rows",
        confidence=STATED,
    )
    return Outlooks([found])


def layout(
    oracle: Oracle, columns: Sequence[str], bits: int | Sequence[int | None] | None
) -> tuple[tuple[Axis, ...], tuple[int, ...]]:
    """The axes, and the levels that are counted: cells along every axis of a run of each."""
    if not 2 <= len(columns) <= 3:
        raise BadQuery(f"boxes are over two or three columns. Got {len(columns)}; for one, take intervals.")
    if len({str(oracle.schema.find(name) or name) for name in columns}) < len(columns):
        raise BadQuery(f"boxes are over different columns. Got {', '.join(columns)}: name each once.")
    each = list(bits) if isinstance(bits, Sequence) else [bits] * len(columns)
    if len(each) != len(columns):
        raise BadQuery(f"bits must be one number, or one for each of {len(columns)} columns. Got {len(each)}.")
    axes = tuple(Axis.of(oracle.schema, name, own) for name, own in zip(columns, each, strict=True))
    cells = math.prod(axis.cells for axis in axes)
    if cells > MOST_CELLS:
        over = math.ceil(math.log2(cells / MOST_CELLS))
        raise Unsupported(
            f"these columns have {cells:,} joint cells; their counts would need {cells * 40 / 2**30:.3g} GiB of "
            f"memory. At most {MOST_CELLS:,} are counted: declare bits=, {over} fewer in all."
        )
    return axes, _spans(axes)


def _spans(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    """Cells along every axis of a run of each level, widest first."""
    longest = max(axis.cells for axis in axes)
    depth = max(1, math.ceil(math.log(longest, BRANCH) - 1e-9)) if longest > 1 else 1
    return tuple(BRANCH**level for level in reversed(range(depth)))


def levels_query(axes: tuple[Axis, ...], levels: Sequence[int]) -> Query:
    parts: list[Query] = []
    for span in levels:
        joint: Query = ONE
        for axis in reversed(axes):
            joint = Partition(axis.key(span), joint)
        parts.append(joint)
    return parts[0] if len(parts) == 1 else Stack(tuple(parts))


def _sizes(axes: tuple[Axis, ...], span: int) -> tuple[int, ...]:
    return tuple(math.ceil(axis.cells / span) for axis in axes)


def _split(flat: Floats, axes: tuple[Axis, ...], levels: Sequence[int]) -> list[Floats]:
    """By level, as tables padded so that every run has all its children."""
    tables: list[Floats] = []
    start = 0
    for place, span in enumerate(levels):
        sizes = _sizes(axes, span)
        count = math.prod(sizes)
        table = np.asarray(flat[start : start + count], dtype=np.float64).reshape(sizes)
        start += count
        if place:
            ratio = levels[place - 1] // span
            tables.append(_padded(table, [n * ratio for n in tables[-1].shape]))
        else:
            tables.append(table)
    return tables


def _padded(table: Floats, shape: Sequence[int]) -> Floats:
    return np.pad(table, [(0, want - have) for want, have in zip(shape, table.shape, strict=True)])


def _variances(spread: Floats, axes: tuple[Axis, ...], levels: Sequence[int]) -> list[float]:
    counts = [math.prod(_sizes(axes, span)) for span in levels]
    starts = np.cumsum([0, *counts[:-1]])
    return [float(np.mean(np.square(spread[a : a + n]))) for a, n in zip(starts, counts, strict=True)]


def _families(table: Floats, parents: tuple[int, ...]) -> Floats:
    """parents x children, children flat."""
    ratio = [n // p for n, p in zip(table.shape, parents, strict=True)]
    split = table.reshape([x for pair in zip(parents, ratio, strict=True) for x in pair])
    order = [*range(0, 2 * len(parents), 2), *range(1, 2 * len(parents), 2)]
    return split.transpose(order).reshape(math.prod(parents), -1)


def _joined(families: Floats, parents: tuple[int, ...], shape: tuple[int, ...]) -> Floats:
    """The inverse of ``_families``."""
    ratio = [n // p for n, p in zip(shape, parents, strict=True)]
    d = len(parents)
    order = [x for i in range(d) for x in (i, d + i)]
    return families.reshape([*parents, *ratio]).transpose(order).reshape(shape)


def shared_out(levels: Sequence[Floats], variances: Sequence[float], *, shrink: bool = True) -> Floats:
    """The cells: least squares up the levels, then down, shrunk and not negative unless ``shrink`` is off."""
    if variances[-1] == 0:
        return levels[-1]
    estimates, spreads = [levels[-1]], [variances[-1]]
    for table, variance in zip(reversed(levels[:-1]), reversed(variances[:-1]), strict=True):
        families = _families(estimates[-1], table.shape)
        below = families.shape[1] * spreads[-1]
        spreads.append(1 / (1 / variance + 1 / below))
        sums = families.sum(axis=1).reshape(table.shape)
        estimates.append((table / variance + sums / below) * spreads[-1])
    known = estimates[-1].clip(0) if shrink else estimates[-1]
    for own, spread in zip(reversed(estimates[:-1]), reversed(spreads[:-1]), strict=True):
        families = _families(own, known.shape)
        count = families.shape[1]
        off = families - families.mean(axis=1, keepdims=True)
        total = known.reshape(-1, 1)
        if shrink:
            noise = (count - 1) * spread / np.maximum(np.sum(off**2, axis=1, keepdims=True), 1e-300)
            children = (total / count + np.clip(1 - noise, 0.0, 1.0) * off).clip(0)
            sums = children.sum(axis=1, keepdims=True)
            children *= np.divide(total, sums, out=np.zeros_like(total), where=sums > 0)
        else:
            children = total / count + off
        known = _joined(children, known.shape, own.shape)
    return known


def risk(counts: Sequence[Floats], variances: Sequence[float], own: tuple[slice, ...], noise: float) -> float:
    """Estimated root mean square error of a random box, on the safe side; ``noise``: that of plain least squares."""
    if max(variances) == 0:
        return 0.0
    rng = np.random.default_rng(4)
    judged = random_boxes([cut.stop for cut in own], _JUDGED, rng)

    def changed(levels: Sequence[Floats]) -> Floats:
        table, plain = (shared_out(levels, variances, shrink=shrink)[own] for shrink in (True, False))
        return box_sums(table - plain, judged)

    both = 0.0
    for _ in range(_DRAWS):
        drawn = [rng.normal(0.0, math.sqrt(v), table.shape) for v, table in zip(variances, counts, strict=True)]
        more, less = (changed([a + sign * _STEP * b for a, b in zip(counts, drawn, strict=True)]) for sign in (1, -1))
        both += float(np.mean(box_sums(shared_out(drawn, variances, shrink=False)[own], judged) * (more - less)))
    seen = float(np.mean(np.square(changed(counts))))
    found = noise**2 + 2 * both / (2 * _STEP * _DRAWS) + seen
    return math.sqrt(max(found, 0.0) + noise**2)


def predicted(oracle: Oracle, axes: tuple[Axis, ...], effort: Effort, levels: Sequence[int]) -> float:
    """Root mean square error of random boxes from noise alone, without the gain of shrinkage; a public simulation."""
    variances = _variances(
        np.ravel(oracle.price(levels_query(axes, levels), effort=effort.part()).spread), axes, levels
    )
    if max(variances) == 0:
        return 0.0
    rng, errors = np.random.default_rng(4), []
    shapes = [table.shape for table in _split(np.zeros(sum(math.prod(_sizes(axes, s)) for s in levels)), axes, levels)]
    for _ in range(3):
        noise = [rng.normal(0.0, math.sqrt(v), shape) for v, shape in zip(variances, shapes, strict=True)]
        table = shared_out(noise, variances, shrink=False)[tuple(slice(axis.cells) for axis in axes)]
        errors.append(box_sums(table, random_boxes(table.shape, 500, rng)))
    return float(np.sqrt(np.mean(np.square(errors))))


def random_boxes(shape: Sequence[int], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``count`` boxes: (box, axis, first and after the last cell)."""
    ends = np.stack([np.sort(rng.integers(0, n, (count, 2)), axis=1) for n in shape], axis=1)
    return np.asarray(ends + np.array([0, 1]))


def box_sums(table: Floats, found: NDArray[np.int64]) -> Floats:
    """Sums over boxes, by inclusion and exclusion of prefix sums."""
    prefix = np.pad(table, [(1, 0)] * table.ndim)
    for axis in range(table.ndim):
        prefix = np.cumsum(prefix, axis=axis)
    total = np.zeros(len(found))
    for corner in np.ndindex(*[2] * table.ndim):
        places = tuple(found[:, axis, end] for axis, end in enumerate(corner))
        total += (-1) ** (table.ndim - sum(corner)) * prefix[places]
    return total


def _cases() -> list[Case]:
    ends = {"x": 31, "y": 15, "z": 3, "w": 3}
    schema = Schema({name: Integer(0, end, missing=0) for name, end in ends.items()})
    gaps = Schema({name: Integer(0, end) for name, end in ends.items()})

    def draw(rows: int, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        heap = random.binomial(31, 0.3, rows), *(random.integers(0, end + 1, rows) for end in (15, 3, 3))
        return dict(zip("xyzw", heap, strict=True))

    inside = ("x BETWEEN 5 AND 20 AND y BETWEEN 2 AND 9", "x >= 10 AND y < 8", "x < 16")
    # Any condition on its columns is a set of cells, and the noise of that very set is known.
    edge = ("x >= 0 AND y >= 0", "x = 31 AND y = 15", "x > 31", "x < y", "x + y > 20")
    small = {"columns": ("x", "y", "z"), "bits": (4, 3, None)}
    return [
        Case("two columns", schema, draw, {"columns": ("x", "y")}, "Boxes", inside, edge, ("z = 1",)),
        Case("with gaps", gaps, draw, {"columns": ("x", "y")}, "Boxes", inside[:2], edge[:2], ("x < 16", "x IS NULL")),
        Case(
            "three columns",
            schema,
            draw,
            small,
            "Boxes",
            ("x < 16 AND y >= 4 AND z = 1",),
            ("z = 3", "x < y"),
            ("w = 1",),
        ),
    ]


RELEASE = registered(
    Release(
        boxes,
        plan_boxes,
        "Boxes: ranges of two or three numbers at once",
        (
            Setting("columns", "columns", "Columns", types=("integer", "real"), least=2, most=3),
            Setting("bits", "bits", "Precision of the columns: 2^bits cells along each.", least=1, most=24),
        ),
        ("Boxes",),
        _cases,
        place=3,
    )
)
