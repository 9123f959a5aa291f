"""Whole paths, exactly: a real curator over every small table, what it released against what it charged.

For noisy totals: each path runs on every table with the same frozen bits, so the noise is the same and what differs
between neighbours is what the curator really summed; with the law of the noise that gives the loss of the pair in
rationals. That the curator draws this noise is shown by enumerating its tapes. For finite outputs (a choice, a report,
a synthetic table) the whole path is enumerated on every table, and every pair of laws is compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from dodona.audit.curve import mu_audit
from dodona.audit.enumeration import Interval, TapeAudit, tape, tape_audit
from dodona.audit.exact import Chances, ExactAudit, epsilon_audit, loss_audit, rho_audit
from dodona.audit.mechanisms import Check
from dodona.audit.neighbours import Fixed, Rows, SmallDomain, shown
from dodona.audit.watched import Seen, Stake, Suspicion, WatchedCurator, laws_of, loss_of, watched
from dodona.local.client import Client, invitation
from dodona.mechanisms import SecureBits
from dodona.mechanisms.selection import Chooser
from dodona.oracles.answer import Answer, Finding
from dodona.oracles.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.query.quantiles import Quantiles
from dodona.query.statistic import Query

F = Fraction
Use = Callable[[Oracle], Any]
Released = list[Stake]
_RESIDUAL = F(1, 10**6)


class FrozenBits:
    """The same words for everyone: SplitMix64's fixed sequence. It makes two runs differ by their rows alone."""

    def __init__(self) -> None:
        self._at = 0

    def words(self, n: int) -> Any:
        """The next ``n`` of the fixed sequence."""
        from dodona.mechanisms.direction import mixed

        steps = np.arange(self._at + 1, self._at + n + 1, dtype=np.uint64)
        self._at += n
        return mixed(steps * np.uint64(0x9E3779B97F4A7C15))


@dataclass(frozen=True)
class Path:
    """A way to use a curator: ``use`` asks it, on every table of ``domain``, within ``budget``.

    ``curator``: whose work is audited; a broken copy can be put in its place. ``scratch``: as for ``watched``.
    """

    name: str
    domain: SmallDomain
    neighbours: str
    budget: Budget
    use: Use
    curator: type[WatchedCurator] = WatchedCurator
    scratch: bool = True

    def run(self, rows: Rows, bits: Any) -> WatchedCurator:
        """One use of a fresh curator over these rows."""
        table = self.domain.table(rows, self.neighbours)
        oracle = watched(table, self.budget, bits, self.curator, scratch=self.scratch)
        self.use(oracle)
        return oracle

    def runs(self) -> dict[Rows, WatchedCurator]:
        """One use on every table that has a neighbour, all with the same frozen bits."""
        tables = dict.fromkeys(itertools.chain(*self.domain.pairs(self.neighbours)))
        return {rows: self.run(rows, FrozenBits()) for rows in tables}

    @property
    def title(self) -> str:
        """The line's name."""
        return f"{self.name} ({self.neighbours})"

    def claim(self, charged: set[int]) -> Fraction:
        """What was charged, and no more than the budget's own promise: what every run must keep.

        A charge that depends on the rows is itself a leak; then nothing is claimed.
        """
        stated = {"epsilon": self.budget.epsilon, "rho": self.budget.rho, "mu^2": self.budget.squared}[self.budget.unit]
        assert stated is not None
        return min(self.budget.amount(min(charged)), stated) if len(charged) == 1 else F(0)


def noisy_path(path: Path) -> list[ExactAudit]:
    """What neighbours change in the released totals, question by question, against what was charged."""
    unit, runs, losses = path.budget.unit, path.runs(), []
    released = {rows: _releases_of(run) for rows, run in runs.items()}
    for pair in path.domain.pairs(path.neighbours):
        losses.append((shown(pair), _loss_between(released[pair[0]], released[pair[1]], unit)))
    return [loss_audit(path.title, unit, path.claim({run.ledger.spent() for run in runs.values()}), losses)]


def groups_path(path: Path) -> list[ExactAudit]:
    """As ``noisy_path``, group by public group: what neighbours in a group change against what that group was charged.

    On a real ledger, which admits what each group still has; so the sum over one run is also within the budget.
    """
    domain, unit, runs = path.domain, path.budget.unit, path.runs()
    assert isinstance(domain, Fixed)
    assert not path.scratch
    released = {rows: _releases_of(run) for rows, run in runs.items()}
    losses: dict[Any, list[tuple[str, Fraction]]] = {}
    for pair in domain.pairs(path.neighbours):
        loss = _loss_between(released[pair[0]], released[pair[1]], unit)
        losses.setdefault(domain.group(pair), []).append((shown(pair), loss))
    audits = []
    for group, found in sorted(losses.items()):
        scope = (domain.atom(group),)
        charged = {path.budget.capacity - run.ledger.left(scope) for run in runs.values()}
        audits.append(loss_audit(f"{path.title}, group {group}", unit, path.claim(charged), found))
    return audits


