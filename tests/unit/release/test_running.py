"""Running totals: paid for once, each period drawn once over all handles, forks, restarts and crashes, and nothing kept
but what was published.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.errors import AnswerLost, BadEffort, BadQuery, BudgetSpent, Unsupported
from dodona.mechanisms import DiscreteGaussian
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Request
from dodona.oracles.wire import procedure_of
from dodona.privacy.ledger.sqlite import SqliteLedger
from dodona.query.candidates import Running
from dodona.release.running import Spans, root_errors, tree_errors
from dodona.synopses.forest import Forest
from dodona.testing import seeded_curator

SCHEMA = dd.Schema({"day": dd.Date("2024-01-01", "2024-12-31"), "x": dd.Integer(0, 9)})
BUDGET = dd.Budget(epsilon=1, delta=1e-6)
EDGES = tuple(float(19_723 + 30 * k) for k in range(13))


def table(rows: int = 400, seed: int = 3, until: int = 366, **more: Any) -> dd.Table:
    rng = np.random.default_rng(seed)
    days = np.datetime64("2024-01-01") + np.sort(rng.integers(0, 366, rows))
    days = days[days < np.datetime64("2024-01-01") + until]
    stated = {"name": "visits", "population": "visits", "neighbours": "add-remove", "rows": rows} | more
    return dd.Table({"day": days, "x": np.zeros(len(days), dtype=int)}, stated.pop("schema", SCHEMA), **stated)


def opened(place: Any, *, create: bool = False, **more: Any) -> dd.Curator:
    return dd.Curator(table(**more), BUDGET, ledger=place, create=create)


def told(curator: dd.Oracle, periods: int, **settings: Any) -> list[float]:
    made = release.running(curator, "day", periods=periods, **{"share": Fraction(1, 2), "method": "tree"} | settings)
    plain = made.body.ranges.plain
    return [float(x) for x in plain]


def in_a_fork(work: Any) -> Any:
    """What ``work`` gives in a forked child, as JSON."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        try:
            os.write(theirs, json.dumps(work()).encode())
            os._exit(0)
        finally:
            os._exit(255)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(said)


# -- paid once, drawn once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["root", "tree"])
def test_all_periods_are_paid_for_once_and_go_on_as_rows_arrive(tmp_path, method):
    place = tmp_path / "l"
    first = opened(place, create=True, until=60)
    start = told(first, 2, method=method)
    paid = first.ledger.spent()
    assert 0.49 * BUDGET.capacity < paid <= math.ceil(BUDGET.capacity / 2) + 1
    first.ledger.close()
    again = opened(place, until=200)  # rows have arrived since
    more = told(again, 6, method=method)
    assert again.ledger.spent() == paid
    assert told(again, 2, method=method) == start
    values = [again.run(part(method, t), share=Fraction(1, 2)).value for t in range(6)]
    assert values == [again.run(part(method, t), share=Fraction(1, 2), request_id=f"{t} x").value for t in range(6)]
    exact = told(dd.Exact(table(until=200)), 6, method=method)
    assert max(abs(a - b) for a, b in zip(more, exact, strict=True)) < 150
    again.ledger.verify()
    assert again.ledger.spent() == paid


def part(method: str, period: int, again: int = 0) -> Running:
    spans = Spans.of(SCHEMA, "day", "month")
    plan = release.plan_running(seeded_curator(table(), BUDGET, 1), "day", method="tree", share="1/2")
    ways = 0 if method == "root" else int(plan[0].why.rstrip(".").rpartition(" ")[2])
    return Running("day", spans.edges, ways, period, again)


