"""A server for tests of the page: two datasets, one with names that are markup; a curator and two analysts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dodona.query.schema import Category, Flag, Integer, Real, Schema
from tests.support.servers import add_key, in_thread, write_survey

EVIL = "<img src=x onerror=alert(1)>"
REGIONS = ["North", "East", "South", "West"]
ROWS = 4000
PEOPLE = Schema(
    {"age": Integer(16, 95), "region": Category(*REGIONS), "smoker": Flag(), "income": Real(0, 1000)},
)
ODD = Schema({EVIL: Category(EVIL, "plain"), "select": Flag()})
QUESTIONS = [
    {"text": "Do you own a car?", "kind": "yes-no"},
    {"text": "How do you travel?", "kind": "choice", "values": ["Bus", "Car", "Bicycle", "On foot"]},
    {"text": "How old are you?", "kind": "number", "edges": [0, 18, 30, 45, 60, 120]},
]
"""A survey with a question of each kind."""
_SPENT = """async () => {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem("dodona.key")}` };
  return (await (await fetch("/v1/datasets/people", { headers })).json()).analyst.spent;
}"""


@dataclass(frozen=True)
class World:
    """Where the server is, the key of each person, and the true ``columns`` of ``people``."""

    url: str
    keys: dict[str, str]
    columns: dict[str, Any]
    rows: int = ROWS


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """The server, from beginning to end."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {
        "age": np.clip(rng.gamma(9, 5, ROWS), 16, 95).astype(int),
        "region": np.array(REGIONS)[rng.choice(4, ROWS, p=[0.4, 0.3, 0.2, 0.1])],
        "smoker": rng.random(ROWS) < 0.25,
        "income": rng.random(ROWS) * 1000,
    }
    people = write_survey(folder, columns, PEOPLE, {"epsilon": 8, "delta": 1e-6})
    odd = {EVIL: np.array([EVIL, "plain"] * 50), "select": np.array([True, False] * 50)}
    other = write_survey(folder, odd, ODD, {"epsilon": 4}, name=EVIL)
    keys = {
        "curator": add_key(folder, "ada"),
        "analyst": add_key(folder, "ben", "1/4"),
        "second": add_key(folder, "cleo", "1/4"),
    }
    with in_thread(folder, [people, other], tick=0.001) as url:
        yield World(url, keys, columns)


def sign_in(one: Any, at: World, who: str) -> None:
    """A tab, with that person's key, at ``people``."""
    one.page.goto(at.url)
    one.page.get_by_label("Your key").fill(at.keys[who])
    one.page.get_by_role("button", name="Open").click()
    one.page.get_by_label("Dataset").select_option("people")
    one.page.get_by_role("heading", name="Ask people").wait_for()


def spent(page: Any) -> Any:
    """What the page's own key sees as spent of ``people``."""
    return page.evaluate(_SPENT)


def ask(one: Any, text: str, place: int | None = None) -> Any:
    """The card of the answer; ``place``: of the slider between cheap and accurate."""
    page = one.page
    before = page.locator(".answer").count()
    page.get_by_label("Your question").fill(text)
    if place is not None:
        page.get_by_label("Cheap and rough").fill(str(place))
    page.get_by_role("button", name="Ask", exact=True).and_(page.locator(":enabled")).click()
    page.locator(".answer").nth(before).wait_for()
    return page.locator(".answer").first
