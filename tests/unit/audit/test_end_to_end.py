"""Whole paths on every small table: real curators are proved, broken copies are refuted; the command line says so."""

import json
import sys
from dataclasses import replace
from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest
from typer.testing import CliRunner

import dodona as dd
from dodona.audit.end_to_end import Path, chosen, finite_path, noise_drawn, noisy_path, questions_path, report_audit
from dodona.audit.exact import PROVEN, VIOLATED, loss_audit
from dodona.audit.mechanisms import Check, mechanism_checks
from dodona.audit.neighbours import SmallDomain, shown
from dodona.audit.suite import FLAGS, GROUPS, NUMBERS, PURE, every_check
from dodona.audit.watched import Suspicion, WatchedCurator, watched
from dodona.cli import app
from dodona.errors import BudgetSpent
from dodona.mechanisms import DiscreteLaplace
from dodona.oracles.noise import Noise
from dodona.query.statistic import Value, as_expr

FEW = SmallDomain(NUMBERS.schema, NUMBERS.kinds, 2)


def ask(curator=WatchedCurator, neighbours="replace", budget=PURE):
    return Path("ask", FEW, neighbours, budget, lambda o: o.ask("x", share=1), curator)


def group_by(curator=WatchedCurator):
    text = "SELECT g, COUNT(*) FROM tiny GROUP BY g"
    return Path(
        "sql", SmallDomain(GROUPS.schema, GROUPS.kinds, 2), "replace", PURE, lambda o: o.sql(text, share=1), curator
    )


def select(curator=WatchedCurator):
    return Path("select", FEW, "replace", PURE, lambda o: o.select(["x = 0", "x = 2"], share=1), curator)


# -- neighbours -------------------------------------------------------------------------------------------------------


def test_all_pairs_are_listed_once():
    assert len(list(FEW.tables())) == 3 + 6
    replaced = FEW.pairs("replace")
    assert len(replaced) == 3 + 9  # of one row: 3; of two: those that share a row
    assert all(len(a) == len(b) for a, b in replaced)
    grown = FEW.pairs("add-remove")
    assert len(grown) == 3 * 3
    assert all(len(b) == len(a) + 1 for a, b in grown)
    assert shown((((0,),), ((0,), (2,)))) == "{0} ~ {0, 2}"


# -- what a transcript tells ------------------------------------------------------------------------------------------


def test_the_loss_of_an_answer_is_its_log_likelihood_ratio():
    tables = [FEW.table(rows, "replace") for rows in (((0,), (1,)), ((2,), (1,)))]
    oracle = watched(tables[0], PURE)
    oracle.ask("x", share=F(1, 2))
    oracle.select(["x = 0", "x = 2"], share=F(1, 2), mechanism="exponential")
    suspicion = Suspicion(*tables)
    answer, choice = oracle.seen
    noise = int(answer.result.total) - 1
    law = DiscreteLaplace(F(2))  # sensitivity 2 at epsilon 1
    expected = law.log_probability(noise) - law.log_probability(noise - 2)
    assert suspicion.loss(answer) == pytest.approx(expected)
    chooser, scores = suspicion.chooser(choice)
    exact = [chooser.log_probability(each, choice.result.index) for each in scores]
    assert suspicion.loss(choice) == pytest.approx(exact[0] - exact[1])
    assert suspicion.stake(answer).worst("epsilon") == 1
    with pytest.raises(BudgetSpent):
        oracle.ask("x", share=F(1, 100))


@pytest.mark.parametrize("scores", [[0, 0], [3, 1, 2], [5, 5, 0, 1, 2]])
def test_choices_by_quadrature_agree_with_the_exact_law(scores):
    from dodona.mechanisms import Exponential, PermuteAndFlip

    held = np.array(scores, dtype=np.int64)
    for kind in (PermuteAndFlip, Exponential):
        chooser = kind(F(3, 2), F(1))
        for i in range(len(scores)):
            assert chooser.log_chance(held, i) == pytest.approx(chooser.log_probability(held, i), abs=1e-9)


# -- sound ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("budget", [PURE, dd.Budget(rho=F(1, 2))], ids=["epsilon", "rho"])
def test_asking_is_proved_and_tight(neighbours, budget):
    (audit,) = noisy_path(ask(neighbours=neighbours, budget=budget))
    assert audit.verdict == PROVEN
    assert audit.slack == 0
    assert audit.pairs == len(FEW.pairs(neighbours))
    drawn = noise_drawn(ask(neighbours=neighbours, budget=budget), ((0,), (1,)), F(1, 100))
    assert drawn.holds, drawn


def test_groups_choices_and_releases_are_proved():
    assert [a.verdict for a in noisy_path(group_by())] == [PROVEN]
    (audit,) = finite_path(select(), chosen)
    assert audit.verdict == PROVEN
    assert 0 < audit.delta < 1e-4
    boxes = Path(
        "boxes", FLAGS, "replace", PURE, lambda o: dd.release.conjunctions(o.select_columns("a"), width=1, share=1)
    )
    assert [a.verdict for a in questions_path(boxes)] == [PROVEN]


def test_a_report_is_proved():
    (audit,) = report_audit("report", Value(as_expr("x >= 1")), FEW, F(1), most_runs=150)
    assert audit.verdict == PROVEN
    assert audit.slack < 0.01
    (cheap,) = report_audit("report", Value(as_expr("x >= 1")), FEW, F(2), most_runs=150)
    assert cheap.realised > 1.9


# -- broken -----------------------------------------------------------------------------------------------------------


