import pytest

from dodona.server import service as limits
from dodona.server.guard import Problem
from dodona.server.service import Buckets, Running


def test_a_bucket_empties_and_fills():
    now = [0.0]
    buckets = Buckets(rate=2, burst=3, clock=lambda: now[0])
    for _ in range(3):
        buckets.take("a")
    with pytest.raises(Problem) as caught:
        buckets.take("a")
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "1")
    buckets.take("b")
    now[0] = 0.5
    buckets.take("a")
    assert buckets.empty("a")
    now[0] = 1000.0
    for _ in range(3):
        buckets.take("a")
    assert buckets.empty("a")


def test_invented_callers_fill_no_memory(monkeypatch):
    monkeypatch.setattr(limits, "MOST_CALLERS", 10)
    buckets = Buckets(1, 1)
    for caller in range(100):
        buckets.take(str(caller))
    assert len(buckets._levels) == 10


def test_places_are_given_back():
    running = Running(2)
    with running.one("a"), running.one("a"):
        with pytest.raises(Problem), running.one("a"):
            pass
        with running.one("b"):
            pass
    with running.one("a"):
        assert running._counts == {"a": 1}
    assert running._counts == {}
