"""Random projection of an arrangement to fewer dimensions (Alda and Simon 2014, Theorem 8 and section C).

k signs s of a row become d' numbers, phi_i = clip(<R_i, s>, -B, B) with public random signs R (Achlioptas 2003: signs
do what the paper's normals do) and B = sqrt(k). Clipping stands for the paper's normalising to unit length: without it
the box of the d' numbers is no smaller than that of the k signs. A threshold's weights w are projected too, and

    S' = <R w, mean of phi>

takes the place of <w, mean of s>. Over the draw of R it is right up to a factor for ANY data: E <R_i, w> phi_i =
kappa <w, s>, kappa = E[T clip(T)]/k for T a sum of k fair signs, which does not depend on s. For a given R, what is
left of the margins is averaged over X_{f,0} and X_{f,1} (section 7), so that databases of Definition 5 see no error but
the noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.arrangement import Threshold
from dodona.concepts.bits import sign
from dodona.concepts.margins import CONFIDENCE, SAMPLES, Estimate, Levels, knapsack
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Query, Stack, Value

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Projection:
    """From ``conditions`` = k signs to ``dimension`` = d' numbers; ``seed`` names the public matrix, for ever."""

    conditions: int
    dimension: int
    seed: int = 0

    @property
    def bound(self) -> int:
        """B: one standard deviation of <R_i, s>, a whole number."""
        return max(1, round(math.sqrt(self.conditions)))

    @cached_property
    def matrix(self) -> NDArray[np.int8]:
        """R, d' x k, of signs, from SHAKE-256: no version of any library changes it."""
        number = self.dimension * self.conditions
        text = f"dodona projection 1\n{self.conditions} {self.dimension} {self.seed}"
        stream = hashlib.shake_256(text.encode()).digest(-(-number // 8))
        bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=number)
        return (1 - 2 * bits.astype(np.int8)).reshape(self.dimension, self.conditions)

    @cached_property
    def kept(self) -> float:
        """kappa = E[T clip(T, -B, B)]/k, T a sum of k fair signs."""
        k = self.conditions
        heads = np.arange(k + 1)
        logs = [math.lgamma(k + 1) - math.lgamma(h + 1) - math.lgamma(k - h + 1) - k * math.log(2) for h in heads]
        sums = 2.0 * heads - k
        return float((np.exp(logs) * sums * np.clip(sums, -self.bound, self.bound)).sum()) / k

    def query(self, conditions: Sequence[Expr]) -> Query:
        """The mean of phi, as one vector question to any oracle."""
        signs = tuple(map(sign, conditions))
        low, high = Literal(-float(self.bound)), Literal(float(self.bound))
        forms = [Call("dot", (*signs, *(Literal(float(entry)) for entry in row))) for row in self.matrix]
        return Stack(tuple(Value(Call("least", (Call("greatest", (form, low)), high))) for form in forms))

    def weights(self, rule: Threshold) -> Floats:
        """-R w: S' grows with <w, b>, as signs fall with bits."""
        columns = self.matrix[:, list(rule.places)].astype(np.float64)
        return -np.asarray(columns @ np.array(rule.weights, dtype=np.float64), dtype=np.float64)

    def apply(self, bits: NDArray[np.bool_]) -> Floats:
        """phi of rows of bits (n x k)."""
        signs = 1.0 - 2.0 * bits
        return np.clip(signs @ self.matrix.T.astype(np.float64), -self.bound, self.bound)

    def levels(self, rule: Threshold, *, samples: int = SAMPLES, confidence: float = CONFIDENCE) -> Levels:
        """E[S' | f = c] over uniform bits, by sampling X_{f,c}; the generator's seed is the projection's own.

        Intervals by Maurer and Pontil's empirical Bernstein bound, as in ``margins.py``; |S'| <= B |R w|_1.
        """
        sizes, low = [abs(w) for w in rule.weights], sum(w for w in rule.weights if w < 0)
        whole, least = sum(sizes), rule.least - low
        turned = np.array([w < 0 for w in rule.weights], dtype=np.bool_)
        generator = np.random.default_rng(self.seed)
        weights, found = self.weights(rule), []
        log = math.log(8 / (1 - confidence))
        reach = 2 * self.bound * float(np.abs(weights).sum())
        for most, opposite in ((least - 1, False), (whole - least, True)):
            if most < 0:
                found.append(Estimate(math.nan))
                continue
            bits = generator.random((samples, self.conditions)) < 0.5
            drawn = knapsack(sizes, min(most, whole), samples, generator)
            bits[:, list(rule.places)] = drawn ^ opposite ^ turned
            sums = self.apply(bits) @ weights
            off = math.sqrt(2 * float(sums.var(ddof=1)) * log / samples) + 7 * reach * log / (3 * (samples - 1))
            found.append(Estimate(float(sums.mean()), off))
        return Levels(found[0], found[1], samples, confidence)
