"""Which public groups a charge touches (SuLQ section 3.1.2: charging row by row).

Public columns split the population into ``atoms`` 0..m-1. A question restricted to some atoms reads no row of the
others, so it costs them nothing: questions on disjoint groups are charged in parallel. A scope is a sorted tuple of
atoms, or None for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dodona.errors import Refused

MOST_ATOMS = 65_536


def normal(scope: Iterable[int] | None, atoms: int) -> tuple[int, ...] | None:
    """The one form of a scope: sorted, without repeats, and None when it names every atom."""
    if scope is None:
        return None
    named = tuple(scope)
    if not named or any(isinstance(a, bool) or not isinstance(a, int) or not 0 <= a < atoms for a in named):
        raise Refused(
            f"A scope must name at least one atom, each a whole number from 0 to {atoms - 1}. This one does not."
        )
    distinct = tuple(sorted(set(named)))
    return None if len(distinct) == atoms else distinct


def ranges(scope: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring atoms, first and last inclusive: (0, 1, 2, 7) gives (0, 2), (7, 7)."""
    first: int | None = None
    last = -1
    for atom in scope:
        if first is None or atom != last + 1:
            if first is not None:
                yield first, last
            first = atom
        last = atom
    if first is not None:
        yield first, last


def written(scope: tuple[int, ...] | None) -> str | None:
    """A scope as short text, the same text for the same scope: "0-2,7"."""
    return None if scope is None else ",".join(f"{a}-{b}" if a < b else str(a) for a, b in ranges(scope))


def read(text: str | None) -> tuple[int, ...] | None:
    """The inverse of ``written``. Raises ValueError on anything ``written`` cannot have made."""
    if text is None:
        return None
    atoms: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high >= MOST_ATOMS:
            raise ValueError("a scope names an atom that cannot exist")
        atoms.extend(range(low, high + 1))
    scope = tuple(atoms)
    if written(scope) != text:
        raise ValueError("a scope is not in its one form")
    return scope
