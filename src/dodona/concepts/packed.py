"""Whole numbers and bits as short text, exact, for values that hold thousands of them and still travel as JSON."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery


def packed(values: NDArray[Any]) -> str:
    """64-bit whole numbers, least byte first, in base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<i8").tobytes()).decode("ascii")


def unpacked(text: Any) -> NDArray[np.int64]:
    """The inverse of ``packed``."""
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype="<i8").astype(np.int64)
    except (TypeError, ValueError, binascii.Error):
        raise BadQuery("packed numbers must be base64 of 64-bit whole numbers.") from None


def packed_bits(values: NDArray[np.bool_]) -> str:
    """Bits, row by row, filled up with zeros to whole 64-bit words."""
    flat = np.packbits(values.ravel())
    return packed(np.pad(flat, (0, -len(flat) % 8)).view("<i8"))


def unpacked_bits(text: Any, count: int) -> NDArray[np.bool_]:
    """The first ``count`` of the bits; refused where there are fewer, or whole words more."""
    bits = np.unpackbits(unpacked(text).astype("<i8").view(np.uint8))
    if not 0 <= len(bits) - count < 64:
        raise BadQuery("packed bits must be as many as are needed here.")
    return bits[:count].astype(np.bool_)
