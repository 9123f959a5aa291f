"""Response times tell nothing of rows: a distinguisher on timed pairs of adversarial questions stays within chance.

The adversary's best case is built in: two tables that differ in one row, and an engine that really takes longer on the
one than on the other. Answered as they are ready, a threshold on the time tells the tables apart; on the public
schedule it does not. AUC is the probability that a time from the second table is longer than one from the first.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dodona as dd
from dodona.server.app import make_app
from dodona.server.settings import Pacer, Settings
from tests.support.servers import add_key, in_thread, listening
from tests.support.timed import ADVERSARIAL, auc, write_twins


def test_the_detector_detects():
    rng = np.random.default_rng(0)
    found, error = auc(rng.normal(0, 1, 500), rng.normal(0.5, 1, 500))
    assert found > 0.5 + 4 * error
    found, error = auc(rng.normal(0, 1, 500), rng.normal(0, 1, 500))
    assert abs(found - 0.5) < 5 * error


class AtOnce(Pacer):
    """No schedule: what other servers do."""

    def hold(self, work):
        return work()


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_row_that_slows_the_engine_shows_only_without_the_schedule(tmp_path, monkeypatch, scheduled):
    """A leak by force: on the second table every question takes 0.25 s more, under a first tick of 1.5 s.

    So large, and so few pairs, that it shows on a busy machine too; it says nothing of leaks of milliseconds.
    """
    surveys = write_twins(tmp_path)
    key = add_key(tmp_path, "adversary", "1")
    app = make_app(
        Settings(tuple(map(str, surveys)), str(tmp_path), audit=str(tmp_path / "log"), rate=10_000, tick=1.5)
    )
    service = app._app.state.service
    second = next(data for data in service.datasets if data.name == "two")
    totals = second.table.engine.totals

    def slower(program):
        time.sleep(0.25)
        return totals(program)

    monkeypatch.setattr(second.table.engine, "totals", slower)
    if not scheduled:
        for data in service.datasets:
            data.pacer = AtOnce()
    with listening(app) as url:
        warmed(url, key)
        found, error = auc(*timed(url, key, 16 if scheduled else 20, 8 if scheduled else 1))
    if scheduled:
        assert abs(found - 0.5) < 5 * error  # by chance once in a million runs
    else:
        assert found > 0.5 + 4 * error  # the leak is real, and this detector sees it


def warmed(url, key):
    """Every question once to both tables, all at a time: an answer that waits for its moment keeps nobody else."""

    def ask(name, question):
        dd.connect(url, key=key, dataset=name).ask(question, epsilon="0.001")

    pairs = [(name, question) for name in ("one", "two") for question in ADVERSARIAL]
    with ThreadPoolExecutor(len(pairs)) as pool:
        list(pool.map(ask, *zip(*pairs, strict=True)))


def timed(url, key, pairs, clients):
    """Times of the same questions to both tables, in random order, from several clients at once."""

    def client(number):
        rng = np.random.default_rng(number)
        oracles = {name: dd.connect(url, key=key, dataset=name) for name in ("one", "two")}
        found = {"one": [], "two": []}
        for turn in range(pairs // clients):
            question = ADVERSARIAL[turn % len(ADVERSARIAL)]
            for name in rng.permutation(["one", "two"]):
                start = time.perf_counter()
                oracles[name].ask(question, epsilon="0.001")
                found[name].append(time.perf_counter() - start)
        return found

    with ThreadPoolExecutor(clients) as pool:
        results = list(pool.map(client, range(clients)))
    return [np.concatenate([found[name] for found in results]) for name in ("one", "two")]


@pytest.mark.parametrize(("pairs", "clients"), [(48, 8), pytest.param(10_000, 16, marks=pytest.mark.slow)])
def test_times_of_adversarial_questions_on_twins_are_within_chance(tmp_path, pairs, clients):
    surveys = write_twins(tmp_path)
    key = add_key(tmp_path, "adversary", "1")
    with in_thread(tmp_path, surveys, rate=100_000, running=100) as url:
        warmed(url, key)
        first, second = timed(url, key, pairs, clients)
    found, error = auc(first, second)
    print(f"pairs {len(first)}: AUC {found:.4f}, chance 0.5 +- {error:.4f}; medians {np.median(first):.4f} s, ", end="")
    print(f"{np.median(second):.4f} s")
    assert abs(found - 0.5) < 5 * error, (found, error)
    assert min(first.min(), second.min()) >= 0.1  # nothing leaves before the first tick
