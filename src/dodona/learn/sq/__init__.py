"""Algorithms of the statistical-query literature, each written on STAT(p, tau) alone (``dodona.learn.stat``).

Each is also a scikit-learn classifier of two classes whose result is a row condition that prints as SQL.
"""

from dodona.learn.sq.conjunction import ConjunctionLearner as ConjunctionLearner
from dodona.learn.sq.decision_list import DecisionListLearner as DecisionListLearner
from dodona.learn.sq.hypothesis import Hypothesis as Hypothesis
from dodona.learn.sq.weak import WeakLearner as WeakLearner

__all__ = ["ConjunctionLearner", "DecisionListLearner", "Hypothesis", "WeakLearner"]
