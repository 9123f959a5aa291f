"""Files that the first edition wrote open as they did: synopses of every kind answer the same, surveys count on.

Ledgers of that edition: ``tests/unit/privacy/test_ledger_formats.py``.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from dodona.local import Client
from dodona.oracles.answer import Answer
from dodona.server.surveys import estimated
from dodona.server.surveys.store import AlreadyCounted, SurveyStore
from dodona.synopses import load

DATA = Path(__file__).parents[1] / "data" / "v1"
ASKED = json.loads((DATA / "synopses.json").read_text(encoding="utf-8"))
MENDED = {
    "Arrangement": 186.4997946569430,
    "Tree": 2118.3026052494192,
    "HalfspaceNets": 2270.0139963244587,
    "Halfspaces": 465.6781881291122,
}
"""Margins that were not true: an arrangement took a normal tail for any noise (and added Hoeffding's bound), a tree
stated the gain that opens a piece at any confidence, nets left out what their projections disagree by, halfspaces the
rows whose missing values lie on the boundary."""


@pytest.mark.parametrize("kind", ASKED)
def test_a_synopsis_answers_as_it_did(kind: str) -> None:
    synopsis = load(DATA / f"{kind.lower()}.synopsis")
    then, now = Answer.from_json(ASKED[kind]["answer"]), synopsis.ask(ASKED[kind]["question"])
    assert synopsis.body.kind == kind
    assert now.total == pytest.approx(then.total, rel=1e-9)
    assert now.margin == pytest.approx(MENDED.get(kind, then.margin), rel=1e-9)
    assert str(now.cost) == "free"


def test_a_survey_counts_on(tmp_path: Path) -> None:
    place = tmp_path / "surveys"
    place.write_bytes(gzip.decompress((DATA / "surveys.gz").read_bytes()))
    then = json.loads((DATA / "surveys.json").read_text(encoding="utf-8"))
    store = SurveyStore(place)
    survey = store.survey(then["id"])
    now = estimated(survey, store)
    assert now["reports"] == then["reports"] == 20
    (before, *_), (found, *_) = then["questions"], now["questions"]
    assert found["estimates"][0]["share"] == pytest.approx(before["estimates"][0]["share"], rel=1e-9)
    report = Client(total=10).report(survey.invitations()["q1"], {"answer": True})
    with pytest.raises(AlreadyCounted):
        store.count(survey.id, "q1", report, f"{0:032x}")
    store.close()
