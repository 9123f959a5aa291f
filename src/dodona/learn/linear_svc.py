"""A linear support vector machine by noisy gradients (``learn/_descent.py``): rows beyond the margin say nothing.

The hinge max(0, 1 - y s) has a kink where most rows of a good rule are, and there its slope jumps with the noise. So it
is rounded off: for y = +-1 and score s the slope is -y min(max(1 - y s, 0), 1), which is that of (1 - y s)^2 / 2 next
to the margin and of 1/2 - y s for rows far on the wrong side (Rennie 2005, "Smooth hinge classification").
"""

from __future__ import annotations

import numpy as np

from dodona.learn._descent import Descent
from dodona.learn._learner import Task
from dodona.learn._supervised import Floats
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Label


class LinearSVC(Descent):
    """Linear classifier of widest margin, one against the rest.

    ``epsilon``, ``delta``, ``bounds``, ``classes``, ``share``, ``max_iter``, ``tol``: as for ``LogisticRegression``.
    After ``fit``: ``coef_``, ``intercept_``, ``n_iter_``, as for every linear classifier here.
    """

    _plain_rate = 1.5  # the curvature is at most |z|^2, four times that of the log loss

    def _residual(self, task: Task, label: Label, score: Expr) -> Expr:
        sign = Call("sub", (Call("mul", (Literal(2.0), task.is_class(label))), Literal(1.0)))
        short = Call("sub", (Literal(1.0), Call("mul", (sign, score))))
        kept = Call("least", (Call("greatest", (short, Literal(0.0))), Literal(1.0)))
        return Call("neg", (Call("mul", (sign, kept)),))

    def _start(self, classes: int) -> tuple[float, float]:
        return (0.0, 1.0) if classes == 2 else (-1.0 + 2.0 / classes, 1.0)

    def _evidence(self, rows: Floats) -> Floats:
        scores = self._scores(rows)
        return np.hstack([-scores, scores]) if len(self.classes_) == 2 else scores
