"""What ``dodona serve`` was told, as one value that reaches every worker process."""

from __future__ import annotations

import ipaddress
import json
import math
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from dodona.errors import Refused

# When a piece of work ends for everyone but its own thread: on a public schedule, so that how long it took says
# nothing about rows.
#
# Work per question does not depend on row values by construction (row-local, total expressions; tables instead of
# rejection in the samplers). What is left is the machine's own jitter, and this room hides that (HOSTILE A12, A13):
#
#     ends at  tick * 2^j  after the charge,  j the least with  tick * 2^j >= t + max(t, tick)/5 * X,
#
# t the time the work took, X exponential with mean 1, from the operating system's randomness. If one row can move t by
# at most D, the probability of ending after any tick changes by a factor of at most exp(5 D / max(t, tick)): a random
# delay on a stable program; the doubling leaves an observer a handful of outcomes instead of a clock.
#
# X is drawn once, and everything that tells of the work comes after its moment (R16): the answer is stored then, so
# that its place in the ledger, and what a repeat of the request finds, move then; it leaves after that; and only then
# is the thread free for the next question.


TICK = 0.1
NOISE = 0.2
Result = TypeVar("Result")


def exponential() -> float:
    """X >= 0 with mean 1, from 53 bits of the operating system's randomness."""
    return -math.log((secrets.randbits(53) + 1) / 2**53)


@dataclass(frozen=True)
class Pacer:
    """``tick``: the first moment at which work may end, in seconds. ``draw``: X above."""

    tick: float = TICK
    draw: Callable[[], float] = exponential

    def due(self, took: float) -> float:
        """The moment, counted from the charge, at which work that took ``took`` seconds ends."""
        blurred = took + max(took, self.tick) * NOISE * self.draw()
        steps = math.ceil(math.log2(blurred / self.tick)) if blurred > self.tick else 0
        return float(self.tick * 2**steps)

    def hold(self, work: Callable[[], Result]) -> Result:
        """Run ``work``, which has just been charged and may read rows. It ends at its moment, well or badly."""
        start = time.monotonic()
        try:
            return work()
        finally:
            end = start + self.due(time.monotonic() - start)
            while (left := end - time.monotonic()) > 0:
                time.sleep(left)


VARIABLE = "DODONA_SERVE"
"""The environment variable through which workers get their settings. It holds no key; a ledger's address may hold a
password, and an environment is its own user's to read.
"""


@dataclass(frozen=True)
class Settings:
    """``surveys``: paths of survey.toml files. ``folder``: where keys, survey reports and heads of ledgers are kept.

    ``ledger``: None for the one each survey names, or a PostgreSQL address for all of them. ``tick``: see ``timing``.
    ``rate``: requests a second one key may make; ``running``: how many of its questions may be at work at once.
    ``connections``: how many one address may hold in one process.
    ``audit``: the file the audit log is appended to, or None for standard error.
    """

    surveys: tuple[str, ...]
    folder: str
    host: str = "127.0.0.1"
    port: int = 8400
    ledger: str | None = None
    keys: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure_listen: bool = False
    workers: int = 1
    tick: float = TICK
    rate: float = 100.0
    running: int = 8
    connections: int = 250
    audit: str | None = None

    def __post_init__(self) -> None:
        if "DODONA_SEED" in os.environ:
            raise Refused("DODONA_SEED must not be set: noise comes from the operating system, and no seed exists.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Refused("TLS needs both a certificate and its key: --tls-cert and --tls-key.")
        if not loopback(self.host) and self.tls_cert is None and not self.insecure_listen:
            raise Refused(
                f"keys and answers must not cross a network in the clear. {self.host!r} is not loopback: give "
                "--tls-cert and --tls-key, or --insecure-listen where a proxy on a private network speaks TLS."
            )

    @property
    def key_file(self) -> Path:
        """Where keys are kept."""
        return Path(self.keys) if self.keys is not None else Path(self.folder) / "dodona.keys"

    @property
    def survey_file(self) -> Path:
        """Where surveys and their reports are kept."""
        return Path(self.folder) / "dodona.surveys"

    @property
    def head_file(self) -> Path:
        """Where the newest entries of the ledgers are remembered."""
        return Path(self.folder) / "dodona.heads"

    @property
    def url(self) -> str:
        """Where a client on this machine finds us."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{self.port}"

    def to_environment(self) -> None:
        """For the workers."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @staticmethod
    def from_environment() -> Settings:
        """In a worker."""
        fields = json.loads(os.environ[VARIABLE])
        return Settings(**{**fields, "surveys": tuple(fields["surveys"])})


def loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
