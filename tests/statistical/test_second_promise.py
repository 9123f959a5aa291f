"""The second promise: every margin that is shown holds as often as it says, is not idle, and ends where its class does.

``tests/support/covered`` lists a case for every kind of answer, release, learner and local randomiser; the law itself
is ``dodona.testing.margins``. What states an error and has no case fails here, so a new kind joins by being registered.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dodona import learn
from dodona.errors import Unsupported
from dodona.learn._learner import NO_MARGIN, Learner
from dodona.mechanisms.mechanism import registered_mechanisms
from dodona.oracles import answer, rows
from dodona.oracles.exact import Exact
from dodona.oracles.oracle import Oracle
from dodona.oracles.view import Front
from dodona.testing.margins import AXES, CONFIDENCES, Asked, Covered, Told, World, check_margins, judge, worlds
from tests.support.covered.answers import asked, curator
from tests.support.covered.cases import BROKEN, CASES, SAID_BY_OTHERS, STATE_NOTHING
from tests.support.covered.tables import people

REPOSITORY = Path(__file__).parents[2]
STATED = re.compile(r"(error|margin|gap|tau|bound|advantage|spread|stddev|stopped)\w*_$")
"""How a fitted attribute that states an error is called."""


def marked(case: Covered, why: str | None, *more: Any) -> Any:
    """A kind that is known to break the law must go on breaking it until it is mended and struck off the list."""
    marks = [pytest.mark.xfail(reason=why, strict=True, raises=AssertionError)] if why else []
    marks += [pytest.mark.slow] if case.slow else []
    name = "-".join(re.sub(r"[^\w.]+", "_", str(one)) for one in (case.kind, *more))
    return pytest.param(case, *more, marks=marks, id=name)


@pytest.mark.parametrize("case", [marked(case, BROKEN.get(case.kind)) for case in CASES])
def test_a_margin_holds_as_often_as_it_says(case: Covered) -> None:
    check_margins(case)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "world"),
    [marked(case, BROKEN.get(case.kind), world) for case in CASES for world in worlds(case.fixed)],
)
def test_a_margin_holds_in_every_world(case: Covered, world: World) -> None:
    check_margins(case, world, runs=case.full_runs)


# -- nobody is left out -----------------------------------------------------------------------------------------------


@cache
def covered() -> frozenset[str]:
    return frozenset(name for case in CASES for name in case.covers)


def concrete(kind: type) -> list[type]:
    """All classes that derive from it and can be made."""
    found = [own for own in kind.__subclasses__() if own.__module__.startswith("dodona.")]
    return [own for own in found if not inspect.isabstract(own)] + [more for own in found for more in concrete(own)]


def test_every_kind_of_synopsis_is_under_the_law() -> None:
    from dodona.oracles.synopsis import Body

    for name in learn_rooms("release") + learn_rooms("synopses"):
        __import__(name)
    kinds = {f"synopsis:{kind.kind}" for kind in concrete(Body) if hasattr(kind, "kind")}
    assert len(kinds) >= 13
    assert kinds <= covered()


def test_every_release_is_under_the_law() -> None:
    from dodona import release

    made = [getattr(release, name) for name in release.__all__]
    published = [f"release:{one.__name__}" for one in made if inspect.signature(one).return_annotation == "Synopsis"]
    assert len(published) >= 10
    assert {one for one in published if one != "release:load"} <= covered()


def test_every_mechanism_is_under_the_law() -> None:
    own = [kind for kind in registered_mechanisms() if kind.__module__.startswith("dodona.mechanisms.")]
    assert len(own) >= 8
    assert {f"mechanism:{kind.name}" for kind in own} <= covered()


def test_every_answer_that_states_a_margin_is_under_the_law() -> None:
    told = [
        one for room in (answer, rows) for one in vars(room).values() if is_dataclass(one) and isinstance(one, type)
    ]
    stating = {f"answer:{one.__name__}" for one in told if {"margin", "tau"} & {own.name for own in fields(one)}}
    assert {"answer:Answer", "answer:Selection", "answer:Estimate"} <= stating
    assert stating <= covered() | set(SAID_BY_OTHERS)


def test_every_oracle_is_under_the_law() -> None:
    for name in learn_rooms("oracles"):
        __import__(name)
    watched = ("dodona.audit.", "dodona.testing.")  # those are made to be attacked
    there = {
        f"oracle:{k.__name__}" for k in concrete(Oracle) if k is not Front and not k.__module__.startswith(watched)
    }
    assert len(there) >= 8
    assert there <= covered() | set(SAID_BY_OTHERS)


def learn_rooms(room: str) -> list[str]:
    """The modules of a room."""
    place = REPOSITORY / "src" / "dodona" / room
    files = [path.relative_to(REPOSITORY / "src").with_suffix("") for path in sorted(place.rglob("*.py"))]
    return [".".join(path.parts).removesuffix(".__init__") for path in files]


def test_every_error_a_learner_states_is_under_the_law() -> None:
    stating = set()
    for path in (REPOSITORY / "src" / "dodona" / "learn").rglob("*.py"):
        for owner in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ClassDef)):
            written = [n for n in ast.walk(owner) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
            stating |= {f"learner:{owner.name}.{one.attr}" for one in written if STATED.search(one.attr)}
    assert "learner:KMeans.centre_error_" in stating
    assert stating <= covered() | set(STATE_NOTHING)


def test_a_learner_that_states_no_error_says_so() -> None:
    """Coefficients, components and rates are shown too: with a margin that the law judges, or with these words."""
    stating = {name.removeprefix("learner:").partition(".")[0] for name in covered() if name.startswith("learner:")}
    kinds = [kind for name in learn.__all__ if isinstance(kind := getattr(learn, name), type)]
    learners = [kind for kind in kinds if issubclass(kind, Learner)]
    assert len(learners) >= 14
    for kind in learners:
        assert kind.states_errors == (kind.__name__ in stating), kind
    fitted = learn.LogisticRegression(max_iter=2).fit(Exact(people(World(rows=300))), "smoker")
    assert NO_MARGIN in str(fitted)


def test_nothing_is_covered_that_is_not_there() -> None:
    """A case for what was removed or renamed would go on passing in its old name."""
    listed = {name for name in covered() if name.startswith("learner:")}
    for name in listed:
        owner = name.removeprefix("learner:").partition(".")[0]
        assert hasattr(learn, owner) or owner == "Stat", name
    assert all(reason for reason in (*SAID_BY_OTHERS.values(), *STATE_NOTHING.values()))
    assert set(BROKEN) <= {case.kind for case in CASES}


def test_kinds_have_names_of_their_own() -> None:
    assert len({case.kind for case in CASES}) == len(CASES)


# -- the law itself ---------------------------------------------------------------------------------------------------

SOUND = next(case for case in CASES if case.kind == "counts by key, Laplace")


def wrong(factor: float) -> Covered:
    def tell(made: Any, truth: Any, question: Any, confidence: float) -> Told:
        told = asked(made, truth, question, confidence)
        return replace(told, margins=told.margins * factor)

    return replace(SOUND, tell=tell)


@pytest.mark.parametrize(("factor", "said"), [(0.7, "covered"), (3.0, "idle")])
def test_a_margin_of_another_size_breaks_the_law(factor: float, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_margins(wrong(factor))


def test_a_claim_of_proof_that_answers_do_not_make_breaks_the_law() -> None:
    def tell(*about: Any) -> Told:
        return replace(asked(*about), proven=False)

    with pytest.raises(AssertionError, match="do not say so"):
        check_margins(replace(SOUND, tell=tell))


def test_an_answer_outside_the_class_breaks_the_law() -> None:
    with pytest.raises(AssertionError, match="outside its class"):
        check_margins(replace(SOUND, outside=("age > 3",), runs=2))


def test_a_release_that_is_never_made_breaks_the_law() -> None:
    def refuses(*_: Any) -> Any:
        raise Unsupported("never")

    assert judge(replace(SOUND, make=refuses), SOUND.quick).refused == "never"
    with pytest.raises(AssertionError, match="refuses its own quick world"):
        check_margins(replace(SOUND, make=refuses))


def test_a_question_of_the_class_that_is_refused_breaks_the_law() -> None:
    def refuses(*_: Any) -> Told:
        raise Unsupported("not this one")

    with pytest.raises(AssertionError, match="refuses a question of its class"):
        check_margins(replace(SOUND, tell=refuses))
    assert not judge(replace(SOUND, tell=refuses), replace(SOUND.quick, missing="some")).faults()


def test_one_question_in_many_that_is_never_covered_is_found() -> None:
    def tell(made: Any, truth: Any, question: Any, confidence: float) -> Told:
        told = asked(made, truth, question, confidence)
        return replace(told, errors=np.where(np.arange(len(told.errors)) == 7, 1e9, told.errors))

    honest = Covered("x", (), people, curator, tell, (Asked(SOUND.inside[0].questions),), quick=SOUND.quick, runs=20)
    assert not judge(replace(honest, tell=asked), honest.quick).faults()
    assert judge(honest, honest.quick).faults()


def test_worlds_meet_every_two_levels_of_every_two_axes() -> None:
    listed = worlds()
    for a, b in ((a, b) for a in AXES for b in AXES if a < b):
        assert {(getattr(w, a), getattr(w, b)) for w in listed} == {(x, y) for x in AXES[a] for y in AXES[b]}
    assert len(CONFIDENCES) == 3
    assert all(world.unit is False for world in worlds({"unit": False}))


# -- the page of margins ----------------------------------------------------------------------------------------------


def page_rows() -> dict[str, list[str]]:
    """Of the page's table, by kind."""
    lines = (REPOSITORY / "docs" / "margins.md").read_text("utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {own[0]: own[1:] for own in cells if own[0] != "kind"}


def test_the_page_of_margins_has_a_row_for_every_kind_and_no_other() -> None:
    assert set(page_rows()) == {case.kind for case in CASES}


def test_the_page_of_margins_says_what_the_law_finds() -> None:
    kind = "counts by key, Laplace"
    found = judge(SOUND, SOUND.quick)
    assert page_rows()[kind][3:6] == [f"{line.least:.3g}" for line in found.lines]


def test_the_page_of_margins_calls_proven_what_is() -> None:
    for case in CASES:
        assert page_rows()[case.kind][0] in (("proven",) if case.proven else ("proven", "estimated")), case.kind
