"""Random words, and the health test that refuses a broken source (HOSTILE V9, V54)."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from dodona.mechanisms import BadRandomness, SecureBits, bits
from dodona.mechanisms.bits import below, integer, integer_below
from dodona.testing.oracles import SeededBits, TapeBits, TapeExhausted


@pytest.mark.parametrize("n", [0, 1, 2, 7, 511, 512, 513, 100_000])
def test_words_has_the_shape_asked_for_and_no_repeats(n):
    words = SecureBits().words(n)
    assert words.dtype == np.uint64
    assert words.shape == (n,)
    assert np.unique(words).size == n


@pytest.mark.parametrize("n", [100, 100_000])
def test_every_bit_is_fair(n):
    source = SecureBits()
    words = np.concatenate([source.words(n) for _ in range(100_000 // n)])
    ones = np.unpackbits(words.view(np.uint8)).reshape(words.size, 64).sum(axis=0)
    assert np.abs(ones - words.size / 2).max() < 6 * np.sqrt(words.size / 4)  # 64 bits, 6 sigma: 1e-7


def _cycle(period):
    stream = itertools.cycle(bytes(np.random.default_rng(period).integers(0, 256, period, dtype=np.uint8)))
    return lambda size: bytes(next(stream) for _ in range(size))


@pytest.mark.parametrize(
    "source", [bytes, lambda n: b"\xff" * n, _cycle(1), _cycle(3), _cycle(8), _cycle(16), _cycle(64)]
)
@pytest.mark.parametrize("n", [1, 3, 600, 100_000])
def test_v9_a_stuck_source_is_refused(monkeypatch, source, n):
    sound = SecureBits()
    monkeypatch.setattr(bits, "urandom", source)
    with pytest.raises(BadRandomness):
        SecureBits()
    with pytest.raises(BadRandomness):  # even where it breaks after start-up
        [sound.words(n) for _ in range(32)]


def test_v9_a_source_that_replays_a_good_block_is_refused(monkeypatch):
    block = bytes(np.random.default_rng(5).integers(0, 256, 1 << 16, dtype=np.uint8))
    source = SecureBits()
    monkeypatch.setattr(bits, "urandom", lambda size: block[:size])
    source.words(2)
    with pytest.raises(BadRandomness):
        source.words(2)


def test_v9_a_short_read_is_refused(monkeypatch):
    source = SecureBits()
    good = bits.urandom
    monkeypatch.setattr(bits, "urandom", lambda size: good(size - 1))
    with pytest.raises(BadRandomness):
        source.words(1)


_FORK = """
import os, sys
from dodona.mechanisms import SecureBits
source = SecureBits()
source.words(4); source.words(5000)
pipes = []
for child in range(4):
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        one = b"".join(source.words(1).tobytes() for _ in range(1000))
        with os.fdopen(write, "wb") as sink:
            sink.write(one + source.words(9000).tobytes())
        os._exit(0)
    os.close(write)
    pipes.append(os.fdopen(read, "rb"))
data = b"".join(pipe.read() for pipe in pipes)
words = {data[i:i + 8] for i in range(0, len(data), 8)}
assert len(data) == 8 * 40000 and len(words) == 40000, len(words)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_v54_forked_workers_share_no_word():
    subprocess.run([sys.executable, "-c", _FORK], check=True, timeout=60)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 8, 1000, (1 << 62) + 1, 1 << 63])
def test_below_stays_below_and_is_uniform(bound):
    drawn = below(bound, 20_000, SeededBits(bound % 97))
    assert drawn.min() >= 0
    assert int(drawn.max()) < bound
    if bound <= 8:
        counts = np.bincount(drawn, minlength=bound)
        assert np.abs(counts - 20_000 / bound).max() < 6 * np.sqrt(20_000 / bound)
    else:
        assert abs(drawn.astype(float).mean() / bound - 0.5) < 6 / np.sqrt(12 * 20_000)


def test_below_rejects_exactly_the_words_at_or_above_the_bound():
    top = 1 << 62  # 3 of 4 two-bit values are kept
    assert below(3, 2, TapeBits([3 * top, 2 * top, 3 * top, 1 * top])).tolist() == [1, 2]
    assert integer_below(3, TapeBits([3 * top, 3 * top, 0])) == 0


def test_integers_of_any_width():
    assert integer(0, TapeBits([])) == 0
    assert integer(3, TapeBits([(1 << 64) - 1])) == 7
    assert integer(128, TapeBits([1, 2])) == 2 << 64 | 1
    assert integer_below(1, TapeBits([])) == 0
    assert all(integer_below(10**40, SeededBits(i)) < 10**40 for i in range(50))


@pytest.mark.parametrize(
    "call", [lambda b: below(0, 1, b), lambda b: below(1 << 64, 1, b), lambda b: integer_below(0, b)]
)
def test_bad_bounds_are_refused(call):
    with pytest.raises(ValueError, match="bound must"):
        call(SeededBits(0))
    with pytest.raises(ValueError, match="non-negative"):
        SecureBits().words(-1)


def test_tape_ends():
    tape = TapeBits([1, 2])
    assert tape.words(2).tolist() == [1, 2]
    with pytest.raises(TapeExhausted):
        tape.words(1)
