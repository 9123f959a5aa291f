"""How randomness is drawn: exact samplers, each with its exact probabilities, its privacy cost and its error.

One file per mechanism, with its proof note beside it (``laplace.py``, ``laplace.md``). All arithmetic that decides a
sample is on integers; bits come from the operating system (``SecureBits``). Nothing above this room is known here
except costs and errors.
"""

from dodona.mechanisms.bits import BadRandomness, Bits, SecureBits
from dodona.mechanisms.gaussian import DiscreteGaussian
from dodona.mechanisms.laplace import DiscreteLaplace
from dodona.mechanisms.response import RandomizedResponse
from dodona.mechanisms.selection import Exponential, PermuteAndFlip

__all__ = [
    "BadRandomness",
    "Bits",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "PermuteAndFlip",
    "RandomizedResponse",
    "SecureBits",
]
