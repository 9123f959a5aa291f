"""Keys: who may ask, in which role, of which datasets, with what share of the lifetime budget.

A key is ``ddn_ID_SECRET``: the ID finds it, the SECRET is 256 random bits, shown once and stored as a salted scrypt
hash. The store is one SQLite file shared by all server processes and the command line. Each request asks it whether it
has changed (``PRAGMA data_version``), so that a revocation holds from the next request on. Shares belong to analysts,
not to keys: two keys of one analyst spend one share.

A clock can go back; an expired key stays expired. The store keeps the latest expiry that was seen to pass, written
before the first request after it is served, and no process reads an earlier time from then on.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from dodona.errors import BadEffort, LedgerUnavailable, Refused
from dodona.privacy.ledger.places import make_private
from dodona.privacy.numbers import Number, exact

Rows = list[tuple[Any, ...]]
ROLES = ("analyst", "curator", "shuffler")
"""A shuffler asks nothing: its key opens what the surveys' collector tells a shuffler, and takes its batches."""
_TOKEN = re.compile(r"ddn_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
_SCRYPT = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 1 << 26}
_SCHEMA = """
CREATE TABLE IF NOT EXISTS analysts(name TEXT PRIMARY KEY, share TEXT);
CREATE TABLE IF NOT EXISTS keys(
    id TEXT PRIMARY KEY, analyst TEXT NOT NULL, role TEXT NOT NULL, datasets TEXT, salt BLOB NOT NULL,
    hash BLOB NOT NULL, created TEXT NOT NULL, expires TEXT, revoked TEXT);
CREATE TABLE IF NOT EXISTS clock(passed TEXT NOT NULL);
"""
_COLUMNS = "k.id, k.analyst, k.role, a.share, k.datasets, k.created, k.expires, k.revoked"
_JOIN = "FROM keys k JOIN analysts a ON a.name = k.analyst"


