"""Any dataset behind a server, as an oracle: the analyst's own machine runs the algorithm and sees noisy answers only.

Questions travel as JSON values (``query.to_json``), never as code. The server parses, prices, charges and answers; what
it answers is what the oracle there would have.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import Any

from dodona.answer import Answer, Finding, Price, Selection
from dodona.errors import Refused
from dodona.oracle import Oracle, Request
from dodona.query.schema import Schema
from dodona.trust.connection import Connection
from dodona.trust.wire import effort_to_json, price_from_json

VARIABLE = "DODONA_KEY"


class Remote(Oracle):
    """``dataset`` of the server behind ``connection``. ``share=`` is of the whole lifetime budget, as everywhere."""

    def __init__(self, connection: Connection, dataset: str) -> None:
        self._line, self._dataset = connection, dataset
        about = self._about()
        self._schema = Schema.read(about["schema"])
        self._rows: int | None = about["rows"]

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
        return self._dataset

    @property
    def left(self) -> float:
        """What this key can still spend, in the budget's unit; asked anew each time."""
        return float(self._about()["analyst"]["left"])

    def answer(self, request: Request) -> Answer:
        """Charged and answered there; a retry after a lost line is safe."""
        asked = {"sql": request.text} if request.text is not None else {"query": request.query.to_json()}
        return Answer.from_json(self._charged("ask", asked, request))

    def estimate(self, request: Request) -> Price:
        """Priced there; nothing is charged."""
        body = {"query": request.query.to_json(), "effort": effort_to_json(request.effort)}
        return price_from_json(json.loads(self._line.post(self._path("price"), body)))

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Chosen there, among the coordinates of a query or by scores, which travel as values too."""
        asked = {"query": request.query.to_json(), "mechanism": mechanism}
        return Selection.from_json(self._charged("select", asked, request))

    def perform(self, request: Request) -> Finding:
        """Run there."""
        return Finding.from_json(self._charged("run", {"procedure": request.query.to_json()}, request))

    def _charged(self, route: str, asked: dict[str, Any], request: Request) -> str:
        body = {**asked, "effort": effort_to_json(request.effort)}
        return self._line.post(self._path(route), body, request.key or secrets.token_hex(16))

    def _about(self) -> Any:
        return self._line.get("v1", "datasets", self._dataset)

    def _path(self, route: str) -> tuple[str, ...]:
        return "v1", "datasets", self._dataset, route


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
