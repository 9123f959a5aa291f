"""A sketch of the rows to plan a tree on, for when counts would be noise; and rows drawn from it.

A sketch is a released model, so growing a tree on rows drawn from it costs nothing; the classes of its leaves are then
asked of the true rows. Where second moments are known, rows are normal, with moments asked from near the mean
(``covariance.py``), and classes those of a logistic regression (``logistic.py``); else each class has its own mean
(``naive_bayes.py``).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.learn.coordinates import Approach
from dodona.learn.covariance import covariance_in
from dodona.learn.encoding import Feature
from dodona.learn.logistic import LogisticRegression
from dodona.learn.naive_bayes import GaussianNB
from dodona.learn.supervised import Floats
from dodona.learn.task import Task
from dodona.learn.tree import Attribute
from dodona.oracle import Oracle

DRAWN = 20_000
MOMENTS = Fraction(1, 2)  # of the sketch: for where the rows are; the rest for their classes


class Sketch(NamedTuple):
    """Drawn ``rows`` of scaled features, the ``chances`` of their classes, and the class a model ``decided`` on.

    Branches are planned on decisions: where chances differ and the answer does not, a tree has nothing to tell apart.
    """

    rows: Floats
    chances: Floats
    decided: NDArray[np.intp]


def sketched(oracle: Oracle, task: Task, share: Fraction) -> Sketch:
    """Rows drawn from what is asked of the oracle; always the same for the same answers."""
    part = replace(task, share=share)
    random = np.random.default_rng(0)  # of the search only: the sketch is public already
    if Approach.of(oracle, part).turned:
        model = LogisticRegression()
        model.learn(replace(task, share=share * (1 - MOMENTS)), oracle)
        mean, covariance = _moments(oracle, replace(task, share=share * MOMENTS))
        rows = snapped(random.multivariate_normal(mean, covariance, DRAWN, method="eigh"), task.features)
        chances = model.chances(rows)
        return Sketch(rows, chances, chances.argmax(axis=1))
    bayes = GaussianNB()
    bayes.learn(part, oracle)
    classes = random.choice(len(task.classes), DRAWN, p=bayes.class_prior_)
    spread = np.sqrt(bayes.var_[classes])
    rows = snapped(bayes.theta_[classes] + random.standard_normal(spread.shape) * spread, task.features)
    # Chances from the draw, not from the model: naive Bayes is far too sure of what it decides.
    return Sketch(rows, np.eye(len(task.classes))[classes], bayes.chances(rows).argmax(axis=1))


def _moments(oracle: Oracle, task: Task) -> tuple[Floats, Floats]:
    """Mean and covariance of the scaled features; what noise made negative is 0.

    They decide where the drawn rows are, and so where the tree is fine; a model tells classes apart with far less.
    """
    found = covariance_in(oracle, task.features, task.rows, task.share)
    ends = zip(found.features, task.features, strict=True)
    mean = np.array([(moved.middle - own.middle) / own.half for moved, own in ends])
    values, vectors = np.linalg.eigh(found.moments.matrix * found.inflation)
    return mean, (vectors * np.maximum(values, 0.0)) @ vectors.T


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
