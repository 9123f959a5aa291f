"""How a count that is shown is read, given that it is shown.

Of a key with few people only large noise is ever seen, so a shown count is too high on average: by more than its own
deviation near the threshold. Given that it is shown, Y = c + X passes y with probability P(X >= y - c) / P(X >= T - c),
which grows with c since X is log-concave. So the c at which the count seen is neither too high nor too low for the
confidence form an interval that holds the true count with at least that confidence, *given that the key is shown*; and
the c at which it is exactly in the middle is below the truth as often as above it. Proof note: ``threshold.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Reading:
    """``log_above[i]``: ln P(X >= i - offset). ``fewest``: people that a key which is shown may have.

    ``early``: by chance, as often as ``often`` says, a key is shown by this one's noise and threshold in place of ours.
    """

    least: int
    offset: int
    log_above: NDArray[np.float64]
    fewest: int = 1
    early: Reading | None = None
    often: float = 0.0

    def passed(self, noisy: int, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(Y >= ``noisy`` | the key is shown) for each true count."""
        if self.early is None:
            return np.exp(np.minimum(self._log(noisy - counts) - self._log(self.least - counts), 0.0))
        lowest = min(self.least, self.early.least)
        return np.asarray(np.minimum(self._shown(noisy, counts) / self._shown(lowest, counts), 1.0))

    def _shown(self, noisy: int, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(the key is shown, with Y >= ``noisy``)."""
        own = np.exp(self._log(max(noisy, self.least) - counts))
        return own if self.early is None else (1 - self.often) * own + self.often * self.early._shown(noisy, counts)

    def interval(self, noisy: int, confidence: float) -> tuple[int, int, int]:
        """(lowest, middle, highest) true count; at least ``fewest``."""
        half = (1 - confidence) / 2
        counts = np.arange(max(self.fewest, noisy - self.offset), noisy + self.offset + 1, dtype=np.int64)
        at_least, at_most = self.passed(noisy, counts), 1 - self.passed(noisy + 1, counts)
        kept = counts[(at_least > half) & (at_most > half)]
        middle = counts[int(np.argmax(at_least >= 0.5))]
        if not len(kept):  # more noise than there can be at this confidence: the nearest that is possible
            return int(middle), int(middle), int(middle)
        return int(kept[0]), int(np.clip(middle, kept[0], kept[-1])), int(kept[-1])

    def _log(self, m: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(self.log_above[np.clip(m + self.offset, 0, len(self.log_above) - 1)])
