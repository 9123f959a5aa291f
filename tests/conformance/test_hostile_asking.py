"""HOSTILE V55 and V59-V64 where no server is needed: JSON, labels, seeds, local reports, gradients, sampling claims."""

from __future__ import annotations

import ast
import inspect
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dodona as dd
import dodona.learn
from dodona.errors import BadEffort, BadQuery, BudgetSpent, DodonaError, Refused
from dodona.learn import GaussianNB, KMeans, LogisticRegression, Perceptron
from dodona.local import Client, Collector, invitation
from dodona.local.client import invited
from dodona.privacy import Budget, SqliteLedger
from dodona.query.statistic import Partition, Value, as_expr, query_from_json
from dodona.testing.oracles import seeded_curator
from tests.support.twins import Twins

SOURCE = Path(dd.__file__).parent
SCHEMA = dd.Schema({"x": dd.Real(0, 10), "ill": dd.Flag(), "g": dd.Category("a", "b", "c")})
BUDGET = Budget(epsilon=1000, delta=1e-6)


def curator(seed: int = 0) -> dd.Curator:
    rows = {"x": np.arange(10.0), "ill": np.arange(10) % 2 == 0, "g": np.array(list("abcabcabca"))}
    return seeded_curator(dd.Table(rows, SCHEMA), BUDGET, seed)


ODD_NUMBERS = (math.nan, math.inf, -math.inf, 10**5000, 1e308 * 10, True, "1", None, [1], {})


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda n: str(n)[:12] if not isinstance(n, int) else "int")
def test_v55_odd_numbers_in_a_query_are_refused(number: Any) -> None:
    asker = curator()
    for query in (
        {"value": {"op": "add", "args": [{"col": "x"}, {"lit": number}]}},
        {"features": {"exprs": [{"col": "x"}], "radius": number}},
        {"nearest": {"features": {"exprs": [{"col": "x"}], "radius": 1}, "centres": [[number]], "of": {"value": {}}}},
    ):
        try:
            asker.ask(query_from_json(query), epsilon=1)
        except Refused:
            continue
        # what is left is legal: a text or a truth value is no number, but radius null means no ball
        assert number is None or number is True
    assert len(asker.ledger.entries()) <= 4


BOMBS = ["[" * 100_000, '{"a":' * 100_000, '{"version": ' + "9" * 5001 + "}", '{"version": NaN}', '{"version": 1e400}']


@pytest.mark.parametrize("text", BOMBS, ids=["lists", "objects", "digits", "NaN", "1e400"])
def test_v55_json_bombs_are_refused_wherever_text_comes_in(text: str) -> None:
    for read in (invited, Client.load, Collector.load, Collector):
        with pytest.raises(DodonaError):
            read(text)


def test_v59_a_label_that_looks_like_a_statement_is_text(tmp_path: Path) -> None:
    label = "'); DELETE FROM entries;--"
    with SqliteLedger.open(tmp_path / "l", Budget(epsilon=1), create=True) as ledger:
        ledger.charge(amount=5, analyst=label, request_id=label, what=label, detail=label)
        ledger.grant(label, 10)
        assert [(e.analyst, e.what) for e in ledger.entries()] == [(label, label), (label, "grant")]
        assert ledger.verify().spent == 5
    schema = dd.Schema({label: dd.Category(label, "b")})
    asker = seeded_curator(dd.Table({label: [label, "b"]}, schema, name=label), BUDGET, 0)
    column = '"' + label + '"'
    found = asker.sql(f"SELECT {column}, COUNT(*) FROM {column} GROUP BY {column}", epsilon=1)
    assert [record[0] for record in found] == [label, "b", "(other)"]
    assert asker.ledger.verify().entries == 2