class HalfPriced(WatchedCurator):
    """Half of the noise that is paid for."""

    def _priced(self, request):
        plan, noise = super()._priced(request)
        return plan, Noise(
            noise.name, {w: DiscreteLaplace(law.scale / 2) for w, law in noise.by_weight.items()}, noise.cost
        )


class HalfDrawn(WatchedCurator):
    """Prices the noise rightly and draws half of it."""

    def _priced(self, request):
        plan, noise = super()._priced(request)

        class Halved(Noise):
            def sample(self, plan, bits):
                return super().sample(plan, bits) // 2

        return plan, Halved(noise.name, noise.by_weight, noise.cost)


class OneGroup(WatchedCurator):
    """A replaced row leaves one group and enters another; this one thinks of the first only."""

    def _norms(self, query, plan):  # noqa: ARG002 - the curator's signature
        return plan.reach.under("add-remove")


class HalfCharged(WatchedCurator):
    """Charges half."""

    def _charged(self, request, work, restore):
        half = type(work.cost)(work.cost.epsilon / 2, work.cost.rho / 2)
        return super()._charged(request, replace(work, cost=half), restore)


class ChargedByRows(WatchedCurator):
    """The charge depends on the data (HOSTILE A15)."""

    def _charged(self, request, work, restore):
        total = int(self._table.engine.totals(self._plans.of(request.query, level=False).program)[0])
        half = type(work.cost)(work.cost.epsilon / 2, work.cost.rho)
        return super()._charged(request, work if total else replace(work, cost=half), restore)


class Unclipped(WatchedCurator):
    """Publishes a total as it is."""

    def _priced(self, request):
        plan, noise = super()._priced(request)
        return plan, Noise(noise.name, {}, noise.cost)


@pytest.mark.parametrize(
    ("path", "judge"),
    [
        (ask(HalfPriced), noisy_path),
        (group_by(OneGroup), noisy_path),
        (ask(HalfCharged), noisy_path),
        (ask(ChargedByRows), noisy_path),
        (ask(Unclipped), noisy_path),
        (ask(HalfPriced), questions_path),
        (select(HalfCharged), lambda p: finite_path(p, chosen, F(1, 1000))),
    ],
    ids=["noise halved", "one group", "half charged", "data-dependent charge", "no noise", "questions", "selection"],
)
def test_broken_curators_are_refuted(path, judge):
    (audit,) = judge(path)
    assert audit.verdict == VIOLATED, audit


def test_noise_that_is_not_the_priced_one_is_proved_wrong():
    assert not noise_drawn(ask(HalfDrawn), ((0,), (1,)), F(1, 100)).holds
    assert not noise_drawn(ask(HalfDrawn), ((2,),), F(1, 100)).holds


# -- the command ------------------------------------------------------------------------------------------------------

RUNNER = CliRunner()


def test_the_command_prints_every_line_and_exits_zero():
    result = RUNNER.invoke(app, ["audit", "--only", "randomised"])
    assert result.exit_code == 0, result.output
    for word in ("mechanism", "claim", "worst pair found", "slack", "verdict", "proven", "Every line holds."):
        assert word in result.output


def test_the_command_speaks_json():
    result = RUNNER.invoke(app, ["audit", "--only", "sampler: discrete laplace", "--json"])
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data["holds"] is True
    assert {line["verdict"] for line in data["checks"]} == {"proven"}
    assert data["checks"][0]["residual"] < 1e-3


def test_the_command_fails_when_a_promise_does(monkeypatch):
    broken = Check("broken", lambda: [loss_audit("broken", "epsilon", F(1), [("a ~ b", F(2))])])
    monkeypatch.setattr("dodona.audit.suite.every_check", lambda slow=False: [broken])  # noqa: ARG005
    result = RUNNER.invoke(app, ["audit"])
    assert result.exit_code == 1
    assert "violated" in result.output
    assert "NOT every line holds" in result.output
    data = RUNNER.invoke(app, ["audit", "--json"])
    assert data.exit_code == 1
    assert json.loads(data.stdout)["checks"][0]["worst_pair"] == "a ~ b"


def test_a_base_install_names_the_extra_that_a_line_needs(monkeypatch):
    """All other lines are still audited, and the exit code is not that of a whole audit."""
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    lines = [check for check in every_check() if check.name.startswith(("release.conjunctions, its", "release.cuts"))]
    monkeypatch.setattr("dodona.audit.suite.every_check", lambda slow=False: lines)  # noqa: ARG005
    result = RUNNER.invoke(app, ["audit"])
    assert result.exit_code == 2, result.output
    assert "not audited: release.conjunctions" in result.output
    assert "pip install 'dodona[learn]'" in result.output
    assert "release.cuts" in result.stdout
    told = json.loads(RUNNER.invoke(app, ["audit", "--json"]).stdout)
    assert told["left_out"] == {lines[0].name: "scipy"}
    assert told["checks"]


def test_an_unknown_line_is_refused():
    assert RUNNER.invoke(app, ["audit", "--only", "nothing of the kind"]).exit_code == 2


def test_names_of_lines_are_unlike():
    names = [check.name for check in every_check()]
    assert len(names) == len(set(names))


PATHS = every_check(slow=True)[len(mechanism_checks(slow=True)) :]  # the mechanisms' own are in test_exact.py


@pytest.mark.slow
@pytest.mark.parametrize("check", PATHS, ids=lambda check: check.name)
def test_every_path_of_the_slow_audit(check):
    assert all(result.holds for result in check.work())
