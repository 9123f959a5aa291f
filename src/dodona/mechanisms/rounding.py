"""Whole numbers to one of two ends, unbiased: high with probability (x - low)/(high - low), exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits

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
