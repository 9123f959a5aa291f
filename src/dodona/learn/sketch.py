"""A sketch of the rows to plan a tree on, for when counts would be noise; and rows drawn from it.

A sketch is a released model, so growing a tree on rows drawn from it costs nothing; the classes of its leaves are then
asked of the true rows. Where second moments are known, rows are normal and their classes those of a logistic regression
(``logistic.py``); else each class has its own mean (``naive_bayes.py``).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.learn.coordinates import Approach
from dodona.learn.encoding import Feature
from dodona.learn.logistic import LogisticRegression
from dodona.learn.naive_bayes import GaussianNB
from dodona.learn.supervised import Floats
from dodona.learn.task import Task
from dodona.learn.tree import Attribute
from dodona.oracle import Oracle

DRAWN = 20_000


def sketched(oracle: Oracle, task: Task, share: Fraction) -> tuple[Floats, NDArray[np.intp]]:
    """Drawn rows of scaled features and the places of their classes; always the same for the same sketch."""
    part = replace(task, share=share)
    random = np.random.default_rng(0)  # of the search only: the sketch is public already
    if Approach.of(oracle, part).turned:
        model = LogisticRegression()
        space = model.learn(part, oracle)
        rows = snapped(random.multivariate_normal(space.centre, space.covariance, DRAWN, method="eigh"), task.features)
        sure = np.cumsum(model.chances(rows), axis=1)
        return rows, np.asarray((random.random((DRAWN, 1)) > sure[:, :-1]).sum(axis=1))
    bayes = GaussianNB()
    bayes.learn(part, oracle)
    classes = random.choice(len(task.classes), DRAWN, p=bayes.class_prior_)
    spread = np.sqrt(bayes.var_[classes])
    return snapped(bayes.theta_[classes] + random.standard_normal(spread.shape) * spread, task.features), classes


def snapped(rows: Floats, features: tuple[Feature, ...]) -> Floats:
    """Drawn rows as rows can be: within the bounds, and with one listed value each."""
    rows = np.clip(rows, -1.0, 1.0)
    for column in {feature.column for feature in features if feature.label is not None}:
        own = [i for i, feature in enumerate(features) if feature.column == column]
        rows[:, own] = np.eye(len(own))[rows[:, own].argmax(axis=1)]
    return rows


def cells_of(rows: Floats, features: tuple[Feature, ...], attribute: Attribute) -> NDArray[np.intp]:
    """The cell of an attribute that each drawn row is in: a number's bucket, or the likeliest of listed values."""
    own = [i for i, feature in enumerate(features) if feature.column == attribute.column]
    if attribute.edges:
        return attribute.codes(features[own[0]].decode(rows[:, own[0]]))
    if len(own) == 1:  # true or false, as one feature
        return (rows[:, own[0]] > 0).astype(np.intp)
    return np.asarray(rows[:, own].argmax(axis=1))
