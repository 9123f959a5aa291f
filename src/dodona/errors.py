"""Every exception Dodona raises on purpose.

::

    DodonaError
    ├── Refused                  nothing was read, nothing was charged
    │   ├── BadQuery             the question is not one we answer (position, what is allowed)
    │   ├── BadSchema            the schema or its file does not say what it must
    │   ├── BadTable             the data is missing, empty, or not what the schema says
    │   ├── BadEffort            epsilon, rho, share or tolerance is absent, doubled or out of range
    │   ├── BudgetSpent          the price is more than what is left
    │   └── Unsupported          this oracle, engine or budget cannot do that, by its nature
    ├── LedgerError              the ledger cannot be trusted or reached; no answer leaves
    │   ├── LedgerUnavailable    locked, full, read-only, or an I/O error
    │   └── LedgerCorrupt        the hash chain, the arithmetic or the file is broken
    ├── BadRandomness            (``mechanisms.bits``) the system's source of randomness is stuck or repeats itself
    └── AnswerLost               charged, then an internal fault; one fixed text, no detail, no refund

Messages follow one shape: what must hold, what was given, what to do. They speak of the question, the schema and the
ledger only. No message ever contains a value from a row, and no row can cause one (HOSTILE R1 and R12).
"""

from __future__ import annotations


class DodonaError(Exception):
    """The root of the tree."""


class Refused(DodonaError):
    """Refused before any row was read and before anything was charged."""


class BadQuery(Refused):
    """The question is outside the language. ``position`` is the offset in the asker's text, when there is one."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message if position is None else f"{message} (at character {position + 1})")
        self.position = position


class BadSchema(Refused):
    """A schema, column or configuration file that does not say what it must."""


class BadTable(Refused):
    """Data that is missing, empty of columns, unreadable, or of another shape than the schema."""


class BadEffort(Refused):
    """An effort (tolerance, share, epsilon, rho, confidence) that is absent, doubled or out of range."""


class BudgetSpent(Refused):
    """The price is more than what is left. Amounts are exact, in the budget's own unit."""

    def __init__(self, message: str, *, price: float, left: float, unit: str) -> None:
        super().__init__(message)
        self.price = price
        self.left = left
        self.unit = unit


class Unsupported(Refused):
    """Something this oracle, engine or budget cannot do by its nature."""


class LedgerError(DodonaError):
    """The ledger cannot vouch for what was spent, so no answer leaves."""


class LedgerUnavailable(LedgerError):
    """Locked by another process, disk full, read-only, or an I/O error."""


class LedgerMissing(LedgerUnavailable):
    """No ledger is at the place, and opening makes none."""


class LedgerCorrupt(LedgerError):
    """The hash chain, the arithmetic or the file itself is broken, or its journal mode is unsafe."""


class AnswerLost(DodonaError):
    """Charged, then an internal fault. The text is fixed: a fault must not describe the data (HOSTILE R12)."""

    def __init__(self) -> None:
        super().__init__(
            "The question was charged, but an internal fault kept its answer. Asking again is charged again."
        )