def test_no_name_of_a_request_and_no_handle_draws_a_period_again(tmp_path):
    place = tmp_path / "l"
    curator = opened(place, create=True)
    asked = Running("day", EDGES, 0, 3)
    first = curator.run(asked, share="0.1", request_id="a").value
    same = [curator.run(asked, share="0.1", request_id=name).value for name in ("a", "b", None)]
    same.append(opened(place).run(asked, share=Fraction(1, 10)).value)
    same += [in_a_fork(lambda: curator.run(asked, share="0.1").value) for _ in range(2)]
    said: list[Any] = []
    threads = [threading.Thread(target=lambda: said.append(curator.run(asked, share="0.1").value)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(value == first for value in [*same, *said])
    assert len(said) == 6
    before = curator.ledger.spent()
    fresh = in_a_fork(lambda: curator.run(Running("day", EDGES, 0, 4), share="0.1").value)
    assert curator.run(Running("day", EDGES, 0, 4), share="0.1").value == fresh
    assert curator.ledger.spent() == before
    assert curator.run(asked, share="0.2").value != first  # another effort is another series, and pays
    assert curator.ledger.spent() > before


@pytest.mark.parametrize("seed", range(2))
def test_a_model_of_handles_forks_restarts_and_faults(tmp_path, seed):
    """Whatever is asked in whatever order, by whomever: one value for each part, and one payment for each series."""
    rng = np.random.default_rng(seed)
    place = tmp_path / "l"
    handles = [opened(place, create=True)]
    known: dict[tuple[int, int], Any] = {}
    lost: set[tuple[int, int]] = set()
    paid: dict[int, int] = {}
    for _ in range(40):
        act = rng.integers(0, 6)
        handle = handles[rng.integers(len(handles))]
        ways, period = int(rng.choice([0, 3])), int(rng.integers(0, 12))
        asked, key = Running("day", EDGES, ways, period), (ways, period)
        if act == 0:
            handles.append(opened(place, until=int(rng.integers(1, 367))))  # other rows by now
            continue
        if act == 1 and len(handles) > 1:
            handles.pop(rng.integers(len(handles))).ledger.close()
            continue
        before = handle.ledger.spent()
        try:
            if act == 2:
                value = in_a_fork(lambda h=handle, a=asked: _value(h, a))
                if value is None:
                    raise AnswerLost
            elif act == 3 and key not in known:
                value = _value(handle, asked, fault=True)
                raise AnswerLost
            else:
                value = handle.run(asked, share="0.2", request_id=str(rng.integers(5)) + "r").value
        except AnswerLost:
            assert key not in known
            lost.add(key)
        else:
            assert key not in lost
            assert known.setdefault(key, value) == value
        spent = handle.ledger.spent() - before
        assert spent == 0 or ways not in paid
        paid.setdefault(ways, spent)
        assert paid[ways] > 0
    assert handles[0].ledger.spent() == sum(paid.values())
    entries = [entry for entry in handles[0].ledger.entries(1, 5000) if entry.kind == "charge"]
    assert len({(entry.analyst, entry.request_id) for entry in entries}) == len(entries)
    assert len(entries) == len(paid) + len(set(known) | lost)
    handles[0].ledger.verify()


def _value(curator: dd.Curator, asked: Running, *, fault: bool = False) -> Any:
    real = curator._during
    if fault:
        curator._during = _break
    try:
        return curator.run(asked, share="0.2").value
    except AnswerLost:
        return None
    finally:
        curator._during = real


def _break(work: Any) -> Any:
    work()
    raise OSError("after the noise was drawn, before it was kept")


def dies(place: Any, point: str, number: int) -> None:
    """Asks for a period in a forked child, killed right after its ``number``-th call of ``point``."""
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        return
    try:
        curator, left = opened(place), [number]
        owner: Any = curator._table.engine if point == "totals" else curator.ledger
        real = getattr(owner, point)

        def dying(*args: Any, **stated: Any) -> Any:
            said = real(*args, **stated)
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return said

        setattr(owner, point, dying)
        curator.run(Running("day", EDGES, 0, 0), share="0.2")
    finally:
        os._exit(0)


@pytest.mark.parametrize(
    ("point", "number", "kept"),
    [("charge", 1, "nothing drawn"), ("charge", 2, "lost"), ("totals", 1, "lost"), ("store_answer", 1, "kept")],
)
def test_a_kill_gives_no_budget_back_and_draws_nothing_twice(tmp_path, point, number, kept):
    place = tmp_path / "l"
    opened(place, create=True).ledger.close()
    dies(place, point, number)
    curator, asked = opened(place), Running("day", EDGES, 0, 0)
    paid = curator.ledger.spent()
    assert paid > 0  # the series is paid for, whatever came after
    if kept == "lost":
        with pytest.raises(AnswerLost):
            curator.run(asked, share="0.2")
        assert curator.run(Running("day", EDGES, 0, 1), share="0.2").cost.amount == 0
    else:
        curator.run(asked, share="0.2")
    assert curator.ledger.spent() == paid
    curator.ledger.verify()


def test_a_lost_period_is_drawn_anew_for_its_own_price_once(tmp_path):
    curator = opened(tmp_path / "l", create=True)
    told(curator, 2, method="root")
    whole = curator.ledger.spent()
    real, curator._during = curator._during, _break
    with pytest.raises(AnswerLost):
        told(curator, 3, method="root")
    curator._during = real
    with pytest.raises(AnswerLost):
        told(curator, 3, method="root")
    assert curator.ledger.spent() == whole
    found = told(curator, 3, method="root", renew=1)
    one = curator.ledger.spent() - whole
    norm = sum(Fraction(math.comb(2 * k, k), 4**k) ** 2 for k in range(12))
    assert one / whole == pytest.approx(float(1 / norm), rel=1e-4)  # one coordinate of a vector of this norm
    assert told(curator, 3, method="root", renew=2) == found
    assert curator.ledger.spent() == whole + one
    note = [entry.detail for entry in curator.ledger.entries(1, 100) if "again 1" in (entry.request_id or "")]
    assert len(note) == 1


def test_what_was_begun_otherwise_is_refused_and_costs_nothing(tmp_path):
    place = tmp_path / "l"
    curator = opened(place, create=True)
    told(curator, 1)
    paid = curator.ledger.spent()
    other = dd.Schema({**SCHEMA, "x": dd.Integer(0, 10)})
    with pytest.raises(Unsupported, match="goes on as it began"):
        told(opened(place, schema=other), 2)
    assert curator.ledger.spent() == paid


def test_a_series_that_does_not_fit_leaves_no_trace(tmp_path):
    curator = opened(tmp_path / "l", create=True)
    curator.ask("x > 3", share="0.6")
    before = curator.ledger.head()
    with pytest.raises(BudgetSpent):
        told(curator, 3)
    assert curator.ledger.head() == before


# -- what is told -----------------------------------------------------------------------------------------------------


def test_every_part_is_due_once_and_depends_on_rows_so_far():
    for periods in (1, 2, 5, 8, 9, 31):
        for ways in (0, 2, 3, 5, 40):
            edges = tuple(float(19_723 + k) for k in range(periods + 1))
            parts = [Running("day", edges, ways, t) for t in range(periods)]
            due = [place for one in parts for place in one.due]
            count = periods if not ways else sum(-(-periods // span) for span in parts[0].spans)
            assert sorted(due) == list(range(count))
    late = np.datetime64("2024-01-01") + np.array([0, 45, 100, 200, 340])
    full = dd.Exact(dd.Table({"day": late, "x": np.zeros(5, dtype=int)}, SCHEMA))
    early = dd.Exact(dd.Table({"day": late[:3], "x": np.zeros(3, dtype=int)}, SCHEMA))
    for ways in (0, 2, 3):
        for t in range(4):  # the first 120 days
            asked = Running("day", EDGES, ways, t)
            assert full.run(asked).value == early.run(asked).value


def test_without_noise_it_is_the_truth():
    visits = table()
    exact = dd.Exact(visits)
    for method in ("root", "tree"):
        made = release.running(exact, "day", periods=12, method=method)
        for _, below, margin in release.running_totals(made):
            assert margin == pytest.approx(0.5, abs=0.51)
            assert below == pytest.approx(round(below), abs=1e-6)
        question = "day >= '2024-03-01' AND day < '2024-07-01'"
        assert made.ask(question).total == pytest.approx(exact.ask(question).total)


def test_the_constants_are_the_published_ones():
    """1 + (ln T + gamma)/pi bounds the factor by which the worst running total errs more than one count (Fichtenberger,
    Henzinger and Upadhyay 2023); ours is within 5 % of it, below.
    """
    for periods in (64, 4096):
        published = 1 + (math.log(periods) + 0.5772156649) / math.pi
        norm = math.sqrt(
            sum((math.comb(2 * k, k) / 4**k) ** 2 for k in range(min(periods, 500)))
            + sum(1 / (math.pi * (k + 0.25)) for k in range(500, periods))
        )
        assert 0.95 * published < root_errors(periods, norm)[-1] < published


def test_predicted_errors_are_those_of_the_draws():
    rng = np.random.default_rng(4)
    for ways, errors in ((0, root_errors(20, 2.0)), (3, tree_errors(20, 3, 2.0)), (40, tree_errors(20, 40, 2.0))):
        edges = tuple(float(19_723 + k) for k in range(21))
        parts = [Running("day", edges, ways, t) for t in range(20)]
        off = []
        for _ in range(200):
            values = [
                {"totals": rng.normal(0, 2, len(one.due)).tolist(), "spread": [2.0] * len(one.due)} for one in parts
            ]
            off.append([_last(values[: t + 1], ways, edges) for t in (0, 6, 13, 18)])
        np.testing.assert_allclose(np.std(off, axis=0), errors[[0, 6, 13, 18]], rtol=0.2)


def _last(values: list[Any], ways: int, edges: tuple[float, ...]) -> float:
    from dodona.release.running import _by_root, _by_tree

    if not ways:
        totals = np.concatenate([value["totals"] for value in values])
        return float(_by_root(totals, np.full(len(totals), 2.0))[0][-1])
    return float(_by_tree(Spans("day", 1, edges), ways, values)[0][-1])


def test_periods_come_from_the_schema():
    spans = Spans.of(dd.Schema({"d": dd.Date("2023-11-15", "2024-03-02")}), "d", "month")
    assert [spans.told(k) for k in range(6)] == [
        "2023-11-15",
        "2023-12-01",
        "2024-01-01",
        "2024-02-01",
        "2024-03-01",
        "2024-03-03",
    ]
    weeks = Spans.of(dd.Schema({"d": dd.Date("2024-01-03", "2024-01-20")}), "d", "week")
    assert [weeks.told(k) for k in range(weeks.count)] == ["2024-01-03", "2024-01-08", "2024-01-15"]  # Mondays
    assert Spans.of(dd.Schema({"d": dd.Date("2023-11-15", "2024-03-02")}), "d", "year").count == 2
    assert Spans.of(dd.Schema({"d": dd.Date("2023-11-15", "2024-03-02")}), "d", "quarter").count == 2
    hours = Spans.of(dd.Schema({"t": dd.Timestamp("2024-01-01 00:30:00", "2024-01-01 23:59:59")}), "t", "hour")
    assert (hours.count, hours.told(1)) == (24, "2024-01-01T01:00:00")
    assert Spans.of(dd.Schema({"d": dd.Date("1990-01-01", "1990-12-31")}), "d", "month").over == 12
    with pytest.raises(Unsupported, match="at most 16,384"):
        Spans.of(dd.Schema({"d": dd.Date("1900-01-01", "2024-12-31")}), "d", "day")


def test_it_says_what_it_cannot_tell(tmp_path):
    curator = seeded_curator(table(), BUDGET, 5)
    made = release.running(curator, "day", periods=4, share="0.5")
    with pytest.raises(Unsupported, match="add AND day < '2024-05-01'"):
        made.ask("day >= '2024-02-01'")
    with pytest.raises(Unsupported, match="alone"):
        made.ask("x > 3 AND day < '2024-02-01'")
    made.save(tmp_path / "s")
    again = dd.load(tmp_path / "s")
    assert again.ask("day < '2024-03-01'") == made.ask("day < '2024-03-01'")
    assert release.running_totals(again) == release.running_totals(made)
    with pytest.raises(Unsupported, match="another synopsis"):
        release.running_totals(release.intervals(curator, "x", share="0.1"))
    for wrong in ({"every": "decade"}, {"every": "hour"}, {"periods": 0}, {"periods": 13}, {"method": "x"}):
        with pytest.raises(BadQuery):
            release.running(curator, "day", share="0.1", **wrong)
    with pytest.raises(BadQuery, match="a date or a time"):
        release.running(curator, "x", share="0.1")
    with pytest.raises(BadEffort, match="paid for together"):
        curator.perform(Request(Running("day", EDGES, 0, 0), Effort.of(tolerance="0.1")))


def test_people_of_several_rows_are_refused():
    visits = dd.Table(
        {"day": np.array(["2024-01-05"] * 3, dtype="datetime64[D]"), "who": np.array([1, 1, 2])},
        dd.Schema({"day": SCHEMA["day"]}),
        neighbours="add-remove",
        unit=dd.Unit("who", 2),
        rows=3,
    )
    with pytest.raises(Unsupported, match="one row, one person"):
        release.running(dd.Curator(visits, BUDGET), "day", share="0.1", periods=1)


def test_the_procedure_travels_as_plain_data():
    for asked in (Running("day", EDGES, 0, 3), Running("day", EDGES, 3, 2, 1)):
        assert procedure_of(json.loads(json.dumps(asked.to_json()))) == asked
    good = Running("day", EDGES, 0, 3).to_json()["running"]
    for wrong in ({"period": 12}, {"period": True}, {"branching": 1}, {"edges": [3, 2]}, {"again": -1}, {"more": 1}):
        with pytest.raises(BadQuery):
            procedure_of({"running": {**good, **wrong}})


# -- trees of any shape -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_a_forest_is_fitted_by_least_squares_and_says_what_its_noise_does(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 14))
    parents = np.array([-1, *(int(rng.integers(-1, k)) for k in range(1, count))])
    variances = rng.uniform(0.2, 3, count)
    inner = np.setdiff1d(np.arange(count), Forest(parents, variances).leaves)
    for node in inner:
        variances[node] = np.inf if rng.random() < 0.3 else variances[node]
    if len(inner) and rng.random() < 0.5:
        variances[rng.choice(inner)] = 0.0  # publicly known
    forest = Forest(parents, variances)
    paths = np.zeros((count, len(forest.leaves)))
    for column, leaf in enumerate(forest.leaves):
        node = leaf
        while node >= 0:
            paths[node, column] = 1
            node = parents[node]
    counts, counted, known = rng.normal(0, 5, count), np.isfinite(variances) & (variances > 0), variances == 0
    weighted = paths[counted].T / variances[counted]
    fixed = int(known.sum())
    system = np.block([[weighted @ paths[counted], paths[known].T], [paths[known], np.zeros((fixed, fixed))]])
    right = np.zeros((len(system), count))
    right[: len(forest.leaves), counted] = weighted
    right[len(forest.leaves) :, known] = np.eye(fixed)
    solved = (np.linalg.pinv(system) @ right)[: len(forest.leaves)]
    np.testing.assert_allclose(forest.fit(counts)[forest.leaves], solved @ counts, atol=1e-8)
    asked = rng.normal(size=(3, len(forest.leaves)))
    spread = np.where(counted, variances, 0.0)
    np.testing.assert_allclose(forest.deviations(asked), np.sqrt(np.square(asked @ solved) @ spread), atol=1e-9)
    np.testing.assert_allclose(forest.of_cells(len(forest.leaves)), np.sqrt(np.square(solved) @ spread), atol=1e-9)
    again = Forest.from_json(json.loads(json.dumps(forest.settings())))
    np.testing.assert_array_equal(again.variances, variances)


def test_noise_is_that_of_the_whole_vector():
    curator = seeded_curator(table(), BUDGET, 5)
    asked = Running("day", EDGES, 0, 0)
    finding = curator.run(asked, share=Fraction(1, 2))
    norm = sum(Fraction(math.comb(2 * k, k), 4**k) ** 2 for k in range(12))
    least = DiscreteGaussian.for_rho(norm, BUDGET.portion(Fraction(1, 2))).stddev
    assert finding.value["spread"][0] == pytest.approx(least, rel=1e-4)


def test_a_curator_in_memory_keeps_its_series_too():
    ledger = SqliteLedger.open(None, BUDGET, atoms=1, neighbours="add-remove", population="visits")
    one, two = (seeded_curator(table(), BUDGET, seed, ledger=ledger) for seed in (1, 2))
    assert told(one, 4) == told(two, 4)
