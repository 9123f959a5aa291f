from dodona.learn.sq.base import Hypothesis as Hypothesis
from dodona.learn.sq.rules import ConjunctionLearner as ConjunctionLearner
from dodona.learn.sq.rules import DecisionListLearner as DecisionListLearner
from dodona.learn.sq.stat import stat as stat
from dodona.learn.sq.weak import WeakLearner as WeakLearner
