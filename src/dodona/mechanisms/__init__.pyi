from dodona.mechanisms.bits import BadRandomness as BadRandomness
from dodona.mechanisms.bits import Bits as Bits
from dodona.mechanisms.bits import SecureBits as SecureBits
from dodona.mechanisms.gaussian import DiscreteGaussian as DiscreteGaussian
from dodona.mechanisms.laplace import DiscreteLaplace as DiscreteLaplace
from dodona.mechanisms.response import RandomizedResponse as RandomizedResponse
from dodona.mechanisms.selection import Exponential as Exponential
from dodona.mechanisms.selection import PermuteAndFlip as PermuteAndFlip
