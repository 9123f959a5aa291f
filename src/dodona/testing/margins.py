"""``check_margins``: the second promise as a law. A stated margin holds as often as it says, and is not idle.

A ``Covered`` case says how to make what answers (an oracle, a release, a fitted learner) from a table in a ``World``,
which questions lie inside its class, at its edge and outside, and how far each answer is from what ``Exact`` shows. The
law then runs it again and again with other noise and judges, at confidence 0.5, 0.95 and 0.999:

* coverage: misses over the runs, question by question, by an exact binomial test that is wrong once in a million;
* idleness: a margin that is called proven is at most ``IDLE`` times what would have sufficed (the median question);
* refusal: a question outside the class is refused. At its edge it may be refused, and where columns may be missing
  all may be; where answered, it must hold.

Seeds are fixed, so a verdict is the same in every run. Whoever adds a release of their own checks it with one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import Refused
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.statistic import Query, as_query

Floats = NDArray[np.float64]
CONFIDENCES = (0.5, 0.95, 0.999)
JUDGED_IDLE = 0.95
IDLE = 2.5
FALSE_ALARM = 1e-6
ENOUGH = 20
"""Answers that were not lost in noise, from which on what suffices at 0.95 can be told; with fewer, coverage and
refusal are judged alone."""
_HAIR = 1e-9  # of a margin: sums of doubles in another order


@dataclass(frozen=True)
class World:
    """The circumstances of a run: what a margin must know of, and may forget.

    ``missing``: "stated" (the schema says what stands for a missing value, so none is), or a nullable column with
    "none", "some" (a tenth) or "many" (half) of its values missing. ``unit``: rows belong to people, each of whom
    counts with two rows at most. ``heavy``: most rows share one value.
    """

    rows: int = 1500
    epsilon: float = 1.0
    delta: float = 0.0
    missing: str = "stated"
    unit: bool = False
    heavy: bool = False

    @property
    def budget(self) -> Budget:
        """The whole of what may be spent."""
        return Budget(epsilon=self.epsilon, delta=self.delta) if self.delta else Budget(epsilon=self.epsilon)

    @property
    def absent(self) -> float:
        """The fraction of values that are missing."""
        return {"stated": 0.0, "none": 0.0, "some": 0.1, "many": 0.5}[self.missing]

    def __str__(self) -> str:
        words = [f"{self.rows} rows", f"epsilon {self.epsilon:g}", f"delta {self.delta:g}", f"missing {self.missing}"]
        return ", ".join(words + ["people"] * self.unit + ["heavy"] * self.heavy)


AXES: dict[str, tuple[Any, ...]] = {
    "rows": (300, 1500, 6000),
    "epsilon": (0.3, 2.0),
    "delta": (0.0, 1e-6),
    "missing": ("stated", "none", "some", "many"),
    "unit": (False, True),
    "heavy": (False, True),
}


def worlds(fixed: Mapping[str, Any] | None = None) -> list[World]:
    """Few worlds in which every two levels of two axes meet; ``fixed``: axes that a case cannot vary."""
    return list(_worlds(tuple(sorted((fixed or {}).items()))))


@cache
def _worlds(fixed: tuple[tuple[str, Any], ...]) -> tuple[World, ...]:
    levels = {name: (dict(fixed)[name],) if name in dict(fixed) else values for name, values in AXES.items()}
    listed = [dict(zip(levels, chosen, strict=True)) for chosen in product(*levels.values())]
    pairs = [{(a, str(w[a]), b, str(w[b])) for a, b in combinations(levels, 2)} for w in listed]
    wanted = set().union(*pairs)
    found: list[World] = []
    while wanted:
        best = max(range(len(listed)), key=lambda i: len(pairs[i] & wanted))
        found.append(World(**listed[best]))
        wanted -= pairs[best]
    return tuple(found)


@dataclass(frozen=True)
class Told:
    """How far off the answers to a question were, the margins they came with, and whether these are called proven.

    ``lost``: which answers say themselves that they are lost in noise. Their margins are the public range, which is
    true and not idle: nothing narrower is known.
    """

    errors: Floats
    margins: Floats
    proven: bool
    lost: NDArray[np.bool_] | None = None

    @staticmethod
    def of(answer: Any, truth: Any, *, proven: bool) -> Told:
        """From an answer with ``total`` and ``margin``; an answer's own ``proven`` outranks the one handed in."""
        off = np.abs(np.ravel(np.asarray(answer.total, dtype=np.float64)) - np.ravel(truth))
        said = getattr(answer, "proven", None)
        return Told(off, np.ravel(np.asarray(answer.margin, dtype=np.float64)), proven if said is None else bool(said))

    @property
    def used(self) -> Floats:
        """Which part of its margin each error takes: up to 1 is covered. A margin of nothing that holds is used up."""
        none = np.where(self.errors > _HAIR, np.inf, 1.0)
        return np.divide(self.errors, self.margins, out=none, where=self.margins > 0)


