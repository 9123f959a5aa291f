"""Where surveys and reports are kept: one SQLite file that any number of server processes share.

Only reports are stored, each randomised before it left its respondent. A token counts once: it is kept as a hash, in a
table of its own, taken in the same transaction that adds the report. Nothing here joins a report to its token.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dodona.errors import DodonaError, LedgerUnavailable, Refused, Unsupported
from dodona.local.collector import Collector
from dodona.privacy.ledger.places import make_private
from dodona.server.surveys.survey import Survey

MOST_SURVEYS = 10_000
MOST_REPORTS = 10_000_000
_BATCH = 20_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS surveys(
    id TEXT PRIMARY KEY, stated TEXT NOT NULL, closed INTEGER NOT NULL DEFAULT 0,
    made TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ'))
);
CREATE TABLE IF NOT EXISTS tokens(
    survey TEXT NOT NULL, hash BLOB NOT NULL, used INTEGER NOT NULL, PRIMARY KEY(survey, hash)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reports(
    seq INTEGER PRIMARY KEY, survey TEXT NOT NULL, question TEXT NOT NULL, report BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS reports_by_survey ON reports(survey, seq);
CREATE TABLE IF NOT EXISTS parts(name TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class NoSuchSurvey(Refused):
    """There is no survey of that name."""


class AlreadyCounted(Refused):
    """The token has had its one report."""


class UnknownToken(Refused):
    """The survey takes reports with issued tokens only, and this is not one of them."""


class SurveyStore:
    """Surveys, reports and tokens in ``path``; None keeps them in memory for as long as the store lives.

    The tallies of this process are a cache: reports that other processes added are read when estimates are asked for.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._mutex, self._looking = threading.Lock(), threading.Lock()
        self._found: dict[str, tuple[int, dict[str, Any]]] = {}
        self._tallies: dict[str, tuple[int, dict[str, Collector]]] = {}
        try:
            if path is not None:
                make_private(Path(path))
            self._db = sqlite3.connect(
                ":memory:" if path is None else str(Path(path).absolute()),
                timeout=10,
                isolation_level=None,
                check_same_thread=False,  # the mutex keeps threads apart
            )
            self._db.execute("PRAGMA journal_mode=PERSIST")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error):
            raise LedgerUnavailable("the surveys' file must be readable and writable, and made by Dodona.") from None

    def close(self) -> None:
        """Lets go of the file."""
        with self._mutex:
            self._db.close()

    def add(self, survey: Survey, tokens: list[str]) -> None:
        """Keeps a new survey; with ``tokens``, only who holds one of them may report."""
        with self._writing() as db:
            (count,) = db.execute("SELECT count(*) FROM surveys").fetchone()
            if count >= MOST_SURVEYS:
                raise Unsupported(f"a server keeps at most {MOST_SURVEYS:,} surveys.")
            db.execute("INSERT INTO surveys(id, stated) VALUES (?, ?)", (survey.id, json.dumps(survey.describe())))
            rows = [(survey.id, hash_of(survey.id, token)) for token in tokens]
            db.executemany("INSERT INTO tokens(survey, hash, used) VALUES (?, ?, 0)", rows)

    def survey(self, id: str) -> Survey:
        """The survey of that name."""
        with self._reading() as db:
            row = db.execute("SELECT stated FROM surveys WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise NoSuchSurvey("there must be a survey of that name, and there is none.")
        return Survey.read(id, json.loads(row[0]))

    def listed(self) -> list[dict[str, Any]]:
        """All surveys, newest first, with how many reports each has."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT id, stated, closed, made, (SELECT count(*) FROM reports WHERE survey = id) FROM surveys "
                "ORDER BY made DESC, id"
            ).fetchall()
        return [
            {"id": id, "title": json.loads(stated)["title"], "epsilon": json.loads(stated)["epsilon"]}
            | {"closed": bool(closed), "made": made, "reports": reports}
            for id, stated, closed, made, reports in rows
        ]

    def close_survey(self, id: str) -> None:
        """No further report is taken; estimates stay."""
        with self._writing() as db:
            if db.execute("UPDATE surveys SET closed = 1 WHERE id = ?", (id,)).rowcount == 0:
                raise NoSuchSurvey("there must be a survey of that name, and there is none.")

    def count(self, survey: str, question: str, report: bytes, token: str) -> None:
        """Adds a report, once for each token, in one transaction."""
        name = hash_of(survey, token)
        with self._writing() as db:
            self._require_open(db, survey)
            (issued,) = db.execute(
                "SELECT EXISTS(SELECT 1 FROM tokens WHERE survey = ? AND used IN (0, 2))", (survey,)
            ).fetchone()
            row = db.execute("SELECT used FROM tokens WHERE survey = ? AND hash = ?", (survey, name)).fetchone()
            if row is not None and row[0] != 0:
                raise AlreadyCounted("a token counts once, and this one has had its report. Nothing was added.")
            if row is None and issued:
                raise UnknownToken("this survey takes reports only from the links its curator gave out.")
            self._require_room(db, 1)
            # 1: a token that its respondent made; 2: an issued one.
            used = 1 if row is None else 2
            db.execute("INSERT OR REPLACE INTO tokens(survey, hash, used) VALUES (?, ?, ?)", (survey, name, used))
            db.execute("INSERT INTO reports(survey, question, report) VALUES (?, ?, ?)", (survey, question, report))

    def count_part(self, survey: str, name: str, reports: Sequence[tuple[str, bytes]]) -> None:
        """Adds what a shuffler forwards, once for each ``name`` of a part, in one transaction."""
        with self._writing() as db:
            self._require_open(db, survey)
            if db.execute("SELECT 1 FROM parts WHERE name = ?", (f"{survey} {name}",)).fetchone():
                return
            self._require_room(db, len(reports))
            db.execute("INSERT INTO parts(name) VALUES (?)", (f"{survey} {name}",))
            rows = [(survey, question, report) for question, report in reports]
            db.executemany("INSERT INTO reports(survey, question, report) VALUES (?, ?, ?)", rows)

    def closed(self, survey: str) -> bool:
        """Whether no further report is taken."""
        with self._reading() as db:
            return bool(db.execute("SELECT closed FROM surveys WHERE id = ?", (survey,)).fetchone() != (0,))

    def issued(self, survey: str) -> list[bytes]:
        """The hashes of the tokens that were given out: whoever lets respondents in needs to know them."""
        with self._reading() as db:
            rows = db.execute("SELECT hash FROM tokens WHERE survey = ? AND used IN (0, 2)", (survey,)).fetchall()
        return [digest for (digest,) in rows]

    def remembered(self, name: str, reports: int, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``read`` finds in so many reports, until there are a twentieth more: it looks at each of them."""
        with self._looking:
            then, found = self._found.get(name, (0, {}))
            if not then or 20 * (reports - then) > then:
                found = read()
                self._found[name] = reports, found
            return found

    def collectors(self, survey: Survey) -> dict[str, Collector]:
        """By question: everything reported so far, added up."""
        with self._reading() as db:
            last, tallies = self._tallies.get(survey.id) or (0, {})
            tallies = tallies or {q.id: Collector.of(q.scheme(survey.epsilon), q.schema) for q in survey.questions}
            while rows := db.execute(
                "SELECT seq, question, report FROM reports WHERE survey = ? AND seq > ? ORDER BY seq LIMIT ?",
                (survey.id, last, _BATCH),
            ).fetchall():
                for _, question, report in rows:
                    tallies[question].add(report)
                last = rows[-1][0]
            self._tallies[survey.id] = last, tallies
            # A copy: another thread may add to these while this one's reader computes.
            return {id: collector.copy() for id, collector in tallies.items()}

    @staticmethod
    def _require_open(db: sqlite3.Connection, survey: str) -> None:
        (closed,) = db.execute("SELECT closed FROM surveys WHERE id = ?", (survey,)).fetchone() or (1,)
        if closed:
            raise Unsupported("this survey is closed: it takes no further reports.")

    @staticmethod
    def _require_room(db: sqlite3.Connection, more: int) -> None:
        (held,) = db.execute("SELECT coalesce(max(seq), 0) FROM reports").fetchone()
        if held + more > MOST_REPORTS:
            raise Unsupported(f"a server keeps at most {MOST_REPORTS:,} reports.")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._mutex:
            try:
                yield self._db
            except sqlite3.Error:
                raise LedgerUnavailable("the surveys' file must be readable, and it is not.") from None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, transaction(self._db, "the surveys' file"):
            yield self._db


@contextmanager
def transaction(db: sqlite3.Connection, file: str) -> Iterator[None]:
    """All of what is done inside, or nothing of it; ``file``: what its refusal speaks of."""
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except (sqlite3.Error, DodonaError):
            db.execute("ROLLBACK")
            raise
    except sqlite3.Error:
        raise LedgerUnavailable(f"{file} must be writable, and it is not. Nothing was added.") from None


def hash_of(survey: str, token: str) -> bytes:
    """Tokens have 128 random bits, so a plain hash of one names it and gives it away to nobody."""
    return hashlib.sha256(f"{survey}\x00{token}".encode()).digest()
