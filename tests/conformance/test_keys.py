"""People by key: every engine counts the same people for the same keys, whole numbers and texts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import dodona as dd
from dodona import release
from dodona.engines.keys import Counting
from dodona.mechanisms.weights import weights
from dodona.privacy import Budget
from dodona.query.candidates import OpenKeys
from dodona.testing import seeded_curator
from tests.support.twins import Twins

SCHEMA = dd.Schema(
    {"word": dd.Text(6, fold="case", trim=True), "code": dd.Integer(-5, 10**6), "said": dd.Text(4, missing="?")}
)
WORDS = ["Oslo", " oslo", "OSLO", "Bergen", "bergen ", "überall", "Ü", "z", "a'b", "日本語", "zz", None]
ROWS = [
    {
        "word": WORDS[i % len(WORDS)],
        "code": [7, 7, -9, 10**7, None][i % 5],
        "said": ["ja", "nein!", None][i % 3],
        "who": f"p{i // 3}",
    }
    for i in range(130)
]
STORED = dd.Schema({**SCHEMA, "who": dd.Text(10)})
Make = Callable[..., dd.Table]


def people(
    rows: list[dict[str, Any]],
    column: str,
    clean: Callable[[Any], Any],
    each: int | None,
    weigh: Callable[[int], int] = lambda _: 1,
    known: tuple[Any, ...] = (),
) -> dict[Any, int]:
    """By hand: ``each`` None where every row is a person."""
    held: dict[Any, set[Any]] = {}
    for place, row in enumerate(rows):
        held.setdefault(place if each is None else row["who"], set()).add(clean(row[column]))
    counts: dict[Any, int] = {}
    for keys in held.values():
        kept = chosen(keys - {None, *known}, each or 1)
        for key in kept:
            counts[key] = counts.get(key, 0) + weigh(len(kept))
    return counts


def chosen(keys: set[Any], each: int) -> list[Any]:
    """Of one person's keys those that count, by what this person has alone."""
    hashed = {key: md5(str(key)) for key in keys}
    first = min(hashed.values(), default="")
    return sorted(keys, key=lambda key: md5(first + str(key)))[:each]


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


CLEAN: dict[str, Callable[[Any], Any]] = {
    "word": lambda text: None if text is None else SCHEMA["word"].cut(text),  # type: ignore[union-attr]
    "code": lambda n: None if n is None else min(max(n, -5), 10**6),
    "said": lambda text: "?" if text is None else text[:4],
}


def found(table: dd.Table, column: str, each: int, *how: tuple[Any, ...]) -> dict[Any, int]:
    values, counts = table.engine.people_by_key(column, Counting(each, *how))
    assert len(set(values.tolist())) == len(values)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def test_rows_are_counted_by_key_alike(make: Make) -> None:
    table = make(ROWS, neighbours="add-remove")
    assert table.engine.counts_keys
    for column, clean in CLEAN.items():
        assert found(table, column, 1) == people(ROWS, column, clean, None)


def test_people_are_counted_by_key_alike(make: Make) -> None:
    table = make(ROWS, STORED, asked=SCHEMA, neighbours="add-remove", unit=dd.Unit("who", 2))
    for column, clean in CLEAN.items():
        for each in (1, 2, 3):  # of three rows each, whatever max_rows says
            assert found(table, column, each) == people(ROWS, column, clean, each)


def test_people_weigh_alike_and_what_is_known_is_on_nobodys_list(make: Make) -> None:
    """To the last integer; of odd texts too, and of numbers."""
    table = make(ROWS, STORED, asked=SCHEMA, neighbours="add-remove", unit=dd.Unit("who", 2))
    lists: dict[str, tuple[Any, ...]] = {
        "word": ("oslo", "a'b", "日本語", "nobody's", "ü"),
        "code": (7, -5, 123),
        "said": ("?",),
    }
    for column, clean in CLEAN.items():
        for each, known in ((3, ()), (2, lists[column]), (3, lists[column][:1])):
            weigh = lambda k: math.isqrt(4096 * 4096 // k)  # noqa: E731
            by_hand = people(ROWS, column, clean, each, weigh, known)
            assert found(table, column, each, weights(4096, each), known) == by_hand
            assert found(table, column, each, (), known) == people(ROWS, column, clean, each, known=known)


def test_what_a_lone_person_has_is_never_listed(make: Make) -> None:
    common = [{"word": "oslo", "code": 7, "said": "ja", "who": i} for i in range(300)]
    table = make([*common, {"word": "secret", "code": 8, "said": "nein", "who": 300}], neighbours="add-remove")
    curator = seeded_curator(table, Budget(epsilon=1, delta=1e-6, keys=1e-7), 3)
    for column, key in (("word", "oslo"), ("code", 7)):
        listed = release.keys(curator, column, delta=1e-8, share="1/3")
        assert listed.body.listed == (key,)
        answer = listed.ask(f"{column} = {key!r}", confidence=0.999999)
        assert abs(answer.total - 300) <= answer.margin


def test_twins_are_clean_where_a_rare_key_comes_and_goes(make: Make) -> None:
    """Whole persons, of whom one alone has odd keys, or more than count: nothing but the numbers tells of them, and
    they move no total by more than was paid for.
    """
    held = [(f"p{i % 40}", WORDS[(i * i) % 9], [7, 8, 9, 20 + i % 3][i % 4]) for i in range(160)]
    odd = [*((word, 10_000 + i) for i, word in enumerate(["xx", "yy", "zz", "ü", "日本"])), ("oslo", 7)]
    alone = [("p40", word, code) for word, code in odd]
    budget = Budget(epsilon=3, delta="1/10", keys="1/20")  # so much that some of it is shown
    sides = []
    for more in (alone, []):
        rows = [{"word": word, "code": code, "said": None, "who": who} for who, word, code in [*held, *more]]
        sides.append(make(rows, STORED, asked=SCHEMA, neighbours="add-remove", unit=dd.Unit("who", 9)))
    twins = Twins(*sides, budget)
    for column in ("word", "code"):
        for method, counts in (("threshold", True), ("weighted", True), ("rounds", False), ("rounds", True)):
            asked = OpenKeys(column, 3, Fraction(1, 200), method, counts)
            twins.run(asked, share=Fraction(1, 10))
            twins.price(asked, share=Fraction(1, 10))
    assert twins.requests >= 16
