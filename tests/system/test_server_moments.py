"""Other connections do not see when a question's work ended: timed attacks on twins, by the clock.

The adversary's best case: on the second table every question takes longer, and yet both tables' questions belong to the
same tick of the schedule (here without chance, so that it is the same tick each time). While one is at work, other
connections repeat the request, ask the next question, queue behind it, price, and look at every page; nothing they see,
and no time at which they see it, may tell the tables apart. AUC is the probability that a figure of the second table is
larger than one of the first, ties counting half: 1/2 is chance. The same without a clock, and so for every run, is in
``tests/unit/server/test_server_moments.py``.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import numpy as np
import pytest

from dodona.server.app import make_app
from dodona.server.settings import Pacer, Settings
from tests.support.servers import add_key, listening, write_survey
from tests.support.timed import SCHEMA, auc

TICK = 2.0
FAST, SLOW = 2.4, 3.2  # seconds at work; both are answered two ticks after their charge
BETWEEN = 2.8
EFFORT = {"epsilon": "0.001"}
WIDE = {"query": {"stack": [{"value": {"col": "age"}}] * 1000}, "effort": EFFORT}


@pytest.fixture
def adversaries(tmp_path, monkeypatch):
    """One on each of two servers of their own, over the same rows: work takes FAST on the one and SLOW on the other."""
    rng = np.random.default_rng(1)
    columns = {"age": rng.integers(0, 70, 100), "x": rng.uniform(0, 1000, 100), "smoker": rng.random(100) < 0.3}
    with ExitStack() as stack:
        made = []
        for name, seconds in (("fast", FAST), ("slow", SLOW)):
            folder = tmp_path / name
            folder.mkdir()
            survey = write_survey(folder, columns, SCHEMA, {"epsilon": 1000}, name="twin")
            keys = {"analyst": add_key(folder, "adversary", "1"), "curator": add_key(folder, "boss")}
            app = make_app(Settings((str(survey),), str(folder), audit=str(folder / "log"), rate=10_000, tick=TICK))
            (data,) = app._app.state.service.datasets
            slow_down(monkeypatch, data, seconds)
            made.append(Adversary(stack.enter_context(listening(app)), keys))
        yield made


def slow_down(monkeypatch, data, seconds):
    totals = data.table.engine.totals

    def slower(program):
        found = totals(program)
        time.sleep(seconds)
        return found

    monkeypatch.setattr(data.table.engine, "totals", slower)
    data.pacer = Pacer(TICK, lambda: 0.0)


class Adversary:
    """What one sees in a round, by name, as numbers; times in seconds from the first question."""

    def __init__(self, url, keys):
        self.seen = {}
        self._url, self._keys, self._round = url, keys, 0
        self._send("GET", "", "analyst"), self._send("GET", "", "curator")  # keys are hashed, shares granted
        self._post("price", {"question": "smoker", "effort": EFFORT})

    def _send(self, method, route, who="analyst", **more):
        """On a connection of its own."""
        headers = {"Authorization": f"Bearer {self._keys[who]}", **more.pop("headers", {})}
        address = f"{self._url}/v1/datasets/twin{route}"
        return httpx.request(method, address, headers=headers, timeout=60, verify=False, **more)

    def _post(self, route, body, who="analyst", **headers):
        sent = json.dumps(body).encode()
        return self._send(
            "POST", f"/{route}", who, content=sent, headers={"Content-Type": "application/json", **headers}
        )

    def _at(self, moment, name, look):
        time.sleep(max(0.0, self._start + moment - time.monotonic()))
        response = look()
        assert response.status_code in (200, 202), response.text
        self.seen[f"{name}: time"] = time.monotonic() - self._start
        return response.json()

    def ask(self):
        """The first question, a repeat of it, and the next question; and what every page shows between."""
        self._round += 1
        first = {"question": "age > 50", "effort": EFFORT}

        def once():
            return self._post("ask", first, **{"Idempotency-Key": f"round-{self._round}"})

        def another():
            return self._post("ask", {"question": "smoker", "effort": EFFORT})

        def price():
            return self._post("price", {"question": "smoker", "effort": EFFORT})

        with ThreadPoolExecutor(8) as pool:
            self._start = time.monotonic()
            given = pool.submit(self._at, 0.0, "answer", once)
            again = pool.submit(self._at, 0.5, "repeat", once)
            late = pool.submit(self._at, 2 * TICK + BETWEEN, "repeat after the moment", once)
            following = pool.submit(self._at, BETWEEN, "next question", another)
            offered = pool.submit(self._at, BETWEEN, "price", price)
            pages = {
                f"{who}'s {page or 'dataset'}": pool.submit(
                    self._at, BETWEEN, f"{who}'s {page or 'dataset'}", lambda p=page, w=who: self._send("GET", p, w)
                )
                for who, page in (("analyst", ""), ("analyst", "/ledger"), ("curator", "/ledger"))
            }
        assert given.result() == again.result() == late.result()
        self.seen["next question: number"] = following.result()["cost"]["seq"] - given.result()["cost"]["seq"]
        self.seen["price: left"] = offered.result()["cost"]["left"]
        for name, page in pages.items():
            shown = page.result()
            items = shown.get("items", [])
            self.seen[f"{name}: left"] = shown["left"]
            self.seen[f"{name}: charges"] = len(items)
            self.seen[f"{name}: last number"] = max((item["entry"] for item in items), default=0)
        return self.seen

    def queue(self):
        """More wide questions than are worked on at once; and a wide price, which must not queue behind them."""
        price = {**WIDE, "effort": {"epsilon": "0.002"}}
        with ThreadPoolExecutor(8) as pool:
            self._start = time.monotonic()
            sent = [
                pool.submit(self._at, 0.2 * i, f"wide question {i}", lambda: self._post("ask", WIDE)) for i in range(3)
            ]
            sent.append(pool.submit(self._at, 0.5, "wide price", lambda: self._post("price", price)))
        assert all(future.result() for future in sent)
        return self.seen

    def release(self):
        """A release while it is at work: its state, what is published, what is spent."""
        body = {"kind": "intervals", "settings": {"column": "age", "method": "tree"}, "effort": {"share": "0.01"}}

        def watch(moment, name):
            state = self._at(moment, f"release {name}", lambda: self._send("GET", "/releases", "curator"))["items"][0]
            found = self._at(moment, f"synopses {name}", lambda: self._send("GET", "/synopses"))["items"]
            shown = self._at(moment, f"dataset {name}", lambda: self._send("GET", ""))
            self.seen[f"release {name}: done"] = state["state"] == "done"
            self.seen[f"release {name}: asked"] = state["progress"]["asked"]
            self.seen[f"synopses {name}"] = len(found)
            self.seen[f"left {name}"] = shown["left"]

        self._start = time.monotonic()
        self._at(0.0, "start", lambda: self._post("releases", body, "curator"))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(watch, (BETWEEN, 2 * TICK + BETWEEN), ("between", "after")))
        assert self.seen["release after: done"]
        return self.seen


def rounds(adversaries, attack, count):
    """Every figure seen, as two lists: of the fast table and of the slow one, attacked at the same time."""
    found = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(count):
            found.append([dict(seen) for seen in pool.map(lambda one: getattr(one, attack)(), adversaries)])
    return {name: [[pair[which][name] for pair in found] for which in (0, 1)] for name in found[0][0]}


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["ask", "queue", "release"])
def test_figures_and_times_on_other_connections_are_within_chance(adversaries, attack):
    for name, (first, second) in rounds(adversaries, attack, 12).items():
        found, error = auc(first, second)
        medians = f"medians {np.median(first):.3f}, {np.median(second):.3f}"
        print(f"{name}: AUC {found:.2f}, chance 0.5 +- {error:.2f}; {medians}")
        assert abs(found - 0.5) < 4 * error, (name, found, error)
