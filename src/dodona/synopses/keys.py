"""What is published key by key: keys that were found in the data, and how many people have each, as counts that are
read given that they are shown; and curves over one ordered column, one for each value of another (``GroupedRanges``).

``Keys`` answers questions that only listed keys add to: counts of single keys, of several, by key. Of keys that are not
listed nothing is known, not even whether there are any.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Vector
from dodona.errors import BadTable, Unsupported
from dodona.mechanisms.weights import Rounds, Shown, restored
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Category, Flag, Label, Schema
from dodona.query.statistic import Query
from dodona.synopses.noise import TreeNoise
from dodona.synopses.ranges import Axis, Ranges
from dodona.synopses.weighted import Floats, Piece, as_points, pieces


@dataclass(frozen=True, eq=False)
class Keys(Body):
    """``listed``: the keys of ``column``, those with the highest counts first. ``noisy``: what was shown of each.

    ``threshold``: the noise, and from which count on a key was shown; None: the counts are exact. Where keys were found
    without counts, ``noisy`` is empty.
    """

    kind: ClassVar[str] = "Keys"
    proven = True
    schema: Schema
    column: str
    listed: tuple[Label, ...]
    noisy: NDArray[Any]
    threshold: Shown | None

    def arrays(self) -> Arrays:
        """The counts as they were shown."""
        return {"noisy": self.noisy}

    def settings(self) -> dict[str, Any]:
        """The keys, and how their counts are read."""
        how = None if self.threshold is None else self.threshold.describe()
        return {"column": self.column, "keys": list(self.listed), "threshold": how}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Keys:
        """The inverse of ``arrays`` and ``settings``."""
        how, noisy = settings["threshold"], np.asarray(arrays["noisy"], dtype=np.int64)
        threshold = None if how is None else restored(how)
        listed = 0 if isinstance(threshold, Rounds) and threshold.counts is None else len(settings["keys"])
        if len(noisy) != listed:
            raise BadTable("the synopsis is damaged: its counts do not match its keys.")
        return cls(schema, settings["column"], tuple(settings["keys"]), noisy, threshold)

    def counts(self, confidence: float) -> tuple[Floats, Floats]:
        """(counts, margins) of each key: with this confidence, given that it is shown, the truth is within the margin.

        The noisy count itself is too high on average, the more so the nearer it is to the threshold; what stands here
        is as often above the truth as below it.
        """
        if self.threshold is None:
            return self.noisy.astype(np.float64), np.zeros(len(self.noisy))
        reading = self.threshold.reading()
        kinds, places = np.unique(self.noisy, return_inverse=True)
        read = np.array([reading.interval(int(y), confidence) for y in kinds], dtype=np.float64).reshape(-1, 3)
        margins = np.maximum(read[:, 2] - read[:, 1], read[:, 1] - read[:, 0])
        return read[:, 1][places.ravel()], margins[places.ravel()]

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over keys; of several keys each margin is wider, so that all of them hold at once."""
        if len(self.noisy) != len(self.listed):
            raise Unsupported(
                f"these keys of {self.column} were found without counts: group by them, curator.with_keys(...), or "
                "find them with counts=True."
            )
        found: list[tuple[Floats, Floats]] = []
        blocks = list(pieces(plan, self.schema, self._points, len(self.listed) + 1))
        wider = compile_query(query, self._wider, level=True)
        beyond = list(pieces(wider, self._wider, self._beyond, 1))
        for block, others in zip(blocks, beyond, strict=True):
            columns = []
            for piece, other in zip(block, others, strict=True):
                if _adds(piece, piece.cells) or _adds(other, piece.cells):
                    raise Unsupported(
                        f"this synopsis lists {len(self.listed):,} keys of {self.column} and how many people have "
                        f"each: ask of these, as in {self.column} = {self._example}. Of others it knows nothing."
                    )
                used = np.zeros(len(self.listed) + 1)
                used[:-1] = piece.values[:-1] != 0
                most = max(int(Piece(piece.cells, piece.key, used).totals(np.ones(len(used))).max(initial=1)), 1)
                totals, margins = self.counts(1 - (1 - confidence) / most)
                size = Piece(piece.cells, piece.key, np.abs(piece.values))
                columns.append((piece.totals(np.append(totals, 0.0)), size.totals(np.append(margins, 0.0))))
            found.append(tuple(np.stack([column[i] for column in columns], axis=1).ravel() for i in (0, 1)))  # type: ignore[arg-type]
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])

    @property
    def _example(self) -> str:
        first = self.listed[0] if self.listed else "..."
        return repr(first)

    @cached_property
    def _points(self) -> dict[str, Vector]:
        """A row for each key, and one that has none at all."""
        if not self.listed:
            raise Unsupported(f"no key of {self.column} stood out, so there is nothing to ask of.")
        values = np.array([*self.listed, self.listed[0]], dtype=object if self._texts else np.int64)
        return as_points(self.schema, {self.column: np.ma.array(values, mask=[False] * len(self.listed) + [True])})[0]

    @property
    def _texts(self) -> bool:
        return bool(self.listed) and isinstance(self.listed[0], str)

    @cached_property
    def _other(self) -> Label:
        """Some key that is not listed: of these a question must not ask either."""
        if self._texts:
            return max(map(str, self.listed), key=len) + "\ue000"
        return max(map(int, self.listed)) + 1

    @cached_property
    def _wider(self) -> Schema:
        """The schema with one more key, the last."""
        return Schema({self.column: Category(*self.listed, self._other)})

    @cached_property
    def _beyond(self) -> dict[str, Vector]:
        values = np.array([self._other], dtype=object if self._texts else np.int64)
        return as_points(self._wider, {self.column: values})[0]


