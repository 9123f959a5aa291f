"""What was handed out never passes the budget, whatever handles, forks, crashes, restarts and old copies there are.

Two ways to look: random histories of any length, and every short one, none left out. Neither believes the ledger:
``payments`` sums what really left.
"""

from __future__ import annotations

import gc
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

from .payments import (
    BEFALLS,
    ClientWorld,
    CuratorWorld,
    DatasetWorld,
    GaussianDatasetWorld,
    GaussianWorld,
    LocalWorld,
    SeriesWorld,
    ShuffledWorld,
    World,
    clean,
    scratch,
)

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


def _histories(kind: type[World], places: Iterator[Any], first: int, count: int, *, dear: bool = False) -> None:
    """``dear``: where each step is many turns to a server, fewer handles, of which one asks for the rest."""
    for seed in range(first, first + count):
        chance, place = random.Random(seed), next(places)
        world = kind(place, chance.randrange(1, 4 if dear else 6))
        steps = _history(world, chance)
        world.drain(chance if dear else None)
        assert world.kept(), f"seed {seed}: more was handed out than the budget holds: {steps}"
        world.end()
        clean(place)


def _files(where: Path) -> Iterator[Path]:
    return (scratch(where) for _ in itertools.count())


def _names(postgres: PostgresServer) -> Iterator[str]:
    """A schema each; they go a few hundred at a time, since catalogues that grow make each step dearer."""
    for number in itertools.count(1):
        yield f"{postgres.url()}#{uuid.uuid4().hex}"
        if number % 200 == 0:
            with postgres.connect() as db:
                for (schema,) in db.execute(
                    "SELECT nspname FROM pg_namespace WHERE nspname ~ '[0-9a-f]{32}'"
                ).fetchall():
                    db.execute(f'DROP SCHEMA "{schema}" CASCADE')


@pytest.mark.parametrize(
    "kind",
    [
        CuratorWorld,
        GaussianWorld,
        SeriesWorld,
        DatasetWorld,
        GaussianDatasetWorld,
        LocalWorld,
        ShuffledWorld,
        ClientWorld,
    ],
)
def test_random_histories_hand_out_no_more_than_the_budget(kind: type[World]) -> None:
    with folder() as where:
        _histories(kind, _files(where), 0, 40)


@pytest.mark.parametrize(
    "kind", [CuratorWorld, GaussianWorld, SeriesWorld, DatasetWorld, GaussianDatasetWorld, LocalWorld, ShuffledWorld]
)
def test_random_histories_hand_out_no_more_than_the_budget_on_postgresql(
    kind: type[World], postgres: PostgresServer
) -> None:
    _histories(kind, _names(postgres), 0, 6, dear=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        CuratorWorld,
        GaussianWorld,
        SeriesWorld,
        DatasetWorld,
        GaussianDatasetWorld,
        LocalWorld,
        ShuffledWorld,
        ClientWorld,
    ],
)
def test_ten_thousand_random_histories_hand_out_no_more_than_the_budget(kind: type[World]) -> None:
    with folder() as where:
        _histories(kind, _files(where), 1000, 10_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [CuratorWorld, GaussianWorld, SeriesWorld, DatasetWorld, GaussianDatasetWorld, LocalWorld, ShuffledWorld]
)
def test_ten_thousand_random_histories_on_postgresql(kind: type[World], postgres: PostgresServer) -> None:
    _histories(kind, _names(postgres), 20_000, 10_000, dear=True)


# -- every short history -----------------------------------------------------------------------------------------------


def every_history(
    handles: int, operations: int, kind: type[World] = CuratorWorld, *, prune: bool = True
) -> tuple[int, set[Any]]:
    """Every history of that many handles and operations, at most one thing befalling one of them: how many were run,
    and the states they led to.

    A history is run from the start on the real code, each time. Of those that leave the ledger, every handle and what
    was handed out in the same state, one is drained and continued: what follows cannot differ. Handles of one analyst
    that know the same may change names, so one of them goes on (``prune``; a test runs both).
    """
    ran, reached, frontier = 0, set[Any](), [((), False, prune and handles > 1)]
    steps = list(itertools.product(range(handles), (*kind.operations, *OWN), BEFALLS))
    with folder() as where:
        place = scratch(where)  # one for all: an account says where it was made
        kind(place, 1).end()
        new = place.read_bytes()
        clean(place)
        gc.collect()
        gc.freeze()  # what is here is not looked at again in each forked child
        for _ in range(operations):
            longer: list[tuple[tuple[Step, ...], bool, bool]] = []
            for history, befallen, alike in frontier:
                for step in steps:
                    if (befallen and step[2] != "nothing") or (alike and step[0] == 1):
                        continue
                    done = (*history, step)
                    place.write_bytes(new)
                    world = kind(place, handles)
                    for each in done:
                        world.step(*each)
                    ran += 1
                    assert world.kept(), f"more was handed out than the budget holds: {done}"
                    state = world.state(), befallen or step[2] != "nothing"
                    first = state not in reached
                    if first:
                        reached.add(state)
                        longer.append((done, state[1], prune and handles > 1 and world.known(0) == world.known(1)))
                        world.drain()
                        assert world.kept(), f"more was handed out than the budget holds: {done}, and all that is left"
                    world.end(verify=first)
                    clean(place)
            frontier = longer
        gc.unfreeze()
    print(f"{kind.__name__}: {handles} handles, {operations} operations: {ran:,} histories to {len(reached):,} states")
    return ran, reached


@pytest.mark.parametrize(
    ("kind", "handles", "operations"),
    [(CuratorWorld, 1, 2), (CuratorWorld, 2, 1), (CuratorWorld, 3, 1), (ClientWorld, 1, 1), (DatasetWorld, 1, 1)],
)
def test_every_short_history_hands_out_no_more_than_the_budget(
    kind: type[World], handles: int, operations: int
) -> None:
    ran, reached = every_history(handles, operations, kind)
    assert ran >= max(handles - 1, 1) * 7 * len(BEFALLS)  # of two that know the same, one goes on
    assert len(reached) > 4


def test_handles_that_know_the_same_may_change_names() -> None:
    """What is left out of the exhaustive runs leads nowhere else."""
    assert every_history(2, 1)[1] == every_history(2, 1, prune=False)[1]


@pytest.mark.slow
def test_handles_that_know_the_same_may_change_names_in_longer_histories() -> None:
    assert every_history(2, 3)[1] == every_history(2, 3, prune=False)[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CuratorWorld, ClientWorld, DatasetWorld])
@pytest.mark.parametrize("handles", [1, 2, 3])
def test_every_history_of_four_operations_hands_out_no_more_than_the_budget(kind: type[World], handles: int) -> None:
    ran, reached = every_history(handles, 4, kind)
    assert ran > 700 * handles
    assert len(reached) > 100 * handles
