"""Whether what concurrent clients saw of a ledger could have happened one operation after the other.

The search of Wing and Gong (1993), with Lowe's memory of visited states (2017): an operation may take effect at any
instant between its call and its return; a history is linearizable if some order of those instants explains every reply.
An operation whose reply was lost (its client was killed) may have taken effect at any later time, or never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

State = Any
"""Whatever a model keeps; hashable, and never changed once made."""

NEVER = float("inf")
"""The return of an operation that never returned."""


@dataclass(frozen=True)
class Operation:
    """``call`` and ``reply``: instants by one clock. ``asked`` and ``told``: what was asked and what came back."""

    call: float
    reply: float
    asked: tuple[object, ...]
    told: object


class Model(Protocol):
    """A sequential specification: ``State`` is its own affair."""

    def start(self) -> State:
        """The state before anything was done."""

    def step(self, state: State, operation: Operation) -> Iterator[State]:
        """The states after ``operation`` that its reply allows; none if the reply cannot be."""


@dataclass(frozen=True)
class CappedCounter:
    """A ledger as its askers see it: charges with request ids, up to ``cap``, and readings of what is spent.

    ("charge", id, amount) is told "charged", "repeated" or "refused"; ("spent",) is told a number. The state is what
    was spent and the ids that were charged.
    """

    cap: int

    def start(self) -> State:
        """Nothing spent, no request seen."""
        return 0, frozenset[object]()

    def step(self, state: State, operation: Operation) -> Iterator[State]:
        """What a charge or a reading may leave behind."""
        spent, seen = state
        match operation.asked:
            case ("spent",):
                if operation.told == spent:
                    yield state
            case ("charge", name, int(amount)):
                fits = spent + amount <= self.cap
                outcome = "repeated" if name in seen else "charged" if fits else "refused"
                if operation.told == outcome or operation.reply == NEVER:
                    yield (spent + amount, seen | {name}) if outcome == "charged" else state


def linearizable(history: Sequence[Operation], model: Model) -> bool:
    """Whether some order of the operations, each within its call and reply, explains all replies."""
    operations = sorted(history, key=lambda operation: operation.call)
    everyone = (1 << len(operations)) - 1
    optional = sum(1 << i for i, operation in enumerate(operations) if operation.reply == NEVER)
    waiting = [(0, model.start())]
    visited = set(waiting)
    while waiting:
        done, state = waiting.pop()
        if done | optional == everyone:
            return True
        # Whatever is called after the earliest pending reply cannot come first.
        horizon = min(o.reply for i, o in enumerate(operations) if not done >> i & 1)
        for i, operation in enumerate(operations):
            if operation.call > horizon:
                break
            if done >> i & 1:
                continue
            for after in model.step(state, operation):
                node = (done | 1 << i, after)
                if node not in visited:
                    visited.add(node)
                    waiting.append(node)
    return False
