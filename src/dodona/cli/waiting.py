"""While a command works: signs of life in a terminal, and what Ctrl-C does.

Before a charge Ctrl-C ends the command, and nothing was paid. What is charged is paid for, so after a charge the first
Ctrl-C only says so, and the work goes on to its answer; the second loses it. A release of many questions ends after the
one that is being answered: what was answered is kept under the request's name, and the same command with
``--request-id`` goes on from there.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from dodona.cli import show
from dodona.errors import AnswerLost, DodonaError

PATIENCE = 2.0
"""Seconds that pass without a word."""
_BEAT = 0.5


class Stopped(DodonaError):
    """Ctrl-C, and nothing that was paid for is lost."""


class Lost(AnswerLost):
    """Ctrl-C a second time, after a charge."""

    def __init__(self) -> None:
        DodonaError.__init__(self, "the question was charged, and stopped before its answer came. That is final.")


class Wait:
    """``with Wait("asking", name) as wait``, around what may take long; ``name``: what the request is called.

    ``many``: of a release, which may spend the share ``most``. ``there``: a server works, and goes on whatever is done.

    ``during`` runs what follows a charge (``Curator.sharing``), and ``answered`` is told of each answer that is kept.
    """

    def __init__(self, doing: str, name: str, *, many: bool = False, there: bool = False, most: float = 1.0) -> None:
        self._doing, self._name, self._many, self._there, self._most = doing, name, many, there, most
        self._charged, self._kept, self._share, self._asked = 0, 0, 0.0, False
        self._start, self._over = time.monotonic(), threading.Event()
        self._shown = False
        self._teller = threading.Thread(target=self._tell, daemon=True) if sys.stderr.isatty() else None

    def during(self, work: Callable[[], Any]) -> Any:
        """The work that a charge has paid for."""
        self._charged += 1
        return work()

    def answered(self, questions: int, share: float) -> None:
        """Of many, so many answers are kept, at this ``share`` of the budget in all; a good moment to end."""
        self._kept, self._share = questions, share
        if self._asked:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._interrupted)
        if self._teller is not None:
            self._teller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._over.set()
        if self._teller is not None:
            self._teller.join()
        if kind is not KeyboardInterrupt:
            return
        if self._there:
            raise Stopped(
                "the server may have charged it, and goes on. The same command with "
                f"--request-id {self._name} brings the answer and pays nothing twice."
            ) from None
        if not self._charged:
            raise Stopped("nothing was charged.") from None
        if self._kept >= self._charged:
            raise Stopped(
                f"{show.percent(self._share)} of the budget is charged, and the answers are kept. The same command "
                f"with --request-id {self._name} goes on from there and pays nothing twice."
            ) from None
        raise Lost from None

    def _interrupted(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._asked or not (self._charged or _paying(frame)):
            raise KeyboardInterrupt
        self._asked = True
        kept = "it ends after this answer" if self._many else "the answer comes"
        self._say(f"charged; {kept}. Ctrl-C again to lose what is being answered.")

    def _tell(self) -> None:
        """In a thread of its own."""
        left = PATIENCE
        while not self._over.wait(left):
            left = _BEAT
            self._shown = True
            sys.stderr.write(f"\r{self._doing}: {self._so_far()}\x1b[K" if show.fancy(sys.stderr) else ".")
            sys.stderr.flush()
        if self._shown:
            sys.stderr.write("\r\x1b[K" if show.fancy(sys.stderr) else "\n")
            sys.stderr.flush()

    def _so_far(self) -> str:
        gone = time.monotonic() - self._start
        if not self._share:
            return f"{gone:.0f} s"
        rest = gone * max(self._most / self._share - 1, 0)
        return f"{show.percent(self._share)} of the budget, {gone:.0f} s; about {rest:.0f} s to go"

    def _say(self, text: str) -> None:
        show.say(("\r\x1b[K" if self._shown and show.fancy(sys.stderr) else "") + f"dodona: {text}", sys.stderr)


def _paying(frame: FrameType | None) -> bool:
    """Whether a charge is being written just now: what comes of it is not known before it is done."""
    from dodona.privacy.ledger.rules import ChainLedger

    while frame is not None and frame.f_code is not ChainLedger.charge_together.__code__:
        frame = frame.f_back
    return frame is not None
