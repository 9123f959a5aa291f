"""Algorithms that end in a ``Synopsis``: published once, answering a class of questions for ever.

Files without an underscore are doors: one release each, with its plan beside it. The others are the workshop.
"""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
