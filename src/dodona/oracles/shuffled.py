"""Nobody is trusted with a row, one party with whose it is: rows randomise themselves, and a shuffler forwards.

``Shuffled`` is ``Local`` with an anonymous shuffler between rows and collector. Answers are sums of reports, which have
no order, so they are the same; what changes is what a person is promised: epsilon against everyone, the shuffler
too, as on ``Local``; and against whoever sees no more than what was forwarded the far smaller ``central`` at ``delta``
(``privacy/shuffling.py``). It is the promise of all that the budget admits, however questions are chosen, since every
row answers every question: a row hides among all others, not among a few.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.engines.table import Table, require_table
from dodona.errors import BadEffort, Unsupported
from dodona.oracles.curator import Curator
from dodona.oracles.local import Local
from dodona.oracles.local.offer import Offer
from dodona.oracles.oracle import Oracle, Question
from dodona.privacy.budget import Budget
from dodona.privacy.numbers import Number, exact
from dodona.privacy.shuffling import central_epsilon, local_epsilon

TRUSTED = ("a trusted curator", "an anonymous shuffler", "nobody trusted")


def side_by_side(table: Table, question: Question, epsilon: Number, delta: Number) -> Outlooks:
    """The question by each who could be trusted, each with all of one promise: (``epsilon``, ``delta``) to whoever sees
    the answers. Reads no row, charges nothing.

    A curator adds the noise; behind a shuffler a row spends the largest epsilon that keeps the promise; where nobody is
    trusted a row spends ``epsilon``. Who cannot answer it is listed with the reason.
    """

    def shuffled() -> Oracle:
        rows = table.engine.rows() if require_table(table).neighbours == "replace" else 1
        return Shuffled(table, local_epsilon(epsilon, delta, rows), delta)

    ways: tuple[Callable[[], Oracle], ...] = (
        lambda: Curator(table, Budget(epsilon=epsilon, delta=delta)),
        shuffled,
        lambda: Local(table, epsilon),
    )
    return Outlooks(_priced(who, way, question) for who, way in zip(TRUSTED, ways, strict=True))


def _priced(who: str, way: Callable[[], Oracle], question: Question) -> Outlook:
    try:
        found = way().price(question, share=1).outlook
    except Unsupported as refused:
        return Outlook(str(question), Outcome.INFEASIBLE, why=str(refused), method=who)
    return replace(found, why=f"By {found.method}: {found.why}", method=who)


class Shuffled(Local):
    """Answers questions about ``table`` at ``epsilon`` a row in all, and at ``central`` where reports are shuffled.

    ``delta``: at which ``central`` is told; a hundredth of 1/rows is small. ``colluding``: how many other rows may side
    with the collector and tell how they randomised; a row hides among the rest. share= is of every row's epsilon.
    ``interactive``, ``randomiser``, ``ledger``, ``create``: as of ``Local``. With ``interactive=False`` the one
    question's own randomiser may hide a row better than just any, and its bill says so.
    """

    _who: ClassVar[str] = "shuffled"
    _neighbours: ClassVar[str] = "replace, each row randomised by itself and its report shuffled among all"
    _most_blocks: ClassVar[int] = 1  # every row answers every question

    def __init__(
        self,
        table: Table,
        epsilon: Number,
        delta: Number,
        ledger: str | os.PathLike[str] | None = None,
        *,
        colluding: int = 0,
        interactive: bool = True,
        randomiser: str | None = None,
        analyst: str = "shuffled",
        create: bool = False,
    ) -> None:
        rows = require_table(table).engine.rows()
        if isinstance(colluding, bool) or not isinstance(colluding, int) or not 0 <= colluding < max(rows, 1):
            raise BadEffort(
                f"colluding must be a whole number of the other rows, 0 to {max(rows - 1, 0)}. Got {colluding!r}."
            )
        self._delta = exact(delta, "delta", least=Fraction(1, 10**30), most=Fraction(1, 2))
        self._hidden_among = max(rows - colluding, 1)
        stated = {"interactive": interactive, "randomiser": randomiser, "analyst": analyst, "create": create}
        super().__init__(table, epsilon, ledger, **stated)  # type: ignore[arg-type]

    @property
    def central(self) -> Budget:
        """What all that may ever be asked here is worth together against whoever sees what the shuffler forwards."""
        assert self._budget.epsilon is not None  # Local has pure budgets
        return Budget(central_epsilon(self._budget.epsilon, self._delta, self._hidden_among), self._delta)

    def _told(self) -> str:
        promise = self.central
        assert promise.epsilon is not None
        return f", central epsilon {float(promise.epsilon):.4g} at delta {float(self._delta):.4g}"

    def _crowd(self, offer: Offer) -> dict[str, Any]:
        """Of the whole budget; of the one question where there is but one."""
        found = self.central.epsilon
        assert found is not None
        if not self._interactive:
            (scheme,) = offer.schemes
            found = min(found, central_epsilon(scheme.epsilon, self._delta, self._hidden_among, scheme.hiding))
        return {"central": float(found * (1 + Fraction(1, 10**12))), "delta": float(self._delta)}
