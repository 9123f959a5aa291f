"""The shuffler: a process of its own between respondents and the collector of a survey, run by somebody else.

Respondents load the page from it and hand in their reports to it; the collector never hears from them. It lets each
token in once, keeps reports in no order, and forwards them only when there are at least ``batch`` of a survey: all of
them at once, sorted by their own bytes, at a moment of its own clock. So what the collector sees of them is how many
there were of each kind, and on which of the clock's ticks there were enough.

What it keeps, and until when: reports until the collector has taken them; tokens as hashes, joined to nothing; what
each survey said of itself the first time, so that no batch becomes smaller than its respondents were told. It keeps no
addresses, no times and no order: its tables are sorted by hashes and random names, it writes no log, and rows that are
deleted are overwritten (what a disk keeps of a journal that is gone is its operator's). It reads surveys once, at its
start, and estimates after each batch, so nothing that a respondent does makes it talk to the collector at that moment.
Fewer than a batch are never forwarded, also when a survey is closed: those who sent them were promised a crowd.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from dodona import __version__
from dodona.errors import DodonaError, LedgerUnavailable, Refused, Unsupported
from dodona.oracles.remote import Connection
from dodona.privacy.ledger.places import make_private
from dodona.server.app import Edge, problem_response
from dodona.server.guard import Audit, Guard, Metrics, Problem, not_found
from dodona.server.requests import read_body
from dodona.server.routes import assets, json_response
from dodona.server.run import taken_address, when_it_listens
from dodona.server.service import Buckets
from dodona.server.settings import Settings
from dodona.server.surveys import PUBLIC_RATE, ReportsBody, counted_before, fitting
from dodona.server.surveys.store import AlreadyCounted, UnknownToken, hash_of, transaction
from dodona.server.surveys.survey import Survey

PART = 10_000
"""Reports that travel in one request; a larger batch goes in several, one right after the other."""
MOST_WAITING = 1_000_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS surveys(id TEXT PRIMARY KEY, stated TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tokens(hash BLOB PRIMARY KEY, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waiting(
    survey TEXT NOT NULL, name BLOB NOT NULL, question TEXT NOT NULL, report BLOB NOT NULL, PRIMARY KEY(survey, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leaving(
    survey TEXT NOT NULL, batch TEXT NOT NULL, part INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY(survey, batch, part)
) WITHOUT ROWID;
"""