def _loss_between(one: Released, other: Released, unit: str) -> Fraction:
    """The loss of what both released: the same questions, so the same noise, and totals that differ by the rows.

    Where rows decide how many answers there are, or which noise they get, the loss is without bound.
    """
    if [release.laws for release in one] != [release.laws for release in other]:
        return F(10**9)
    stakes = (replace(a, moved=a.here - b.here) for a, b in zip(one, other, strict=True))
    return sum((stake.worst(unit) for stake in stakes), F(0))


def _releases_of(run: WatchedCurator) -> Released:
    """Each answer in whole steps, with the law of the noise it was priced with."""
    found = []
    for seen in run.seen:
        plan, noise = seen.by._priced(seen.request)
        steps = _steps(seen, plan.units)
        found.append(Stake(plan, steps, steps - steps, laws_of(plan, noise)))
    return found


def _steps(seen: Seen, units: Any) -> Any:
    assert isinstance(seen.result, Answer)
    flat = np.ravel(np.asarray(seen.result.total, dtype=np.float64)) / units
    return np.array([int(value) for value in np.rint(flat)], dtype=object)


def whole_path(path: Path) -> list[ExactAudit]:
    """All of an (epsilon, delta) budget spent purely: charged in full, it must lose no more than its epsilon.

    Judged in pure epsilon, question by question as ``questions_path``, whatever the ledger counts in; where less than
    the whole was charged nothing is claimed, since another question would then have been let in beside these.
    """
    runs, losses = path.runs(), []
    for pair in path.domain.pairs(path.neighbours):
        for rows, near in (pair, pair[::-1]):
            suspicion = Suspicion(runs[rows]._table, path.domain.table(near, path.neighbours))
            total = sum((_worst(suspicion, seen, "epsilon") for seen in runs[rows].seen), F(0))
            losses.append((shown((rows, near)), total))
    in_full = all(run.ledger.spent() == path.budget.capacity for run in runs.values())
    return [loss_audit(path.title, "epsilon", (path.budget.pure_whole or F(0)) if in_full else F(0), losses)]


def questions_path(path: Path) -> list[ExactAudit]:
    """An algorithm of several questions: along those it asked, what each could tell of a pair at most, summed.

    Each question of a run on D is put to every neighbour of D as well. Which questions come next depends on released
    answers alone, so the sum over one run bounds the loss of that transcript.
    """
    unit, runs, losses, claimed = path.budget.unit, path.runs(), [], F(0)
    for pair in path.domain.pairs(path.neighbours):
        for rows, near in (pair, pair[::-1]):
            run = runs[rows]
            suspicion = Suspicion(run._table, path.domain.table(near, path.neighbours))
            total = sum((_worst(suspicion, seen, unit) for seen in run.seen), F(0))
            losses.append((shown((rows, near)), total))
            claimed = max(claimed, path.claim({run.ledger.spent()}))
    return [loss_audit(path.title, unit, claimed, losses)]


def ranked_path(path: Path) -> list[ExactAudit]:
    """Quantiles: along the same picks, how far each choice's scores moved between neighbours, and what that can tell.

    A choice whose scores move by a part of its sensitivity loses that part of its epsilon, and its square of the rho.
    """
    unit, runs = path.budget.unit, path.runs()
    worst: dict[str, Fraction] = {}
    for pick in _PICKS:
        scores = {rows: _scores_along(run, pick) for rows, run in runs.items()}
        for pair in path.domain.pairs(path.neighbours):
            steps = zip(scores[pair[0]], scores[pair[1]], strict=True)
            loss = sum((_choice_loss(chooser, here - there, unit) for (chooser, here), (_, there) in steps), F(0))
            worst[shown(pair)] = max(loss, worst.get(shown(pair), F(0)))
    claimed = path.claim({run.ledger.spent() for run in runs.values()})
    return [loss_audit(path.title, unit, claimed, list(worst.items()))]


_PICKS: tuple[Callable[[int], float], ...] = (
    lambda _: 0.0,
    lambda _: 0.999,
    lambda place: 0.5 + 0.4 * (-1) ** place,
    lambda place: place * 0.618 % 1,
)
"""Which candidate is picked at each place of a descent, as a part of all: at the ends, to and fro, and anywhere."""


def _choice_loss(chooser: Chooser, moved: Any, unit: str) -> Fraction:
    part = F(int(np.abs(moved).max())) / chooser.sensitivity
    return loss_of(replace(chooser, epsilon=part * chooser.epsilon).cost(), unit) if part else F(0)


def _scores_along(run: WatchedCurator, pick: Callable[[int], float]) -> list[tuple[Chooser, Any]]:
    """Every choice of all that was asked, and the scores it has on this table where those before it went so."""
    found: list[tuple[Chooser, Any]] = []

    def watched(chooser: Chooser) -> Chooser:
        def sample(scores: Any, _: Any) -> int:
            found.append((chooser, scores))
            return int(pick(len(found)) * len(scores))

        return cast("Chooser", SimpleNamespace(sample=sample))

    for seen in run.seen:
        query, curator = seen.request.query, seen.by
        offer = curator._choice(seen.request, query) if isinstance(query, Quantiles) else None
        assert offer is not None, "counted, and not chosen"
        rankings = tuple(
            replace(one, choosers=tuple(map(watched, one.choosers)), sides=tuple(map(watched, one.sides)))
            for one in offer.rankings
        )
        totals = curator._table.engine.totals(offer.plan.program)
        replace(offer, rankings=rankings).found(totals, SecureBits())
    return found


