"""A client's line to a server: HTTP with the standard library alone, kept open, retried, and never in the clear.

Every request that may be charged carries a name of its own, so a retry after a lost line is neither charged twice nor
given new noise.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import ssl
import threading
import time
import weakref
from typing import Any
from urllib.parse import quote, urlsplit

from dodona.errors import (
    AnswerLost,
    BadEffort,
    BadQuery,
    BudgetSpent,
    DodonaError,
    LedgerUnavailable,
    Refused,
    Unsupported,
)

TRIES = 6
PAUSE = 0.1
_BROKEN = (OSError, http.client.HTTPException)  # timeouts and TLS failures are OSErrors
_KINDS: dict[str, type[DodonaError]] = {
    "bad-query": BadQuery,
    "bad-effort": BadEffort,
    "unsupported": Unsupported,
    "ledger": LedgerUnavailable,
}


class Connection:
    """To the server at ``url``, with ``key``. ``insecure``: allow plain HTTP beyond this machine.

    ``certificates``: a PEM file of authorities to trust instead of the system's. Each thread has a line of its own.
    """

    def __init__(
        self, url: str, key: str, *, insecure: bool = False, certificates: str | None = None, timeout: float = 600.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise Refused("a server's address must be such as https://host:port, without ? and #.")
        if parts.username is not None or parts.path.strip("/"):
            raise Refused("a server's address must hold neither a name, a key nor a path: https://host:port.")
        if parts.scheme == "http" and not insecure and not _loopback(parts.hostname):
            raise Refused(
                f"a key must not cross a network in the clear. {parts.hostname!r} is not this machine: use https://, "
                "or insecure=True where something else keeps the line private."
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise Refused("a key must be the text that `dodona key add` printed.")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port, self._key, self._timeout = parts.hostname, parts.port, key, timeout
        self._tls = ssl.create_default_context(cafile=certificates) if parts.scheme == "https" else None
        self._lines = threading.local()
        self._opened: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close, self._opened, os.getpid())

    def get(self, *path: str) -> Any:
        """The value at a path."""
        return json.loads(self.send("GET", path))

    def post(self, path: tuple[str, ...], body: dict[str, Any], name: str | None = None) -> str:
        """The text of the response; ``name``: the request's idempotency key, without which it must be free."""
        return self.send("POST", path, json.dumps(body, allow_nan=False).encode(), name).decode()

    def send(self, method: str, path: tuple[str, ...], body: bytes | None = None, name: str | None = None) -> bytes:
        """Send until answered; the server's refusals are raised as the library's own."""
        target = "/" + "/".join(quote(part, safe="") for part in path)
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        headers |= {} if name is None else {"Idempotency-Key": name}
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            try:
                status, wait, found = self._exchange(method, target, body, headers)
            except ssl.SSLCertVerificationError:
                raise Refused(f"the certificate of {self.url} must be valid, and is not.") from None
            except _BROKEN:
                if last:
                    raise LedgerUnavailable(
                        f"the server at {self.url} cannot be reached. What was sent may have been charged; asking "
                        "again with the same request_id is safe."
                    ) from None
                time.sleep(PAUSE * 2**attempt)
                continue
            if status == 429 and not last:
                time.sleep(min(wait, 30.0))
                continue
            if status >= 300:
                raise refusal(status, found)
            return found
        raise AssertionError  # the last attempt returns or raises

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, float, bytes]:
        line = self._line()
        try:
            line.request(method, target, body, headers)
            response = line.getresponse()
            found = response.read()
        except BaseException:
            line.close()
            raise
        wait = response.getheader("Retry-After", "1")
        return response.status, float(wait) if wait.isdecimal() else 1.0, found

    def _line(self) -> http.client.HTTPConnection:
        kept: tuple[int, http.client.HTTPConnection] | None = getattr(self._lines, "kept", None)
        if kept is None or kept[0] != os.getpid():  # a forked child must not share its parent's line
            made = (
                http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
                if self._tls is None
                else http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
            )
            kept = self._lines.kept = (os.getpid(), made)
            self._opened.append(made)
        return kept[1]


def _close(lines: list[http.client.HTTPConnection], process: int) -> None:
    if process == os.getpid():
        for line in lines:
            line.close()


def refusal(status: int, body: bytes) -> DodonaError:
    """A problem document as the exception it was made from."""
    try:
        problem = json.loads(body)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return LedgerUnavailable(f"the server's response (status {status}) is not one of ours.")
    if code == "budget-spent":
        return BudgetSpent(detail, price=problem["price"], left=problem["left"], unit=problem["unit"])
    if code == "answer-lost":
        return AnswerLost()
    if code == "fault":
        return LedgerUnavailable("the server had an internal fault; whether it charged is not known.")
    return _KINDS.get(code, Refused)(detail)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
