"""The audit log: one JSON object a line for every request. Who asked what kind of thing, how it ended, what it cost.

No row value can be in it: it holds the route's template (never the address as sent, which could hold a secret), the
key's id, the status and code, and the charge's number. What was asked stands in the ledger.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from dodona.server.keys import now_text


class Audit:
    """Appends to the file at ``path``, or writes to standard error; lines of several processes do not mix."""

    def __init__(self, path: str | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = sys.stderr.fileno() if path is None else os.open(path, flags, 0o600)
        self._owned = path is not None
        self._mutex = threading.Lock()

    def write(self, event: dict[str, Any]) -> None:
        """One line."""
        line = json.dumps({"time": now_text(), "pid": os.getpid(), **event}, ensure_ascii=True) + "\n"
        with self._mutex:
            os.write(self._file, line.encode("ascii"))

    def close(self) -> None:
        """Let the file go."""
        if self._owned:
            os.close(self._file)
