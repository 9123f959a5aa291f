"""Random bits: the one place where Dodona's noise touches a source of randomness.

Production draws from the operating system, per call, and keeps no generator state between calls: nothing to clone by
``fork`` and nothing to reseed (HOSTILE A20, R8). There is no seed here; the only door for seeds is ``dodona.testing``.
Below them, what is drawn of bits at once: whole numbers under a bound, and numbers rounded to one of two ends.
"""

from __future__ import annotations

import hashlib
from collections import deque
from os import urandom
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dodona.errors import DodonaError

Words = NDArray[np.uint64]

# Below this many words the system call is cheaper than setting up a cipher (measured: they cross near 4 KB).
_CIPHER_FROM = 512
_ZEROS = bytes(1 << 16)


class BadRandomness(DodonaError):
    """The source of randomness is stuck or repeats itself; nothing drawn from it may be used."""


class Bits(Protocol):
    """A source of independent uniform bits."""

    def words(self, n: int) -> Words:
        """``n`` independent uniform 64-bit words."""
        ...


class SecureBits:
    """The operating system's randomness, stretched by ChaCha20 (RFC 8439) for large draws under a key made for that
    draw.

    Each call is checked: a source that is constant, alternates, repeats a block, or repeats itself within the last
    few calls raises ``BadRandomness`` (HOSTILE V9). A sound source trips it with probability below 2^-80 a call.
    What is remembered for the check is a hash of past draws, never the draws; no bit of output depends on it.
    """

    def __init__(self) -> None:
        self._seen: deque[bytes] = deque(maxlen=16)
        startup = urandom(8192)
        if len({startup[at : at + 16] for at in range(0, 8192, 16)}) < 512 or len(startup) != 8192:
            raise BadRandomness("The system's source of randomness repeats itself.")

    def words(self, n: int) -> Words:
        if n < 0:
            raise ValueError(f"n must be non-negative. Got {n}.")
        if n < _CIPHER_FROM:
            # At least four words, so that the check has something to look at; the surplus is thrown away.
            return np.frombuffer(self._entropy(8 * max(n, 4)), dtype="<u8")[:n]
        return _stretch(self._entropy(48), n)

    def _entropy(self, size: int) -> bytes:
        raw = urandom(size)
        if len(raw) != size or raw[:8] == raw[8:16] == raw[16:24] or raw[:16] == raw[16:32]:
            raise BadRandomness("The system's source of randomness is stuck.")
        digest = hashlib.blake2b(raw[:32], digest_size=16).digest()
        if digest in self._seen:
            raise BadRandomness("The system's source of randomness repeats itself.")
        self._seen.append(digest)
        return raw


def _stretch(seed: bytes, n: int) -> Words:
    """``n`` words of ChaCha20 key stream; ``seed`` is a 32-byte key and a 16-byte counter block, fresh for this
    call.
    """
    # Imported on first use: it costs more than all the rest of this room, and a price or a plan draws nothing.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    # The first four bytes of the block are ChaCha20's block counter: zero leaves room for 256 GB before it wraps.
    stream = Cipher(algorithms.ChaCha20(seed[:32], bytes(4) + seed[36:48]), mode=None).encryptor()
    out = np.empty(8 * n, dtype=np.uint8)
    for start in range(0, out.size, len(_ZEROS)):
        piece = out[start : start + len(_ZEROS)]
        stream.update_into(_ZEROS[: piece.size], piece.data)
    return out.view("<u8")


def below(bound: int, n: int, bits: Bits) -> NDArray[np.int64]:
    """``n`` independent integers, each exactly uniform on 0..bound-1, for 1 <= ``bound`` <= 2^63.

    The top b = bit_length(bound - 1) bits of a word, rejected while >= ``bound``: no modulus, hence no bias.
    """
    if not 1 <= bound <= 1 << 63:
        raise ValueError(f"bound must lie between 1 and 2^63. Got {bound}.")
    width = (bound - 1).bit_length()
    if width == 0:
        return np.zeros(n, dtype=np.int64)
    shift = np.uint64(64 - width)
    out = (bits.words(n) >> shift).view(np.int64)
    again = np.flatnonzero(out >= bound) if bound != 1 << width else np.empty(0, dtype=np.intp)
    while again.size:
        fresh = (bits.words(again.size) >> shift).view(np.int64)
        out[again] = fresh
        again = again[fresh >= bound]
    return out


def integer(width: int, bits: Bits) -> int:
    """One uniform integer of ``width`` bits, any width."""
    words: list[int] = bits.words(-(-width // 64)).tolist()
    surplus = 64 * len(words) - width
    value = words.pop() if words else 0
    while words:
        value = value << 64 | words.pop()
    return value >> surplus


def integer_below(bound: int, bits: Bits) -> int:
    """One integer exactly uniform on 0..bound-1, for any ``bound`` >= 1, by rejection."""
    if bound < 1:
        raise ValueError(f"bound must be at least 1. Got {bound}.")
    width = (bound - 1).bit_length()
    while True:
        value = integer(width, bits)
        if value < bound:
            return value


Whole = NDArray[np.int64]


def below_each(bounds: Whole, bits: Bits) -> Whole:
    """For each bound b in 1..2^62 an integer exactly uniform on 0..b-1: top bits of a word, rejected while >= b."""
    flat = np.ascontiguousarray(bounds, dtype=np.int64).ravel()
    if flat.size and flat.min() < 1:
        raise ValueError("bounds must be positive.")
    width = np.zeros(flat.shape, dtype=np.uint64)
    for shift in (32, 16, 8, 4, 2, 1):  # the bit length of b - 1, without floats
        wide = (flat - 1) >> width.view(np.int64) >= 1 << shift
        width[wide] += np.uint64(shift)
    width += (flat > 1).astype(np.uint64)
    shifts = np.uint64(64) - np.maximum(width, np.uint64(1))
    out = (bits.words(flat.size) >> shifts).view(np.int64)
    again = np.flatnonzero(out >= flat)
    while again.size:
        out[again] = (bits.words(again.size) >> shifts[again]).view(np.int64)
        again = again[out[again] >= flat[again]]
    return out.reshape(np.shape(bounds))


def round_to_ends(values: Whole, low: Whole, high: Whole, bits: Bits) -> Whole:
    """0 (low) or 1 (high) for each value in low..high, high > low, with the mean kept."""
    return (below_each(np.broadcast_to(high - low, values.shape), bits) < values - low).astype(np.int64)