LADDER = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.999_99)
"""Confidences at which margins of frequent values are told; in between, that of the next."""


@dataclass(frozen=True, eq=False)
class Hitters(Keys):
    """Frequent values, and counts as the oracle estimated them. ``ladder``: the margin of each, at each of ``LADDER``.

    A margin holds for all cells that were counted together, so it holds of those that were chosen.
    """

    kind: ClassVar[str] = "Hitters"
    ladder: Floats

    def arrays(self) -> Arrays:
        """The counts, and their margins."""
        return {"noisy": self.noisy, "ladder": self.ladder.ravel()}

    def settings(self) -> dict[str, Any]:
        """The values."""
        return {"column": self.column, "keys": list(self.listed)}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Hitters:
        """The inverse of ``arrays`` and ``settings``."""
        noisy, ladder = (np.asarray(arrays[name], dtype=np.float64) for name in ("noisy", "ladder"))
        listed = tuple(settings["keys"])
        if noisy.shape != (len(listed),) or ladder.shape != (len(LADDER) * len(listed),):
            raise BadTable("the synopsis is damaged: its counts do not match its values.")
        return cls(schema, settings["column"], listed, noisy, None, ladder.reshape(len(LADDER), len(listed)))

    def counts(self, confidence: float) -> tuple[Floats, Floats]:
        """(counts, margins) of each value."""
        rung = bisect_left(LADDER, confidence)
        if rung == len(LADDER):
            raise Unsupported(f"margins here are told up to confidence {LADDER[-1]}. Got {confidence}.")
        return self.noisy, self.ladder[rung]


def _adds(piece: Piece, cells: int) -> bool:
    """Whether the last point adds anything to one of the first ``cells``."""
    return bool(piece.values[-1]) and (piece.key is None or bool(piece.key[-1] < cells))


@dataclass(frozen=True, eq=False)
class GroupedRanges(Body):
    """A curve for each value of the column ``by``: its values are listed, and none is missing.

    ``curve`` and ``plain``: one group's after the other's, at the same ``edges``; the rest as of ``Ranges``, the same
    in each group. A row is in one group, so all curves together cost as one.
    """

    schema: Schema
    axis: Axis
    by: str
    edges: NDArray[np.int64]
    curve: Floats
    deviation: float
    noise: TreeNoise
    normal: bool
    plain: Floats

    kind = "GroupedRanges"

    def arrays(self) -> Arrays:
        """The edges and the curves."""
        return {"edges": self.edges, "curve": self.curve, "plain": self.plain}

    def settings(self) -> dict[str, Any]:
        """The axis, whose groups, and the error."""
        return {**self.of_group(0).settings(), "by": self.by}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> GroupedRanges:
        """The inverse; curves that cannot be some are refused."""
        by, size = str(settings["by"]), len(arrays["edges"])
        if by not in schema or not isinstance(schema[by], Category | Flag):
            raise BadTable("the synopsis is damaged: its groups are of no column.")
        groups = [
            Ranges.restore(
                schema,
                settings,
                {"edges": arrays["edges"], **{n: arrays[n][k * size : (k + 1) * size] for n in ("curve", "plain")}},
            )
            for k in range(len(group_values(schema, by)))
        ]
        first = groups[0]
        if len(arrays["curve"]) != size * len(groups) or not isinstance(first.noise, TreeNoise):
            raise BadTable("the synopsis is damaged: its curves are not those of its groups.")
        curve, plain = (arrays[name].astype(np.float64) for name in ("curve", "plain"))
        own = schema, first.axis, by, first.edges, curve, first.deviation
        return cls(*own, first.noise, first.normal, plain)

    def of_group(self, group: int) -> Ranges:
        """The curve of one group, by its number."""
        own = slice(group * len(self.edges), (group + 1) * len(self.edges))
        known = self.schema, self.axis, self.edges, self.curve[own], self.deviation
        return Ranges(*known, self.noise, self.normal, self.plain[own])

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over the groups; so are their margins, though noise in one group is independent of the others'."""
        others = [name for name in plan.program.columns if name not in (self.axis.column, self.by)]
        if others:
            raise Unsupported(
                f"this synopsis answers questions about {self.axis.column} by {self.by} (its ranges, and what follows "
                f"from them). {query} reads {', '.join(others)}."
            )
        found = [
            self.of_group(group).sums(query, plan, confidence, {self.by: value})
            for group, value in enumerate(group_values(self.schema, self.by))
        ]
        totals, margins = zip(*found, strict=True)
        return np.sum(totals, axis=0), np.sum(margins, axis=0)


def group_values(schema: Schema, by: str) -> list[Any]:
    """What a row of each group holds in a listed column, as engines keep it, in the order of its partition."""
    column = schema[by]
    return [float(code) for code in range(len(column.values))] if isinstance(column, Category) else [False, True]
