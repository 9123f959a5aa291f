"""What was handed out never passes the budget, whatever handles, forks, crashes, restarts and old copies there are.

Two ways to look: random histories of any length, and every short one, none left out. Neither believes the ledger:
``payments`` sums what really left.
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import PostgresServer

from .payments import BEFALLS, ClientWorld, CuratorWorld, LocalWorld, World, clean, scratch

OWN = ("close and open", "load an older copy")
Step = tuple[int, str, str]


@contextmanager
def folder() -> Iterator[Path]:
    """In memory where there is one: thousands of ledgers need no disk, and syncs are tested elsewhere."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield Path(name)


# -- random histories --------------------------------------------------------------------------------------------------


def _history(world: World, chance: random.Random) -> list[Step]:
    """Up to twelve steps of up to five handles; now and then something befalls one of them."""
    steps = []
    for _ in range(chance.randrange(3, 13)):
        number = chance.randrange(len(world.handles))
        operation = chance.choice((*world.operations, *world.operations, *OWN))
        befalls = chance.choice(BEFALLS) if chance.random() < 0.3 else "nothing"
        steps.append((number, operation, befalls))
        world.step(*steps[-1])
    return steps


def _histories(kind: type[World], places: Iterator[Any], first: int, count: int) -> None:
    for seed in range(first, first + count):
        chance, place = random.Random(seed), next(places)
        world = kind(place, chance.randrange(1, 6))
        steps = _history(world, chance)
        world.drain()
        assert world.kept(), f"seed {seed}: more was handed out than the budget holds: {steps}"
        world.end()
        clean(place)


def _files(where: Path) -> Iterator[Path]:
    return (scratch(where) for _ in itertools.count())


def _names(postgres: PostgresServer) -> Iterator[str]:
    return (f"{postgres.url()}#{uuid.uuid4().hex}" for _ in itertools.count())


@pytest.mark.parametrize("kind", [CuratorWorld, LocalWorld, ClientWorld])
def test_random_histories_hand_out_no_more_than_the_budget(kind: type[World]) -> None:
    with folder() as where:
        _histories(kind, _files(where), 0, 80)


@pytest.mark.parametrize("kind", [CuratorWorld, LocalWorld])
def test_random_histories_hand_out_no_more_than_the_budget_on_postgresql(
    kind: type[World], postgres: PostgresServer
) -> None:
    _histories(kind, _names(postgres), 0, 12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CuratorWorld, LocalWorld, ClientWorld])
def test_ten_thousand_random_histories_hand_out_no_more_than_the_budget(kind: type[World]) -> None:
    with folder() as where:
        _histories(kind, _files(where), 1000, 10_000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CuratorWorld, LocalWorld])
def test_a_thousand_random_histories_on_postgresql(kind: type[World], postgres: PostgresServer) -> None:
    _histories(kind, _names(postgres), 20_000, 1000)


# -- every short history -----------------------------------------------------------------------------------------------


def every_history(handles: int, operations: int, kind: type[CuratorWorld] = CuratorWorld) -> int:
    """Every history of that many handles and operations, at most one thing befalling one of them; how many were run.

    A history is run from the start on the real code, each time. Of those that leave the ledger and every handle in the
    same state, one is continued: what follows cannot differ.
    """
    ran, frontier = 0, [((), False)]
    steps = list(itertools.product(range(handles), (*CuratorWorld.operations, *OWN), BEFALLS))
    with folder() as where:
        template = scratch(where)
        kind(template, 1).end()
        for _ in range(operations):
            seen: dict[Any, tuple[tuple[Step, ...], bool]] = {}
            for history, befallen in frontier:
                for step in steps:
                    if befallen and step[2] != "nothing":
                        continue
                    longer, place = (*history, step), scratch(where)
                    place.write_bytes(template.read_bytes())
                    world = kind(place, handles)
                    for each in longer:
                        world.step(*each)
                    state = (world.state(), befallen or step[2] != "nothing")
                    world.drain()
                    assert world.kept(), f"more was handed out than the budget holds: {longer}"
                    world.end()
                    clean(place)
                    ran += 1
                    seen.setdefault(state, (longer, state[1]))
            frontier = list(seen.values())
    print(f"{handles} handles, {operations} operations: {ran:,} histories")
    return ran


@pytest.mark.parametrize(("handles", "operations"), [(1, 2), (2, 1), (3, 1)])
def test_every_short_history_hands_out_no_more_than_the_budget(handles: int, operations: int) -> None:
    assert every_history(handles, operations) >= handles * 7 * len(BEFALLS)


@pytest.mark.slow
@pytest.mark.parametrize("handles", [1, 2, 3])
def test_every_history_of_four_operations_hands_out_no_more_than_the_budget(handles: int) -> None:
    assert every_history(handles, 4) > 1000 * handles