def test_v60_there_is_no_seed_to_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = curator()
    for act in (asker.ask, asker.price, asker.sql, asker.select):
        with pytest.raises(TypeError):
            act("x", epsilon=1, seed=1)
    with pytest.raises(TypeError):
        dd.Curator(dd.Table({"x": [1.0]}, dd.Schema({"x": dd.Real(0, 1)})), BUDGET, seed=1)  # type: ignore[call-arg]
    with pytest.raises(BadQuery):
        query_from_json({"value": {"col": "x"}, "seed": 1})
    for name in ("SEED", "DODONA_SEED", "PYTHONHASHSEED", "NUMPY_SEED"):
        monkeypatch.setenv(name, "1")
    np.random.seed(1)  # noqa: NPY002 - the attack
    rows = dd.Table({"id": np.arange(50.0)}, dd.Schema({"id": dd.Integer(0, 49)}))
    question = Partition(as_expr("id"), Value(as_expr("1")))
    answers = set()
    for _ in range(2):
        np.random.seed(1)  # noqa: NPY002 - the attack
        answers.add(tuple(np.asarray(dd.Curator(rows, BUDGET).ask(question, epsilon="1/10").total)))
    assert len(answers) == 2


def test_v60_only_the_testing_room_knows_seeded_noise() -> None:
    """No file of the product imports ``dodona.testing``, and none of the noise rooms a generator that can be seeded."""
    noise = ("mechanisms", "trust", "privacy", "local", "server")
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        names = [name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for name in _imported(node)]
        if room not in ("testing", "audit"):
            assert not any(name.startswith("dodona.testing") for name in names), path
        if room in noise:
            assert not any(name == "random" or name.startswith("numpy.random") for name in names), path


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_v61_reports_out_of_domain_or_of_another_length_are_never_added() -> None:
    for question in ("ill", "x"):
        text = invitation(Value(as_expr(question)), SCHEMA, 1)
        report = Client(9).report(text, {"ill": True, "x": 3})
        collector = Collector(text)
        wrong = [report[:-1], report + b"\0", report * 2, b"", b"\0" * 500, report[:12], bytes(report)[::-1]]
        wrong += [report[:-8] + value.to_bytes(8, "little", signed=True) for value in (-1, 2**40, -(2**63), 2**63 - 1)]
        wrong = [w for w in wrong if w != report]
        for odd in wrong:
            assert not collector.add(odd) or len(odd) == len(report)
        assert not collector.add(wrong[-1])
        counted = collector.reports
        assert sum(collector.refused.values()) + counted == len(wrong) + 1
        assert collector.add(report)
        assert collector.reports == counted + 1


def test_v61_a_report_sent_twice_counts_once(tmp_path: Path) -> None:
    """The token that comes with a report counts once; the collector itself adds what it is handed."""
    store = pytest.importorskip("dodona.server.surveys.store", reason="the survey server is not there yet")
    survey = pytest.importorskip("dodona.server.surveys.survey")
    stated = {"title": "t", "epsilon": "1", "questions": [{"text": "Ill?", "kind": "yes-no"}]}
    asked = survey.Survey.read("s", stated)
    kept = store.SurveyStore(tmp_path / "surveys")
    kept.add(asked, [])
    report = Client(1).report(asked.invitations()["q1"], {survey.COLUMN: True})
    kept.count("s", "q1", report, "token")
    with pytest.raises(store.AlreadyCounted):
        kept.count("s", "q1", report, "token")
    assert kept.collectors(asked)["q1"].reports == 1
    kept.close()


def test_v62_a_client_refuses_more_than_its_own_cap() -> None:
    client = Client(1)
    for epsilon in (1.5, 1000):
        with pytest.raises(BudgetSpent):
            client.report(invitation(Value(as_expr("ill")), SCHEMA, epsilon), {"ill": True})
    assert client.left == 1
    forged = json.loads(invitation(Value(as_expr("ill")), SCHEMA, 0.5))
    forged["epsilon"] = "2000000"
    for text in (json.dumps(forged), json.dumps({**forged, "epsilon": "0.001"}), json.dumps({**forged, "epsilon": -1})):
        with pytest.raises((BadQuery, BadEffort, BudgetSpent)):
            client.report(text, {"ill": True})
    client.report(invitation(Value(as_expr("ill")), SCHEMA, 0.5), {"ill": True})
    assert client.left == 0.5


