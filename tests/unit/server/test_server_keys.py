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
