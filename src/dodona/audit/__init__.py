"""Attack ourselves: proofs on small sizes, lower bounds on whole algorithms, and the attacks others would try.

``every_check`` is what ``dodona audit`` runs; ``canary`` bounds what a whole algorithm gives away; ``reconstruct``
tries to get the rows back; ``belief`` says what an adversary may come to think of one row (SuLQ Definition 1).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dodona.audit.belief import Belief, Observation
    from dodona.audit.canaries import CanaryAudit, canary
    from dodona.audit.exact import ExactAudit, epsilon_audit, rho_audit
    from dodona.audit.reconstruction import Reconstruction, reconstruct
    from dodona.audit.suite import every_check
    from dodona.audit.tape import Tape, TapeAudit, tape_audit
    from dodona.audit.transcript import Adversary
    from dodona.audit.witness import watched

_HOME = {
    "Adversary": "transcript",
    "Belief": "belief",
    "CanaryAudit": "canaries",
    "ExactAudit": "exact",
    "Observation": "belief",
    "Reconstruction": "reconstruction",
    "Tape": "tape",
    "TapeAudit": "tape",
    "canary": "canaries",
    "epsilon_audit": "exact",
    "every_check": "suite",
    "reconstruct": "reconstruction",
    "rho_audit": "exact",
    "tape_audit": "tape",
    "watched": "witness",
}

__all__ = [
    "Adversary",
    "Belief",
    "CanaryAudit",
    "ExactAudit",
    "Observation",
    "Reconstruction",
    "Tape",
    "TapeAudit",
    "canary",
    "epsilon_audit",
    "every_check",
    "reconstruct",
    "rho_audit",
    "tape_audit",
    "watched",
]


def __getattr__(name: str) -> Any:
    """Opened when first asked for. (``tape`` is the module of that name; its function is ``audit.tape.tape``.)"""
    if name not in _HOME:
        raise AttributeError(f"module 'dodona.audit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dodona.audit.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
