"""Free answers: a question that a published synopsis already answers well enough is not asked of the rows again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dodona.answer import Answer
from dodona.errors import Refused
from dodona.oracle import Request
from dodona.synopses.base import Synopsis


def published_answer(
    synopses: Sequence[Synopsis], request: Request, rows: int | None
) -> tuple[Synopsis, Answer] | None:
    """The attached synopsis with the least stated error, if that meets the question's tolerance; else None.

    Only a tolerance says how good an answer must be; a share, epsilon or rho asks for noise of its own. Synopses see
    the question, never rows, so looking is free.
    """
    if request.effort.kind != "tolerance" or rows is None:
        return None
    best: tuple[float, Synopsis, Answer] | None = None
    for synopsis in synopses:
        try:
            answer = synopsis.answer(request)
        except Refused:  # not a question of its class
            continue
        worst = float(np.max(answer.margin)) / max(rows, 1)
        if worst <= float(request.effort.amount) and (best is None or worst < best[0]):
            best = worst, synopsis, answer
    return None if best is None else best[1:]
