from dodona.learn.sq.rules import ConjunctionLearner as ConjunctionLearner
from dodona.learn.sq.rules import DecisionListLearner as DecisionListLearner
from dodona.learn.sq.rules import WeakLearner as WeakLearner
from dodona.learn.sq.stat import Hypothesis as Hypothesis
from dodona.learn.sq.stat import stat as stat
