"""The tables that the questions people ask are tried on (``tests/data/questions.toml``), and how one is asked."""

from __future__ import annotations

import datetime as dt
import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import dodona as dd
from dodona import learn, release

SHARE, DELTA = 0.0005, 1e-10
FILE = Path(__file__).parents[1] / "data" / "questions.toml"
PEOPLE = dd.Schema(
    {
        "sex": dd.Category("Male", "Female", required=True),
        "region": dd.Category("North", "East", "South", "West", fold="case", trim=True, aliases={"North": ["N"]}),
        "education": dd.Integer(1, 16),
        "age": dd.Integer(0, 100, required=True),
        "income": dd.Real(0, 200_000),
        "hours": dd.Integer(0, 99),
        "children": dd.Integer(0, 10),
        "married": dd.Flag(),
        "smoker": dd.Flag(),
        "born": dd.Date("1920-01-01", "2008-12-31"),
        "seen": dd.Timestamp("2024-01-01", "2024-12-31T23:59:59", step="second"),
        "note": dd.Text(max_length=40),
        "device": dd.Category("android", "ios", "web"),
    }
)
VISITS = dd.Schema(
    {
        "ward": dd.Category("a", "b", "c"),
        "zip": dd.Category("01", "02", "03"),
        "day": dd.Date("2024-01-01", "2024-12-31"),
        "cost": dd.Real(0, 200),
        "minutes": dd.Integer(0, 120),
        "sick": dd.Flag(),
        "reason": dd.Text(20),
    }
)


class Refused(NamedTuple):
    """A question that is refused, what its refusal must name, and what is written instead."""

    family: str
    on: str
    ask: str
    names: str
    instead: str


def asked() -> Iterator[tuple[str, str, str]]:
    """(family, table, question) of all that are answered in one call."""
    for family, told in tomllib.loads(FILE.read_text()).items():
        yield from ((family, told["on"], text) for text in told["ask"])


def refused() -> Iterator[Refused]:
    """All that are not."""
    for family, told in tomllib.loads(FILE.read_text()).items():
        yield from (Refused(family, told["on"], **one) for one in told.get("refused", []))


def people(rows: int = 4_000) -> dd.Table:
    draw = random.Random(5)
    first, moment = dt.date(1920, 1, 1), dt.datetime(2024, 1, 1)

    def row() -> dict[str, Any]:
        known = {
            "sex": draw.choice(["Male", "Female"]),
            "region": draw.choice(["North", "EAST", " south", "West", "N"]),
            "education": draw.randint(1, 16),
            "age": draw.randint(0, 100),
            "income": min(2e5, draw.lognormvariate(10, 1)),
            "hours": draw.choice([0, 20, 35, 40, 40, 40, 60]),
            "children": draw.randint(0, 10),
            "married": draw.random() < 0.5,
            "smoker": draw.random() < 0.2,
            "born": first + dt.timedelta(draw.randrange(32_000)),
            "seen": moment + dt.timedelta(seconds=draw.randrange(366 * 86_400)),
            "note": draw.choice(["none", "back pain", "cough", "pain", "back"]),
            "device": draw.choice(["android", "ios", "web"]),
        }
        return {name: v if name in ("sex", "age") or draw.random() > 0.05 else None for name, v in known.items()}

    table = pa.Table.from_pylist([row() for _ in range(rows)])
    return dd.Table(table, PEOPLE, neighbours="add-remove", name="people", population="p", rows=rows)


def hospital(rows: int = 3_000) -> dd.Dataset:
    draw = random.Random(7)
    named = [f"p{i}" for i in range(rows // 5)]
    visits = {
        "patient": [draw.choice(named) for _ in range(rows)],
        "ward": [draw.choice("abc") for _ in range(rows)],
        "zip": [draw.choice(["01", "02", "03"]) for _ in range(rows)],
        "day": [dt.date(2024, 1, 1) + dt.timedelta(draw.randrange(366)) for _ in range(rows)],
        "cost": [draw.uniform(0, 200) for _ in range(rows)],
        "minutes": [draw.randint(0, 120) for _ in range(rows)],
        "sick": [draw.random() < 0.3 for _ in range(rows)],
        "reason": [draw.choice(["fall", "flu", "cut"]) for _ in range(rows)],
    }
    patients = {"id": named, "sex": [draw.choice("fm") for _ in named], "age": [draw.randint(0, 99) for _ in named]}
    about = dd.Schema({"sex": dd.Category("f", "m"), "age": dd.Integer(0, 99)})
    same: Any = {"neighbours": "add-remove", "population": "h"}
    return dd.Dataset(
        {
            "visits": dd.Table(visits, VISITS, unit=dd.Unit("patient", 10), name="visits", **same),
            "patients": dd.Table(patients, about, unit=dd.Unit("id", 1), name="patients", **same),
            "zips": dd.Public(
                {"zip": ["01", "02", "03"], "city": ["Oslo", "Bergen", "Oslo"], "county": ["A", "B", "A"]}
            ),
        },
        "patient",
        budget=dd.Budget(epsilon=1000, delta=1e-6, keys=1e-7),
    )


class Asker:
    """Asks a question as its user would: a SELECT, or a call of Python."""

    def __init__(self) -> None:
        self.people = dd.Curator(people(), dd.Budget(epsilon=1000, delta=1e-6, keys=1e-7))
        self.hospital = hospital()

    def ask(self, on: str, text: str) -> Any:
        """The answer."""
        oracle: Any = getattr(self, on)
        if text.startswith(("SELECT", "WITH")):
            return oracle.sql(text, share=SHARE)
        known = {"people": self.people, "hospital": self.hospital, "release": release, "learn": learn}
        return eval(text, {**known, "S": SHARE, "D": DELTA})