class Waiting:
    """Reports that wait, and batches that leave, in the file ``path``; one process at a time."""

    def __init__(self, path: Path) -> None:
        self._mutex = threading.Lock()
        try:
            make_private(path)
            self._db = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
            for wanted in ("locking_mode=EXCLUSIVE", "secure_delete=ON", "journal_mode=DELETE", "synchronous=FULL"):
                self._db.execute(f"PRAGMA {wanted}")
            self._db.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT;")  # from here on ours until we close it
        except (OSError, sqlite3.Error):
            raise LedgerUnavailable(
                "the file of waiting reports must be one that we can write, used by this process alone. Got "
                f"{str(path)!r}."
            ) from None

    def close(self) -> None:
        """Lets go of the file."""
        with self._mutex:
            self._db.close()

    def admit(self, survey: Survey, hashes: list[bytes]) -> None:
        """A survey, which must say what it always said, and tokens given out; those known already stay as they are."""
        stated = json.dumps(survey.describe(), sort_keys=True)
        with self._writing() as db:
            db.execute("INSERT OR IGNORE INTO surveys(id, stated) VALUES (?, ?)", (survey.id, stated))
            if db.execute("SELECT stated FROM surveys WHERE id = ?", (survey.id,)).fetchone() != (stated,):
                raise Refused(
                    f"survey {survey.id} must say what it said when its first reports came. The collector says "
                    "otherwise now, and respondents were promised the former."
                )
            db.executemany("INSERT OR IGNORE INTO tokens(hash, used) VALUES (?, 0)", [(one,) for one in hashes])

    def add(self, survey: str, question: str, report: bytes, token: str, issued: bool) -> None:
        """A report, once for each token, in one transaction; ``issued``: only tokens that were given out count."""
        name = hash_of(survey, token)
        with self._writing() as db:
            known = db.execute("SELECT used FROM tokens WHERE hash = ?", (name,)).fetchone()
            if known is not None and known[0]:
                raise AlreadyCounted("a token counts once, and this one has had its report. Nothing was added.")
            if known is None and issued:
                raise UnknownToken("this survey takes reports only from the links its curator gave out.")
            (held,) = db.execute("SELECT count(*) FROM waiting").fetchone()
            if held >= MOST_WAITING:
                raise Unsupported(f"a shuffler keeps at most {MOST_WAITING:,} reports.")
            db.execute("INSERT OR REPLACE INTO tokens(hash, used) VALUES (?, 1)", (name,))
            row = (survey, secrets.token_bytes(16), question, report)
            db.execute("INSERT INTO waiting(survey, name, question, report) VALUES (?, ?, ?, ?)", row)

    def gather(self, survey: str, batch: int) -> bool:
        """Makes one batch of all that wait, if they are ``batch`` at least: from then on it leaves, as it is."""
        with self._writing() as db:
            found = db.execute("SELECT question, report FROM waiting WHERE survey = ?", (survey,)).fetchall()
            if len(found) < batch:
                return False
            found.sort()  # by what is reported: no order is left of how they came
            name, parts = secrets.token_hex(16), range(0, len(found), PART)
            for number, start in enumerate(parts):
                reports: dict[str, list[str]] = {}
                for question, report in found[start : start + PART]:
                    reports.setdefault(question, []).append(b64encode(report).decode())
                body = {"batch": name, "part": number, "total": len(found), "reports": reports}
                db.execute("INSERT INTO leaving VALUES (?, ?, ?, ?)", (survey, name, number, json.dumps(body)))
            db.execute("DELETE FROM waiting WHERE survey = ?", (survey,))
        return True

    def leaving(self, survey: str) -> list[tuple[str, int, str]]:
        """(batch, part, body) of what the collector has not taken yet."""
        with self._mutex:
            return self._db.execute(
                "SELECT batch, part, body FROM leaving WHERE survey = ? ORDER BY batch, part", (survey,)
            ).fetchall()

    def taken(self, survey: str, batch: str, part: int) -> None:
        """The collector has it, or will never take it: nothing of it is kept."""
        with self._writing() as db:
            db.execute("DELETE FROM leaving WHERE survey = ? AND batch = ? AND part = ?", (survey, batch, part))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, transaction(self._db, "the file of waiting reports"):
            yield self._db


class Shuffler:
    """For the surveys named ``ids`` of the collector behind ``line``. ``tell``: what forwarding says of itself."""

    def __init__(self, line: Connection, ids: tuple[str, ...], waiting: Waiting, tell: Callable[[str], None]) -> None:
        self._line, self._waiting, self._tell = line, waiting, tell
        self.surveys: dict[str, Survey] = {}
        self.estimates: dict[str, bytes] = {}
        self._issued: dict[str, bool] = {}
        self._closed: set[str] = set()
        for id in ids:
            told = line.get("v1", "surveys", id, "shuffling")
            survey = Survey.read(id, told["survey"])
            if not survey.batch:
                raise Refused(f"survey {id} must state a batch, and states none: its reports go to the collector.")
            self.surveys[id] = survey
            self._issued[id] = bool(told["tokens"])
            waiting.admit(survey, [bytes.fromhex(one) for one in told["tokens"]])
            self._closed |= {id} if told["closed"] else set()
            self._read(id)

    def add(self, id: str, question: str, report: bytes, token: str) -> None:
        """Keeps a report until there are enough."""
        if id in self._closed:
            raise Unsupported("this survey is closed: it takes no further reports.")
        self._waiting.add(id, question, report, token, self._issued[id])

    def forward(self) -> None:
        """One tick of the clock: every survey that has a batch sends it, and what was left from before."""
        for id, survey in self.surveys.items():
            try:
                self._waiting.gather(id, survey.batch)
                self._send(id)
            except DodonaError as fault:  # the collector is away, or our disk full: what leaves goes at a later tick
                self._tell(f"dodona: a batch did not leave: {fault}")

    def _send(self, id: str) -> None:
        sent = False
        for batch, part, body in self._waiting.leaving(id):
            try:
                self._line.post(("v1", "surveys", id, "parts"), json.loads(body))
            except Unsupported:  # closed since: it will never be taken
                self._closed.add(id)
            self._waiting.taken(id, batch, part)
            sent = True
        if sent:
            self._read(id)

    def _read(self, id: str) -> None:
        self.estimates[id] = self._line.send("GET", ("v1", "surveys", id, "estimates"))


