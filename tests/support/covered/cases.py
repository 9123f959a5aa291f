"""Every kind of answer, release, learner and local randomiser, as a case of the law of margins.

A new kind joins by a case in one of these files; ``tests/statistical/test_second_promise.py`` fails while something
that states an error has none.
"""

from __future__ import annotations

from dodona.testing.margins import Covered
from tests.support.covered.answers import ANSWERS
from tests.support.covered.learners import LEARNERS
from tests.support.covered.local import LOCAL
from tests.support.covered.reading import READING
from tests.support.covered.registered import REGISTERED
from tests.support.covered.releases import RELEASES

CASES: tuple[Covered, ...] = (*ANSWERS, *READING, *RELEASES, *REGISTERED, *LEARNERS, *LOCAL)

SAID_BY_OTHERS = {
    "answer:Bar": "a number of an answer's, as a picture shows it, with the same margin",
    "answer:Price": "what an Answer to the same question would say: check_oracle compares the two",
    "answer:Expected": "what a price says of a printed column to come: that of an Estimate of it",
    "oracle:Exact": "adds no noise: it is what others are compared with",
    "oracle:Remote": "hands on what the server's curator said, number by number",
    "oracle:Remembering": "hands on what its curator told before, number by number, with its margin",
    "oracle:Mixed": "adds the public totals of a model to what the curator said of the data",
    "oracle:_Billed": "keeps bills, and changes neither question nor answer",
    "oracle:Counted": "counts questions, and changes neither question nor answer",
    "oracle:Recorded": "keeps bills, and changes neither question nor answer",
}
"""What states a margin that is another's."""

STATE_NOTHING = {
    "learner:ConjunctionLearner.tau_": "of the Stat oracle it asks",
    "learner:DecisionListLearner.tau_": "of the Stat oracle it asks",
    "learner:SulqPerceptron.stopped_": "that a noisy count was small, which proves nothing: its docstring says so",
}
"""Fitted attributes that sound like an error and state none of their own."""

BROKEN: dict[str, str] = {}
"""Kinds that break the law today, with figures; each is an expected failure that must fail."""
