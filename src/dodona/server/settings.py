"""What ``dodona serve`` was told, as one value that reaches every worker process."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from dodona.errors import Refused
from dodona.server.timing import TICK

VARIABLE = "DODONA_SERVE"
"""The environment variable through which workers get their settings. It holds no key; a ledger's address may hold a
password, and an environment is its own user's to read.
"""


@dataclass(frozen=True)
class Settings:
    """``surveys``: paths of survey.toml files. ``folder``: where keys, synopses and survey reports are kept.

    ``ledger``: None for the one each survey names, or a PostgreSQL address for all of them. ``tick``: see ``timing``.
    ``rate``: requests a second one key may make; ``running``: how many of its questions may be at work at once.
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
