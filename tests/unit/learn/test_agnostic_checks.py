"""scikit-learn's own checks for the learners of conditions."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dodona.learn.agnostic import AgnosticLearner
from tests.support.labels import ToldLabels


class ToldAgnostic(ToldLabels, AgnosticLearner):
    """Scikit-learn's checks state no classes."""


def expected_failures(estimator: Any) -> dict[str, str]:
    return {
        "check_classifier_not_supporting_multiclass": "refusals are Dodona's own exceptions, not ValueError",
        "check_classifiers_one_label": "one label in y: both must be stated, or the data would tell",
        "check_fit2d_1sample": "one row has one label: both must be stated",
        "check_classifiers_regression_target": "y is never judged by its values: a label not listed is missing",
    }


@parametrize_with_checks([ToldAgnostic(epsilon=100, bounds=(-1000, 1000))], expected_failed_checks=expected_failures)
def test_checks(estimator: Any, check: Any) -> None:
    if check.func.__name__ == "check_classifier_data_not_an_array":
        pytest.skip("compares two fits, and equally good members are chosen between at random")
    check(estimator)
