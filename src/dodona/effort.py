"""How hard to try: exactly one of tolerance, share, epsilon or rho, with a confidence for error bars.

There is no default: a privacy choice is always spelled out by the asker.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dodona.errors import BadEffort
from dodona.privacy.numbers import exact

_KINDS = ("tolerance", "share", "epsilon", "rho")
_LEAST_CONFIDENCE, _MOST_CONFIDENCE = Fraction(1, 100), 1 - Fraction(1, 10**9)


@dataclass(frozen=True)
class Effort:
    """``kind`` is one of tolerance, share, epsilon, rho; ``amount`` its exact value.

    tolerance: the answer's mean is within ``amount`` of the truth, with probability ``confidence``, at each coordinate
    (the tau of the statistical-query model). share: that fraction of the whole budget. epsilon: a pure guarantee.
    rho: a zero-concentrated one.
    """

    kind: str
    amount: Fraction
    confidence: float

    @property
    def whole(self) -> bool:
        """Whether it is all of the budget."""
        return self.kind == "share" and self.amount == 1

    @staticmethod
    def none() -> Effort:
        """For oracles that add no noise."""
        return Effort("none", Fraction(0), 1.0)

    @staticmethod
    def of(
        tolerance: object = None,
        share: object = None,
        epsilon: object = None,
        rho: object = None,
        confidence: object = 0.95,
    ) -> Effort:
        """The one effort that is given; none or two are refused."""
        given = [
            (kind, value)
            for kind, value in zip(_KINDS, (tolerance, share, epsilon, rho), strict=True)
            if value is not None
        ]
        if len(given) != 1:
            got = " and ".join(kind for kind, _ in given) or "none"
            raise BadEffort(f"exactly one of tolerance=, share=, epsilon= or rho= must be given. Got {got}.")
        kind, value = given[0]
        limits = {"share": {"most": Fraction(1)}, "tolerance": {"least": Fraction(1, 10**30), "most": Fraction(10**30)}}
        amount = exact(value, kind, **limits.get(kind, {}))
        sure = exact(confidence, "confidence", least=_LEAST_CONFIDENCE, most=_MOST_CONFIDENCE)
        return Effort(kind, amount, float(sure))
