"""MASKED-PARITY (KLNRS section 5.3): the class that two rounds of questions learn and one round cannot.

c_{r,a}(x, i, b) = (-1)^(r.x + a) where b = 0, and (-1)^(r_i) where b = 1, over x in {0, 1}^d, i in 0..d-1 and b in
{0, 1}. A label of -1 is stored as true.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.parities import parity_of
from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Flag, Integer, Schema


@dataclass(frozen=True)
class MaskedParity:
    """``bits`` = d: columns x0.., ``index`` in 0..d-1, ``half`` (b) and ``label``."""

    bits: int

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 2 <= self.bits <= 62:
            raise BadQuery(f"bits must be a whole number from 2 to 62. Got {self.bits!r}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of x."""
        return tuple(f"x{place}" for place in range(self.bits))

    @property
    def schema(self) -> Schema:
        """The public facts; nothing is missing in this class."""
        flag = Flag(missing=False)
        columns: dict[str, Integer | Flag] = dict.fromkeys(self.names, flag)
        return Schema({**columns, "index": Integer(0, self.bits - 1, missing=0), "half": flag, "label": flag})

    def parity(self, mask: tuple[bool, ...]) -> Expr:
        """Whether r.x is odd."""
        return parity_of([Column(name) for name, used in zip(self.names, mask, strict=True) if used])

    def concept(self, mask: tuple[bool, ...], negated: bool) -> Expr:
        """c_{r,a} = -1 as a row condition."""
        parity = self.parity(mask)
        masked = Call("not", (parity,)) if negated else parity
        bit: Expr = Literal(False)
        for place, used in enumerate(mask):
            if used:
                bit = Call("or", (Call("eq", (Column("index"), Literal(float(place)))), bit))
        return Call("if", (Column("half"), bit, masked))

    def sample(self, rows: int, mask: tuple[bool, ...], negated: bool, seed: int) -> dict[str, NDArray[np.generic]]:
        """Rows drawn uniformly and labelled by c_{r,a}: made-up data for experiments."""
        generator = np.random.default_rng(seed)
        x = generator.integers(0, 2, (rows, self.bits)).astype(bool)
        index, half = generator.integers(0, self.bits, rows), generator.integers(0, 2, rows).astype(bool)
        used = np.array(mask)
        parity = (x[:, used].sum(axis=1) % 2 == 1) ^ negated
        label = np.where(half, used[index], parity)
        columns: dict[str, NDArray[np.generic]] = {name: x[:, place] for place, name in enumerate(self.names)}
        return {**columns, "index": index, "half": half, "label": label}
