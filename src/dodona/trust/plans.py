"""The last few plans a curator made: a question is often priced first and asked then, and compiling a wide one is slow.

The key is the question's JSON text, not its equality: in Python 1 == 1.0 == True, and those are different questions.
A plan is public: it depends on the question and the schema, never on a row.
"""

from __future__ import annotations

import json
from threading import Lock

from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Schema
from dodona.query.statistic import Query

MOST = 4  # plans of wide questions are large


class Plans:
    """Plans for one ``schema``; the oldest goes where a new one comes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._held: dict[tuple[str, bool], Plan] = {}
        self._changing = Lock()

    def of(self, query: Query, *, level: bool) -> Plan:
        """What ``compile_query`` gives."""
        key = json.dumps(query.to_json(), sort_keys=True), level
        plan = self._held.get(key)
        if plan is None:
            plan = compile_query(query, self._schema, level=level)
            with self._changing:
                self._held[key] = plan
                while len(self._held) > MOST:
                    del self._held[next(iter(self._held))]
        return plan
