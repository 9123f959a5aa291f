"""Dodona: ask, learn from and publish sensitive data with a proof of privacy.

A statistical query is data, an oracle is a trust model, an algorithm is a client of an oracle.
"""

from dodona._doors import open_doors

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = open_doors(__name__)
