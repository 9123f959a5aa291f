"""How useful a synopsis is (BLR Definitions 2.6 and 5.3), among the other things a curator audits.

The same as ``synopsis.evaluate(exact, concepts)``; computed in ``dodona.synopses.usefulness``.
"""

from __future__ import annotations

from dodona.synopses.usefulness import NOT_PRIVATE, Usefulness, usefulness

__all__ = ["NOT_PRIVATE", "Usefulness", "usefulness"]