@dataclass(frozen=True)
class Key:
    """What is known of a key; never its secret. ``share`` None: no quota (curators), or nothing to ask (shufflers).

    ``datasets`` None: all.
    """

    id: str
    analyst: str
    role: str
    share: Fraction | None
    datasets: tuple[str, ...] | None
    created: str
    expires: str | None
    revoked: str | None

    def alive(self, now: str) -> bool:
        """Neither revoked nor expired; times are ISO texts in UTC, which compare as texts."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def allows(self, dataset: str) -> bool:
        """Whether the key opens this dataset."""
        return self.datasets is None or dataset in self.datasets


def now_text() -> str:
    """The time as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class KeyStore:
    """The keys in one file at ``path``; safe for many threads and processes. ``clock``: the time as ISO text in UTC."""

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], str] = now_text) -> None:
        self.path, self._clock = Path(path), clock
        self._mutex, self._reading = threading.Lock(), threading.Lock()
        self._known: dict[bytes, str] = {}  # SHA-256 of a token that was verified once -> its id
        self._version = -1
        self._keys: dict[str, Key] = {}  # as of ``_version``, as are the two below
        self._passed, self._next = "", ""  # the latest expiry that has passed; the first that has not, or ""
        try:
            make_private(self.path)
            self._db = self._connect()
            self._db.executescript(_SCHEMA)
            self._reader = self._connect()  # so that a request does not wait behind a key being made here
            self.now()
        except (OSError, sqlite3.Error):
            raise LedgerUnavailable(f"the key store must be a file we can write. Got {str(self.path)!r}.") from None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=10.0, check_same_thread=False, isolation_level=None)

    def now(self) -> str:
        """The time, never before an expiry that was seen to pass: by this process or another, before a restart too."""
        with self._reading:
            return self._now()

    def has_curator(self) -> bool:
        """Whether a curator's key was ever made here."""
        return bool(self._rows("SELECT 1 FROM keys WHERE role = 'curator' LIMIT 1"))

    def add(
        self,
        analyst: str,
        *,
        role: str = "analyst",
        share: Number | None = None,
        expires: str | None = None,
        datasets: Sequence[str] | None = None,
    ) -> tuple[Key, str]:
        """A new key and its token, which is shown this once. The shares of all living analysts stay within 1."""
        stated = _check_share(analyst, role, share)
        ends = None if expires is None else _time(expires)
        secret, salt, id_ = secrets.token_urlsafe(32), secrets.token_bytes(16), secrets.token_hex(8)
        opened = None if datasets is None else json.dumps(list(datasets))
        row = (id_, analyst, role, opened, salt, _hash(secret, salt), self._clock(), ends, None)
        now = self.now()
        with self._mutex, closing(self._db.cursor()) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                self._place(db, analyst, role, stated, now)
                db.execute("INSERT INTO keys VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
        return self.get(id_), f"ddn_{id_}_{secret}"

    def _place(self, db: sqlite3.Cursor, analyst: str, role: str, share: Fraction | None, now: str) -> None:
        roles = {role for (role,) in db.execute("SELECT role FROM keys WHERE analyst = ?", (analyst,))}
        if roles - {role}:
            raise Refused(f"a name keeps one role. {analyst!r} is already a {roles.pop()}; choose another name.")
        living = db.execute(
            f"SELECT DISTINCT a.name, a.share {_JOIN} WHERE k.revoked IS NULL AND (k.expires IS NULL OR k.expires > ?)",
            (now,),
        )
        others = sum((Fraction(text) for name, text in living if text and name != analyst), Fraction(0))
        if share is not None and others + share > 1:
            raise BadEffort(
                f"the shares of all analysts with a living key must sum to at most 1. {float(others):g} is given "
                f"away; {float(1 - others):g} is left."
            )
        text = None if share is None else str(share)
        db.execute("INSERT INTO analysts VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET share = ?", (analyst, text, text))

    def get(self, id_: str) -> Key:
        """The key of this id; ``Refused`` if there is none."""
        rows = self._rows(f"SELECT {_COLUMNS} {_JOIN} WHERE k.id = ?", id_)
        if not rows:
            raise Refused("there is no key of that id.")
        return _key(rows[0])

    def all(self) -> list[Key]:
        """All keys ever made, oldest first."""
        return [_key(row) for row in self._rows(f"SELECT {_COLUMNS} {_JOIN} ORDER BY k.created, k.id")]

    def revoke(self, id_: str) -> Key:
        """The key opens nothing from now on; revoking twice is no fault."""
        self._rows("UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", self._clock(), id_)
        return self.get(id_)

    def known(self, token: str) -> Key | None:
        """The living key of a token that was verified before by this process; None: it must be verified, or is dead."""
        id_ = self._known.get(_digest(token))
        return None if id_ is None else self._alive(id_)

    def verify(self, token: str) -> Key | None:
        """The living key of a token, or None. Slow by design (scrypt): not for the event loop."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        id_, secret = match.groups()
        rows = self._rows("SELECT salt, hash FROM keys WHERE id = ?", id_)
        # An unknown id costs as much time as a wrong secret.
        salt, stored = rows[0] if rows else (bytes(16), bytes(64))
        if not hmac.compare_digest(_hash(secret, salt), stored) or not rows:
            return None
        self._known[_digest(token)] = id_
        return self._alive(id_)

    def close(self) -> None:
        """Let the file go."""
        with suppress(sqlite3.Error):  # closed before
            self.now()
        with self._reading, self._mutex:
            self._reader.close()
            self._db.close()

    def _alive(self, id_: str) -> Key | None:
        with self._reading:
            now = self._now()
            key = self._keys.get(id_)
            if key is None:
                rows = self._reader.execute(f"SELECT {_COLUMNS} {_JOIN} WHERE k.id = ?", (id_,)).fetchall()
                if not rows:
                    return None
                key = self._keys[id_] = _key(rows[0])
        return key if key.alive(now) else None

    def _now(self) -> str:
        (version,) = self._reader.execute("PRAGMA data_version").fetchone()
        if version != self._version:  # another connection, here or elsewhere, has written since
            self._version = version
            self._keys.clear()
            ((self._passed,),) = self._reader.execute("SELECT coalesce(max(passed), '') FROM clock")
            first = "SELECT coalesce(min(expires), '') FROM keys WHERE expires > ?"
            ((self._next,),) = self._reader.execute(first, (self._passed,))
        now = max(self._clock(), self._passed)
        if self._next and self._next <= now:  # an expiry has passed: durably so, before anything is made of it
            self._rows("INSERT INTO clock SELECT max(expires) FROM keys WHERE expires <= ?", now)
        return now

    def _rows(self, statement: str, *values: object) -> Rows:
        with self._mutex:
            return self._db.execute(statement, values).fetchall()


def looks_like_token(text: str) -> bool:
    """Whether a text has the shape of a token; others are refused without work."""
    return _TOKEN.fullmatch(text) is not None


def _key(row: tuple[Any, ...]) -> Key:
    id_, analyst, role, share, datasets, created, expires, revoked = row
    opened = None if datasets is None else tuple(json.loads(datasets))
    return Key(id_, analyst, role, None if share is None else Fraction(share), opened, created, expires, revoked)


def _check_share(analyst: str, role: str, share: Number | None) -> Fraction | None:
    if not isinstance(analyst, str) or not _NAME.fullmatch(analyst) or len(analyst.encode()) > 128:
        raise Refused("an analyst's name must be 1 to 64 characters, none of them a control character.")
    if role not in ROLES:
        raise Refused(f"a role must be one of {', '.join(ROLES)}. Got {role!r}.")
    if role == "curator" and share is not None:
        raise BadEffort("a curator has no share: the whole budget is the curator's to spend.")
    if role == "shuffler" and share is not None:
        raise BadEffort("a shuffler has no share: it forwards reports and asks nothing.")
    if role == "analyst" and share is None:
        raise BadEffort("an analyst's share of the lifetime budget must be stated, such as 0.3.")
    return None if share is None else exact(share, "share", most=Fraction(1))


def _time(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise Refused("expires must be a time such as 2027-01-31 or 2027-01-31T12:00:00+00:00.") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    try:
        return moment.astimezone(UTC).isoformat(timespec="seconds")
    except OverflowError:
        raise Refused("expires must be a time such as 2027-01-31 or 2027-01-31T12:00:00+00:00.") from None


def _hash(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, **_SCRYPT)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
