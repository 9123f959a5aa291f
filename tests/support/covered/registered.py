"""Every registered release as cases of the law of margins, from the examples it states of itself: it joins thereby."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dodona.engines.table import Table
from dodona.privacy.budget import Budget
from dodona.release.registry import Case, Release, registered_releases
from dodona.testing.margins import Asked, Covered, Told, Truth, World
from dodona.testing.oracles import seeded_curator


def covered_release(release: Release, case: Case) -> Covered:
    """One example of one release: its own table, settings and questions, in every world its schema allows."""
    nullable = [name for name in case.schema if case.schema[name].missing is None]

    def table(world: World) -> Table:
        random = np.random.default_rng(41)
        held: dict[str, Any] = dict(case.draw(max(world.rows, case.rows), random))
        for name in nullable:
            gone = random.random(len(held[name])) < world.absent
            held[name] = np.ma.array(held[name], mask=gone) if gone.any() else held[name]
        rows = len(next(iter(held.values()))) if case.neighbours == "add-remove" else None
        return Table(held, case.schema, neighbours=case.neighbours, rows=rows, unit=case.unit, name="t")

    def make(rows: Table, world: World, seed: int) -> Any:
        budget = world.budget
        if case.keys:
            budget = Budget(epsilon=world.epsilon, delta=world.delta, keys=case.keys)
        return release.make(seeded_curator(rows, budget, seed), **case.settings, share=1)

    found = [f"mechanism:{'threshold' if case.unit is None else 'weighted threshold'}"] if case.keys else []
    quick = World(rows=max(600, case.rows), missing="none" if nullable else "stated")
    return Covered(
        f"{release.name}: {case.name}",
        (f"release:{release.name}", f"synopsis:{case.gives}", *found),
        table,
        make,
        published,
        (Asked(tuple(case.inside)),),
        edge=tuple(case.edge),
        outside=tuple(case.outside),
        proven=False,
        quick=replace(quick, delta=1e-6) if case.delta else quick,
        runs=4,
        full=16,
        fixed={"unit": False, "heavy": False, **({"delta": 1e-6} if case.delta else {})}
        | ({} if nullable else {"missing": "stated"}),
    )


def published(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """One question of the synopsis; its answer says whether the margin is proven."""
    return Told.of(made.ask(question, confidence=confidence), truth(question), proven=made.body.proven)


REGISTERED: tuple[Covered, ...] = tuple(
    covered_release(release, case) for release in registered_releases().values() for case in release.cases()
)
