"""Any dataset behind a server, as an oracle: the analyst's own machine runs the algorithm and sees noisy answers only.

Questions travel as JSON values, never as code. The server parses, prices, charges and answers; what it
answers is what the oracle there would have. The line to it is HTTP with the standard library alone, kept open, retried,
and never in the clear. Every request that may be charged carries a name of its own, so a retry after a lost line is
neither charged twice nor given new noise.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import secrets
import ssl
import threading
import time
import weakref
from copy import copy
from dataclasses import replace
from typing import Any, Unpack
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
from dodona.oracles.answer import Answer, Finding, Price, Selection
from dodona.oracles.oracle import Oracle, Request
from dodona.query.expr import expr_from_json
from dodona.query.persons import OfPeople
from dodona.query.schema import Schema
from dodona.query.select import Scope, Source, read_from

VARIABLE = "DODONA_KEY"
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


class Remote(Oracle):
    """``dataset`` of the server behind ``connection``. ``share=`` is of the whole lifetime budget, as everywhere."""

    def __init__(self, connection: Connection, dataset: str) -> None:
        self._line, self._dataset = connection, dataset
        about = self._about()
        self._schema = Schema.read(about["schema"])
        self._rows: int | None = about["rows"]
        self._whose: str | None = about["whose"]
        self._called, self._source = dataset, dict[str, Any]()
        self._joins: dict[Source, tuple[Remote, Scope]] = {}

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._schema

    @property
    def rows(self) -> int | None:
        """The public number of rows."""
        return self._rows

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self._called

    def joined(self, source: Source) -> tuple[Oracle, Scope]:
        """Tables joined there; what they are called and hold is asked once."""
        if source not in self._joins:
            found = json.loads(self._line.post(self._path("join"), {"from": str(source)}))
            other = copy(self)
            other._schema, other._called, other._joins = Schema.read(found["schema"]), found["name"], {}
            other._source = {"from": str(source)}
            conditions = tuple(map(expr_from_json, found["conditions"]))
            self._joins[source] = other, Scope(found["tables"], conditions)
        return self._joins[source]

    def persons(self, select: str, **stated: Unpack[OfPeople]) -> Oracle:
        """People made of rows there."""
        people = {"select": select, **{name: value for name, value in stated.items() if value is not None}}
        found = json.loads(self._line.post(self._path("join"), {"people": people}))
        other = copy(self)
        other._schema, other._called, other._rows = Schema.read(found["schema"]), found["name"], found["rows"]
        other._source, other._joins = {"people": people}, {}
        return other

    def join(self, text: str, *, rows: int | None = None) -> Oracle:
        """As everywhere; rows without a match are left out there. How many rows a join has is not said over a line."""
        if rows is not None:
            raise Unsupported("about how many rows a join has is said by who holds them: leave rows out.")
        return self.joined(read_from(text))[0]

    @property
    def whose(self) -> str | None:
        """The column that says whose row it is."""
        return self._whose

    @property
    def left(self) -> float:
        """What this key can still spend, in the budget's unit; asked anew each time."""
        return float(self._about()["analyst"]["left"])

    def answer(self, request: Request) -> Answer:
        """Charged and answered there; a retry after a lost line is safe."""
        return Answer.from_json(self._charged("ask", *self._put(request)))

    def estimate(self, request: Request) -> Price:
        """Priced there; nothing is charged."""
        asked, put = self._put(request)
        body = {**asked, **self._source_of(asked), "effort": put.effort.to_json()}
        return Price.from_json(self._line.post(self._path("price"), body))

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Chosen there, among the coordinates of a query or by scores, which travel as values too."""
        asked = {"query": request.query.to_json(), "mechanism": mechanism, **_bounds(request)}
        return Selection.from_json(self._charged("select", asked, request))

    def perform(self, request: Request) -> Finding:
        """Run there, by the table's own bounds."""
        if request.bounds is not None:
            raise Unsupported("a procedure sees rows by its own bounds, or the table's own max_rows: state no other.")
        return Finding.from_json(self._charged("run", {"procedure": request.query.to_json()}, request))

    def _put(self, request: Request) -> tuple[dict[str, Any], Request]:
        """A question as it travels: a SELECT as its text, unless a view has rewritten what it asks."""
        select, effort = request.select, request.effort
        if select is not None and select.query == request.query and "people" not in self._source:
            return {"sql": select.text, **_bounds(request)}, request
        if select is not None and effort.kind == "tolerance" and self._rows is not None:  # there it is of means
            effort = replace(effort, amount=effort.amount / max(self._rows, 1))
        return {"query": request.query.to_json(), **_bounds(request)}, replace(request, effort=effort)

    def _charged(self, route: str, asked: dict[str, Any], request: Request) -> str:
        body = {**asked, **self._source_of(asked), "effort": request.effort.to_json()}
        return self._line.post(self._path(route), body, request.key or secrets.token_hex(16))

    def _source_of(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The tables joined, or the people, where what is asked does not say them by itself."""
        return {} if "sql" in asked else self._source

    def _about(self) -> Any:
        return self._line.get("v1", "datasets", self._dataset)

    def _path(self, route: str) -> tuple[str, ...]:
        return "v1", "datasets", self._dataset, route


def _bounds(request: Request) -> dict[str, Any]:
    """As they travel, where a question states any."""
    return {} if request.bounds is None else {"bounds": request.bounds.describe()}


def connect(
    url: str,
    *,
    key: str | None = None,
    dataset: str | None = None,
    insecure: bool = False,
    certificates: str | None = None,
    timeout: float = 600.0,
) -> Remote:
    """The oracle behind a server: ``connect("https://host:8400", key=...)``.

    ``key``: as the curator gave it; from the environment variable DODONA_KEY if not stated. ``dataset``: its name;
    needed where the key opens several. ``certificates``: a PEM file of authorities to trust instead of the system's.
    """
    stated = key or os.environ.get(VARIABLE)
    if not stated:
        raise Refused(f"a server needs a key: connect(url, key=...), or the environment variable {VARIABLE}.")
    line = Connection(url, stated.strip(), insecure=insecure, certificates=certificates, timeout=timeout)
    if dataset is None:
        names = [item["name"] for item in line.get("v1", "datasets")["items"]]
        if len(names) != 1:
            raise Refused(f"state dataset=, one of those your key opens: {', '.join(names) or 'none'}.")
        dataset = names[0]
    return Remote(line, dataset)