LEARN = dd.Schema({"a": dd.Real(-1, 1), "b": dd.Real(-1, 1), "y": dd.Flag()})


def _points(odd: float | None, rows: int = 60) -> dd.Table:
    rng = np.random.default_rng(1)
    columns = {
        "a": rng.uniform(-1, 1, rows),
        "b": rng.uniform(-1, 1, rows),
        "y": (rng.random(rows) < 0.5).astype(float),
    }
    if odd is not None and rows:
        for column in columns.values():
            column[0] = odd
    return dd.Table(columns, LEARN, name="t", population="t")


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize(
    "learner", [LogisticRegression(max_iter=3), Perceptron(), GaussianNB(), KMeans(2, max_iter=2)], ids=repr
)
def test_v63_a_gradient_that_is_no_number_adds_nothing_and_noise_is_still_added(odd: float, learner: Any) -> None:
    """A row's step is clipped before the sum: on twins, one of which holds the odd row, every request looks alike."""
    twins = Twins(_points(None), _points(odd), Budget(epsilon=10, delta=1e-6))
    learner.set_params(share=1)
    oracle = twins.select_columns("a", "b") if isinstance(learner, KMeans) else twins
    learner.fit(oracle) if isinstance(learner, KMeans) else learner.fit(oracle, "y")
    assert twins.requests >= 1


@pytest.mark.parametrize("learner", [LogisticRegression(max_iter=2), GaussianNB(), Perceptron()], ids=repr)
def test_v63_an_empty_batch_still_gets_noise(learner: Any) -> None:
    fitted = []
    for seed in range(2):
        asker = seeded_curator(_points(None, rows=0), Budget(epsilon=1, delta=1e-6), seed)
        try:
            learner.set_params(share=1).fit(asker, "y")
        except Refused:
            continue  # so few rows that nothing can be learned: refused from the public number of rows alone
        assert asker.ledger.spent() > 0
        fitted.append([np.asarray(v).tolist() for k, v in sorted(vars(learner).items()) if k in ("coef_", "theta_")])
    if fitted:
        assert fitted[0] != fitted[1], "without rows the model must be noise alone"


def test_v64_nothing_claims_amplification_by_sampling() -> None:
    """No learner takes batches, so no shuffled batch can be accounted as a Poisson sample: there is no such setting."""
    claims = ("batch", "poisson", "sampling", "subsample", "amplif", "shuffle")
    for name in dodona.learn.__all__:
        made = getattr(dodona.learn, name)
        parameters = inspect.signature(made).parameters
        assert not [p for p in parameters if any(claim in p.lower() for claim in claims)], name
        assert not [p for p in parameters.values() if p.kind is p.VAR_KEYWORD], f"{name} swallows settings"
    for setting in ({"batch_size": 10}, {"sampling": "poisson"}, {"noise_multiplier": 1}):
        with pytest.raises(TypeError):
            LogisticRegression(**setting)
    assert Budget(epsilon=1).portion(Fraction(1, 2)) == Fraction(1, 2), "a share is a share, never amplified"


def test_every_case_has_a_named_test_and_stands_in_the_documentation() -> None:
    here = Path(__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in here.glob("test_hostile_*.py"))
    page = (here.parents[1] / "docs" / "audit.md").read_text(encoding="utf-8")
    for number in range(1, 65):
        assert f"def test_v{number:02d}_" in text, f"V{number} has no test"
        (line,) = [line for line in page.splitlines() if line.startswith(f"| V{number} |")]
        assert line.split("`")[1] in text, f"V{number} names a test that is not there"
