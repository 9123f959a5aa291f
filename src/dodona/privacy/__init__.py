"""WHAT it costs: cost values, budgets, conversion, composition and the ledger. Names no mechanism.

- ``Cost`` and ``Budget`` are exact values; ``conversion`` goes between rho and (epsilon, delta), rounded to the safe
  side.
- ``Ledger`` is the contract for spending; ``SqliteLedger`` keeps it in a file (imported when first used: it loads
  SQLite).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dodona.privacy.budget import UNITS as UNITS
from dodona.privacy.budget import Budget as Budget
from dodona.privacy.cost import FREE as FREE
from dodona.privacy.cost import Cost as Cost
from dodona.privacy.ledger import Charge as Charge
from dodona.privacy.ledger import Entry as Entry
from dodona.privacy.ledger import Ledger as Ledger
from dodona.privacy.ledger import Receipt as Receipt
from dodona.privacy.ledger import Verified as Verified
from dodona.privacy.numbers import exact as exact

if TYPE_CHECKING:
    from dodona.privacy.sqlite_ledger import SqliteLedger as SqliteLedger

__all__ = [
    "FREE",
    "UNITS",
    "Budget",
    "Charge",
    "Cost",
    "Entry",
    "Ledger",
    "Receipt",
    "SqliteLedger",
    "Verified",
    "exact",
]


def __getattr__(name: str) -> Any:
    if name == "SqliteLedger":
        from dodona.privacy.sqlite_ledger import SqliteLedger

        return SqliteLedger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
