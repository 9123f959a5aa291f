"""Kearns' statistical-query oracle ``stat``, and algorithms of its literature, each written on STAT(p, tau) alone.

Each algorithm is also a scikit-learn classifier of two classes whose result is a row condition that prints as SQL.
``stat`` needs nothing of scikit-learn; learners bring it with them.
"""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