class Truth:
    """What ``Exact`` shows for questions about one table; each is computed once."""

    def __init__(self, table: Any) -> None:
        self.table, self.exact = table, Exact(table)
        self._known: dict[str, Floats] = {}

    def __call__(self, question: str | Query) -> Floats:
        query = as_query(question)
        if str(query) not in self._known:
            self._known[str(query)] = np.ravel(np.asarray(self.exact.ask(query).total, dtype=np.float64))
        return self._known[str(query)]


@dataclass(frozen=True)
class Asked:
    """Questions of one kind. ``independent``: the noise of their coordinates is, so misses may be pooled. ``joint``:
    the margins hold for all coordinates of a question at once.
    """

    questions: tuple[Any, ...]
    independent: bool = False
    joint: bool = False


@dataclass(frozen=True)
class Covered:
    """One registered kind under the law.

    ``covers``: the names of what it stands for (``synopsis:Ranges``, ``release:intervals``, ...). ``table(world)``;
    ``make(table, world, seed)``: what answers, with its noise from the seed; ``tell(made, truth, question,
    confidence)``. ``proven``: whether its margins are claimed to be (where columns may be missing they may be less).
    ``fixed``: axes it cannot vary. ``forced``: by
    how much a proven margin may be idle where a theorem's constant makes it so, and why.
    ``any_data``: a margin for whatever the rows hold is idle only if it is on the question that needs it most.
    ``sure``: the only confidence it states, where it takes none. ``slow``: not for between two edits.
    ``runs``: with how many noises it is tried in its quick world; ``full``: in every other one.
    """

    kind: str
    covers: tuple[str, ...]
    table: Callable[[World], Any]
    make: Callable[[Any, World, int], Any]
    tell: Callable[[Any, Truth, Any, float], Told]
    inside: tuple[Asked, ...]
    edge: tuple[Any, ...] = ()
    outside: tuple[Any, ...] = ()
    proven: bool = True
    quick: World = field(default_factory=World)
    runs: int = 60
    full: int = 0
    fixed: Mapping[str, Any] = field(default_factory=dict)
    forced: tuple[float, str] | None = None
    any_data: bool = False
    sure: float | None = None
    slow: bool = False

    @property
    def full_runs(self) -> int:
        """In a world that is not its quick one; twice as many unless stated."""
        return self.full or 2 * self.runs

    @property
    def confidences(self) -> tuple[float, ...]:
        """At which it is judged."""
        return CONFIDENCES if self.sure is None else (self.sure,)

    @property
    def most_idle(self) -> float:
        """How many times what suffices a proven margin may be."""
        return IDLE if self.forced is None else self.forced[0]


@dataclass(frozen=True)
class Line:
    """What was seen at one confidence: the least covered question, all of them, and how idle the median margin was.

    ``chance``: of at least so many misses if the promise were kept, corrected for how many questions were looked at.
    ``told``: how often the questions on which ``idle`` rests were answered, and not lost in noise.
    """

    confidence: float
    least: float
    mean: float
    chance: float
    idle: float
    proven: bool
    told: int


@dataclass(frozen=True)
class Verdict:
    """``refused``: why it would not be made here, or not answer. ``shut``: that this was a question of its class.
    ``answered``: questions outside its class that it took on.
    """

    case: Covered
    world: World
    lines: tuple[Line, ...] = ()
    refused: str = ""
    shut: bool = False
    answered: tuple[str, ...] = ()

    def faults(self) -> list[str]:
        """What breaks the law, in words and figures; none if it is kept."""
        found = [f"answers {question}, which is outside its class" for question in self.answered]
        found += [f"refuses a question of its class: {self.refused}"] * self.shut
        claims = self.case.proven and (self.world == self.case.quick or self.world.missing == "stated")
        for line in self.lines:
            if line.chance < FALSE_ALARM:
                found.append(
                    f"stated {line.confidence:g}, covered {line.least:.4g} (least question), {line.mean:.4g} (all), "
                    f"chance {line.chance:.1e}"
                )
            judged = line.confidence == (self.case.sure or JUDGED_IDLE) and line.told >= ENOUGH
            if judged and line.proven and line.idle > self.case.most_idle:
                found.append(f"called proven, and idle by {line.idle:.3g} at {line.confidence:g}")
            if claims and not line.proven:
                found.append("claimed to be proven, but its answers do not say so")
        return found


