"""How randomness is drawn: exact samplers, each with its exact probabilities, its privacy cost and its error.

One file per mechanism, with its proof note beside it (``laplace.py``, ``laplace.md``). All arithmetic that decides a
sample is on integers; bits come from the operating system (``SecureBits``). Nothing above this room is known here
except costs and errors.
"""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
