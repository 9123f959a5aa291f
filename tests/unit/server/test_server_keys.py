import sqlite3
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from dodona.errors import BadEffort, Refused
from dodona.server.keys import KeyStore


@pytest.fixture
def store(tmp_path):
    store = KeyStore(tmp_path / "keys")
    yield store
    store.close()


def test_a_key_opens_until_it_is_revoked(store):
    key, token = store.add("ann", share="0.3")
    assert store.known(token) is None  # never seen by this process: it must be verified first
    assert store.verify(token) == key
    assert store.known(token) == key
    store.revoke(key.id)
    assert store.known(token) is None
    assert store.verify(token) is None


def test_another_process_revokes(store):
    key, token = store.add("ann", share="0.3")
    store.verify(token)
    other = KeyStore(store.path)
    other.revoke(key.id)
    other.close()
    assert store.known(token) is None


def test_a_share_changed_by_another_process_or_by_this_one_holds_at_once(store):
    _, token = store.add("ann", share="0.3")
    store.verify(token)
    other = KeyStore(store.path)
    other.add("ann", share="0.2")
    other.close()
    assert store.known(token).share == Fraction(1, 5)
    store.add("ann", share="0.1")
    assert store.known(token).share == Fraction(1, 10)


def test_only_hashes_are_stored(store):
    _, token = store.add("ann", share="0.3")
    secret = token.split("_", 2)[2]
    contents = store.path.read_bytes()
    assert secret.encode() not in contents
    assert token.encode() not in contents
    assert (store.path.stat().st_mode & 0o077) == 0
    with sqlite3.connect(store.path) as db:
        (salt, hashed) = db.execute("SELECT salt, hash FROM keys").fetchone()
    db.close()
    assert (len(salt), len(hashed)) == (16, 64)


def test_wrong_secrets_and_shapes_open_nothing(store):
    key, token = store.add("ann", share="0.3")
    flipped = token[:-1] + ("A" if token[-1] != "A" else "B")
    for guess in (flipped, f"ddn_{key.id}_", token + "x", token.upper(), "", "ddn_0000000000000000_" + "A" * 43):
        assert store.verify(guess) is None


def test_expiry(store):
    soon = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()
    _, past = store.add("ann", share="0.1", expires="2001-02-03")
    _, future = store.add("bob", share="0.1", expires="2999-01-01T00:00:00+02:00")
    _, brief = store.add("cyd", share="0.1", expires=soon)
    assert store.verify(past) is None
    assert store.verify(future) is not None
    assert store.verify(brief) is not None
    with pytest.raises(Refused):
        store.add("dee", share="0.1", expires="next week")


def test_shares_of_living_analysts_stay_within_one(store):
    store.add("ann", share="0.6")
    second, _ = store.add("bob", share="2/5")
    with pytest.raises(BadEffort, match="at most 1"):
        store.add("cyd", share="0.001")
    store.add("ann", share="0.6")  # a second key of ann's spends the same share
    store.revoke(second.id)
    store.add("cyd", share="0.4")


@pytest.mark.parametrize("share", ["0", "-1", "NaN", "1e400", "1.1", "", True, None])
def test_bad_shares(store, share):
    with pytest.raises(BadEffort):
        store.add("ann", share=share)


def test_names_and_roles(store):
    for name in ("", "a" * 65, "a\nb", "a\x00b"):
        with pytest.raises(Refused):
            store.add(name, share="0.1")
    with pytest.raises(Refused):
        store.add("ann", role="root", share="0.1")
    with pytest.raises(BadEffort):
        store.add("ann", role="curator", share="0.1")
    store.add("ann", role="curator")
    with pytest.raises(Refused, match="one role"):
        store.add("ann", share="0.1")
    odd = "'); DELETE FROM keys;--"
    store.add(odd, share="0.1")
    assert [key.analyst for key in store.all()] == ["ann", odd] or {k.analyst for k in store.all()} == {"ann", odd}


class Clock:
    """A clock that can be set."""

    def __init__(self):
        self.time = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.time.isoformat(timespec="seconds")


@pytest.mark.parametrize("restarted", ["not at all", "after closing", "after a crash"])
def test_an_expired_key_stays_expired_when_the_clock_goes_back(tmp_path, restarted):
    clock = Clock()
    store = KeyStore(tmp_path / "keys", clock)
    other = KeyStore(tmp_path / "keys", clock)
    _, token = store.add("ann", share="0.6", expires="2030-01-02")
    lasting = store.add("bob", share="0.4")[1]
    assert store.verify(token)
    assert other.verify(token)
    clock.time += timedelta(days=2)
    assert store.known(token) is None
    clock.time -= timedelta(days=3)
    if restarted != "not at all":
        if restarted == "after closing":
            store.close()
        store = KeyStore(tmp_path / "keys", clock)
    assert store.known(token) is None
    assert store.verify(token) is None
    assert other.known(token) is None
    assert store.verify(lasting)
    store.add("eve", share="0.5")  # what was given to an expired key is free, and stays free
    later = store.add("carl", share="0.1", expires="2030-01-03")[1]
    assert store.verify(later)


def test_an_expiry_that_passed_while_nobody_asked_is_seen_at_the_end_and_at_the_start(tmp_path):
    for closed in (False, True):
        clock, path = Clock(), tmp_path / f"keys {closed}"
        store = KeyStore(path, clock)
        _, token = store.add("ann", share="1", expires="2030-01-02")
        clock.time += timedelta(days=2)
        store.close() if closed else KeyStore(path, clock)
        clock.time -= timedelta(days=2)
        assert KeyStore(path, clock).verify(token) is None


def test_a_clock_that_was_ahead_ends_the_keys_of_its_time_and_no_later_ones(tmp_path):
    clock = Clock()
    store = KeyStore(tmp_path / "keys", clock)
    clock.time += timedelta(days=365 * 50)
    store.add("ann", share="0.1", expires="2030-06-01")
    store.now()
    clock.time -= timedelta(days=365 * 50)
    assert store.verify(store.add("bob", share="0.1", expires="2030-06-02")[1])


def test_a_store_made_before_the_clock_was_kept_still_opens(tmp_path):
    store = KeyStore(tmp_path / "keys")
    _, token = store.add("ann", share="0.3", expires="2999-01-01")
    store.close()
    with sqlite3.connect(tmp_path / "keys") as db:
        db.execute("DROP TABLE clock")
    db.close()
    assert KeyStore(tmp_path / "keys").verify(token)


def test_requests_write_nothing_while_no_key_expires(tmp_path):
    store = KeyStore(tmp_path / "keys")
    _, token = store.add("ann", share="0.3", expires="2999-01-01")
    store.add("late", share="0.1", expires="2020-01-01")
    store.verify(token)
    before = store._db.total_changes
    for _ in range(100):
        assert store.known(token)
    assert store._db.total_changes == before
