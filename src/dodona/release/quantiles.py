"""What a synopsis of ranges knows besides ranges, free of charge: quantiles, medians, the CDF, histograms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dodona.errors import Unsupported
from dodona.synopses.base import Synopsis
from dodona.synopses.ranges import Ranges

Floats = NDArray[np.float64]


def quantile(synopsis: Synopsis, fractions: float | Sequence[float]) -> float | Floats:
    """The values below which these fractions of the rows lie."""
    body = _ranges(synopsis)
    if isinstance(fractions, int | float):
        return body.quantile(fractions)
    return np.array([body.quantile(fraction) for fraction in fractions])


def median(synopsis: Synopsis) -> float:
    """The middle value."""
    return _ranges(synopsis).quantile(0.5)


def cdf(synopsis: Synopsis) -> tuple[Floats, Floats]:
    """(values, fractions of the rows below them), to be drawn as a curve."""
    return _ranges(synopsis).cdf()


def histogram(synopsis: Synopsis, bins: int = 20) -> tuple[Floats, Floats]:
    """(rows in each bin, ends of the bins), as ``numpy.histogram`` gives them."""
    return _ranges(synopsis).histogram(bins)


def _ranges(synopsis: Synopsis) -> Ranges:
    if not isinstance(synopsis.body, Ranges):
        raise Unsupported("quantiles come from a synopsis of ranges: make one with dodona.release.intervals.")
    return synopsis.body