def make_shuffler(shuffler: Shuffler, every: float = 60.0) -> Guard:
    """The application: the page and its files, forms, reports in, estimates out. It forwards every so many seconds."""
    public, files, ended = Buckets(10 * PUBLIC_RATE[0], 10 * PUBLIC_RATE[1]), assets(), threading.Event()
    # Read once: what is asked of a survey stays as it is.
    forms = {id: _here(survey.form()) for id, survey in shuffler.surveys.items()}
    invitations = {id: survey.invitations() for id, survey in shuffler.surveys.items()}

    def ticking() -> None:
        while not ended.wait(every):
            shuffler.forward()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        clock = threading.Thread(target=ticking, daemon=True)
        clock.start()
        yield
        ended.set()
        await run_in_threadpool(clock.join)

    app = FastAPI(version=__version__, lifespan=lifespan, openapi_url=None, redirect_slashes=False)

    def found(survey: str) -> str:
        public.take("")  # one bucket for all: no address is looked at
        if survey not in forms:
            raise not_found()
        return survey

    @app.get("/v1/surveys/{survey}")
    async def form(survey: str) -> Response:
        return json_response(forms[found(survey)])

    @app.get("/v1/surveys/{survey}/invitations")
    async def invited(survey: str) -> Response:
        return json_response({"invitations": invitations[found(survey)]})

    @app.get("/v1/surveys/{survey}/estimates")
    async def estimates(survey: str) -> Response:
        return Response(shuffler.estimates[found(survey)], media_type="application/json")

    @app.post("/v1/surveys/{survey}/reports")
    async def intake(request: Request, survey: str) -> Response:
        wanted = shuffler.surveys[found(survey)]
        body = await read_body(request, ReportsBody)
        (given,) = body.reports
        report = fitting(wanted, given.question, given.report)
        try:
            await run_in_threadpool(shuffler.add, wanted.id, given.question, report, body.token)
        except (AlreadyCounted, UnknownToken) as refusal:
            raise counted_before(refusal) from None
        return Response(status_code=204)

    @app.get("/survey/{survey}")
    async def page(request: Request, survey: str) -> Response:
        return files[found(survey) and "survey.html"].response(request)

    @app.get("/assets/{name}")
    async def asset(request: Request, name: str) -> Response:
        if name not in files or name.endswith(".html"):
            raise not_found()
        return files[name].response(request)

    for kind in (Problem, DodonaError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, problem_response)
    return Guard(app, Metrics(), Audit(os.devnull))  # a log would hold times


def _here(form: dict[str, Any]) -> dict[str, Any]:
    """The form as it is answered here alone: a page that any other server hands out takes no answers."""
    return {**form, "shuffler": {**form["shuffler"], "here": True}}


def serve_shuffler(settings: Settings, url: str, key: str, ids: tuple[str, ...], every: float, insecure: bool) -> None:
    """Shuffle until told to stop. ``settings``: where to listen, and the folder of what waits."""
    import uvicorn

    with taken_address(settings) as listener:
        waiting = Waiting(Path(settings.folder) / "dodona.waiting")
        shuffler = Shuffler(Connection(url, key, insecure=insecure), ids, waiting, _say)
        lines = [
            f"dodona: shuffling {survey.title!r} at {settings.url}/survey/{id}, {survey.batch:,} reports at a time"
            for id, survey in shuffler.surveys.items()
        ]
        when_it_listens(listener, lambda: _say("\n".join(lines)))
        settings.to_environment()
        config = uvicorn.Config(
            make_shuffler(shuffler, every),
            ws="none",
            http=Edge,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
        waiting.close()


def _say(line: str) -> None:
    print(line, flush=True)