def check_margins(case: Covered, world: World | None = None, *, runs: int | None = None) -> Verdict:
    """AssertionError with figures where the case breaks the law in this world (its quick one unless given)."""
    verdict = judge(case, world or case.quick, runs=runs)
    faults = verdict.faults()
    assert not faults, f"{case.kind} in {verdict.world}: " + "; ".join(faults)
    assert verdict.lines or world is not None, f"{case.kind} refuses its own quick world: {verdict.refused}"
    return verdict


def judge(case: Covered, world: World, *, runs: int | None = None) -> Verdict:
    """The figures; raises nothing for a broken law."""
    world = replace(world, **dict(case.fixed))
    truth = Truth(case.table(world))
    seen: dict[float, list[_Seen]] = {sure: [_Seen(asked) for asked in case.inside] for sure in case.confidences}
    edges: dict[float, list[_Seen]] = {sure: [_Seen(Asked((one,))) for one in case.edge] for sure in case.confidences}
    answered: set[str] = set()
    for seed in range(runs or case.runs):
        try:
            made = case.make(truth.table, world, seed)
        except Refused as why:
            return Verdict(case, world, refused=str(why))
        for sure in case.confidences:
            try:
                for group in seen[sure]:
                    group.add(case.tell(made, truth, one, sure) for one in group.asked.questions)
            except Refused as why:
                return Verdict(case, world, refused=str(why), shut=world.missing == "stated")
            for group in edges[sure]:
                group.add(_taken(case, made, truth, group.asked.questions[0], sure))
        if seed < 2:
            answered |= {str(one) for one in case.outside if list(_taken(case, made, truth, one, case.confidences[0]))}
    lines = tuple(
        _line(sure, [*seen[sure], *(one for one in edges[sure] if one.runs)], case.any_data)
        for sure in case.confidences
    )
    return Verdict(case, world, lines, answered=tuple(sorted(answered)))


def _taken(case: Covered, made: Any, truth: Truth, question: Any, sure: float) -> Iterator[Told]:
    """The answer to a question that may be refused."""
    try:
        yield case.tell(made, truth, question, sure)
    except Refused:
        return


class _Seen:
    """What came of one group of questions at one confidence, run after run."""

    def __init__(self, asked: Asked) -> None:
        self.asked, self.runs, self.proven = asked, list[Floats](), True
        self.lost: list[NDArray[np.bool_]] = []

    def add(self, told: Iterable[Told]) -> None:
        answers = list(told)
        if not answers:
            return
        used = [np.max(one.used, keepdims=True, initial=0.0) if self.asked.joint else one.used for one in answers]
        self.runs.append(np.concatenate(used))
        none = [np.zeros(len(one), dtype=bool) for one in used]
        self.lost.append(np.concatenate([b if a.lost is None else a.lost for a, b in zip(answers, none, strict=True)]))
        self.proven = self.proven and all(one.proven for one in answers)

    def columns(self) -> list[Floats]:
        """Trials that may be counted together: one question's over the runs, or all of them."""
        return self._columns(np.stack(self.runs))

    def told(self) -> list[Floats]:
        """The same without answers that said they were lost."""
        return self._columns(np.where(np.stack(self.lost), np.nan, np.stack(self.runs)))

    def _columns(self, table: Floats) -> list[Floats]:
        return [table.ravel()] if self.asked.independent else list(table.T)


def _line(confidence: float, seen: Sequence[_Seen], any_data: bool) -> Line:
    columns = [column for group in seen for column in group.columns()]
    covered = np.array([np.mean(column <= 1 + _HAIR) for column in columns])
    chance = min(_chance(int(np.sum(column > 1 + _HAIR)), len(column), confidence) for column in columns)
    answered = [column[~np.isnan(column)] for group in seen for column in group.told()]
    often = [one for one in answered if len(one) >= ENOUGH]
    judged = often or [one for one in answered if len(one)] or [np.ones(1)]
    needed = np.array([np.quantile(one, confidence, method="inverted_cdf") for one in judged])
    times = np.divide(1.0, needed, out=np.full(len(needed), np.inf), where=needed > 0)
    idle = float(np.min(times) if any_data else np.median(times))
    mean = float(np.mean(np.concatenate(columns) <= 1 + _HAIR))
    proven = all(group.proven for group in seen)
    told = min(map(len, judged))
    return Line(confidence, float(covered.min()), mean, min(1.0, chance * len(columns)), idle, proven, told)


def _chance(misses: int, trials: int, confidence: float) -> float:
    """Of so many misses or more, if each trial is covered with probability ``confidence``."""
    return float(import_module("scipy.stats").binom.sf(misses - 1, trials, 1 - confidence))