def _worst(suspicion: Suspicion, seen: Seen, unit: str) -> Fraction:
    if isinstance(seen.result, Answer):
        return suspicion.stake(seen).worst(unit)
    chooser, scores = suspicion.chooser(seen)
    moved = int(np.abs(scores[0] - scores[1]).max())
    if moved > chooser.sensitivity:
        return F(10**9)
    return loss_of(chooser.cost(), unit)


def finite_path(
    path: Path, outcome: Callable[[WatchedCurator], Hashable], residual: Fraction = _RESIDUAL
) -> list[ExactAudit]:
    """A path of few outcomes: its law on every table by its tapes, and every pair of laws."""
    charged: set[int] = set()

    def law(rows: Rows) -> Chances:
        def once(bits: Any) -> Hashable:
            oracle = path.run(rows, bits)
            charged.add(oracle.ledger.spent())
            return outcome(oracle)

        return tape(once, residual=residual, most_runs=4000).masses

    laws = {rows: law(rows) for rows in path.domain.tables()}
    pairs = [(shown(pair), laws[pair[0]], laws[pair[1]]) for pair in path.domain.pairs(path.neighbours)]
    amount = path.budget.amount(max(charged))
    if path.budget.unit == "epsilon":
        return [epsilon_audit(path.title, amount, pairs, unexplored=_unexplored(laws.values(), amount))]
    if path.budget.unit == "mu^2":
        return [mu_audit(path.title, amount, pairs, unexplored=2 * residual)]
    pure = F(math.isqrt(math.ceil(2 * amount * 10**20)) + 1, 10**10)
    return [rho_audit(path.title, amount, pure, pairs)]


def noise_drawn(path: Path, rows: Rows, residual: Fraction) -> TapeAudit:
    """The law of one answer on one table, by its tapes, against exact totals plus the noise that was priced."""
    table = path.domain.table(rows, path.neighbours)
    frozen = path.run(rows, FrozenBits())
    stake = Suspicion(table, table).stake(frozen.seen[0])

    def once(bits: Any) -> tuple[int, ...]:
        return tuple(_steps(path.run(rows, bits).seen[0], stake.plan.units).tolist())

    def stated(steps: tuple[int, ...]) -> Interval:
        low = high = F(1)
        for value, exact, law in zip(steps, stake.here.tolist(), stake.laws, strict=True):
            bounds = (F(value == exact),) * 2 if law is None else law.probability(value - int(exact))
            low, high = low * bounds[0], high * bounds[1]
        return low, high

    return tape_audit(path.title, tape(once, residual=residual, most_runs=1500), stated)


def report_audit(
    name: str, query: Query, domain: SmallDomain, epsilon: Fraction, most_runs: int = 3000
) -> list[ExactAudit]:
    """One person's report, by the tapes of the code that runs on their device, for every two things they may hold."""
    text = invitation(query, domain.schema, epsilon)

    def law(kind: tuple[Any, ...]) -> Chances:
        answers = dict(zip(domain.schema, kind, strict=True))
        found = tape(
            lambda bits: Client(epsilon, bits=bits).report(text, answers), residual=F(1, 10**4), most_runs=most_runs
        )
        return found.masses

    laws = {kind: law(kind) for kind in domain.kinds}
    pairs = [(f"{a} ~ {b}", laws[a], laws[b]) for a, b in itertools.combinations(domain.kinds, 2)]
    return [epsilon_audit(name, epsilon, pairs, unexplored=_unexplored(laws.values(), epsilon))]


def _unexplored(laws: Iterable[Chances], epsilon: Fraction) -> Fraction:
    """Laws known up to r prove a delta only up to r (1 + e^epsilon); more than 1 % of it would prove nothing."""
    missing = max(1 - sum(found.values(), F(0)) for found in laws)
    return min(missing * math.ceil(2 + math.exp(epsilon)), F(1, 100))


def found(oracle: WatchedCurator) -> Hashable:
    """What a procedure found, as an outcome."""
    (seen,) = oracle.seen
    assert isinstance(seen.result, Finding)
    value = seen.result.value
    return None if value["r"] is None else tuple(value["r"]), value["wrong"]


def chosen(oracle: WatchedCurator) -> Hashable:
    """The index of a choice, as an outcome."""
    return tuple(getattr(seen.result, "index", None) for seen in oracle.seen)


def checks_of(paths: Sequence[tuple[Path, Callable[[Path], Sequence[ExactAudit | TapeAudit]]]]) -> list[Check]:
    """Paths with their judges as lines of an audit."""
    return [Check(path.title, lambda path=path, judge=judge: judge(path)) for path, judge in paths]  # type: ignore[misc]
