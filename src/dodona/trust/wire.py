"""What travels between a ``Remote`` oracle and its server, apart from answers: efforts and prices as JSON values.

Numbers that bear privacy travel as text, exact: "1/3", "0.05". Where a fraction is too long for that it is rounded
down, so that never more is spent, nor less accuracy promised, than was asked.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from dodona.answer import Bill, Numbers, Price, plain
from dodona.effort import Effort

_LONGEST = 40
_SCALE = 10**36


def effort_to_json(effort: Effort) -> dict[str, str]:
    """As the API takes it."""
    return {effort.kind: _text(effort.amount), "confidence": repr(effort.confidence)}


def price_to_json(price: Price) -> dict[str, Any]:
    """Plain data; ``price_from_json`` is the inverse. One number stands for an array of equal ones."""
    return {
        "question": price.question,
        "cost": vars(price.cost),
        "shape": list(np.shape(price.spread)),
        "spread": _short(price.spread),
        "margin": _short(price.margin),
        "tolerance": _short(price.tolerance),
        "confidence": price.confidence,
        "rows": price.rows,
        "sensitivity": price.sensitivity,
        "affordable": price.affordable,
    }


def price_from_json(data: dict[str, Any]) -> Price:
    """The inverse of ``price_to_json``."""
    shape = tuple(data["shape"])
    spread, margin = (
        plain(np.array(np.broadcast_to(np.asarray(data[name], dtype=np.float64), shape)))
        for name in ("spread", "margin")
    )
    known = data["confidence"], data["rows"], data["sensitivity"], data["affordable"]
    return Price(data["question"], Bill(**data["cost"]), spread, margin, *known)


def _short(values: Numbers) -> Any:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim and array.size and bool(np.all(array == array.flat[0])):
        return float(array.flat[0])
    return array.tolist()


def _text(number: Fraction) -> str:
    whole = str(number)
    if len(str(number.numerator)) <= _LONGEST and len(str(number.denominator)) <= _LONGEST:
        return whole
    scaled = int(number * _SCALE)
    units, rest = divmod(scaled, _SCALE)
    return f"{units}.{rest:036d}"
