"""``dodona schema draft``: a ``survey.toml`` with what a file's metadata says, and a gap for all it must not say.

Column names and types come from the file's header. Bounds, categories and the budget are gaps: read from rows, they
would be releases (HOSTILE A9). A CSV file has no types, so those are gaps too.
"""

from __future__ import annotations

import json
import os

_FIELDS = {
    "integer": 'type = "integer", low = "?", high = "?"',
    "float": 'type = "real", low = "?", high = "?"',
    "decimal": 'type = "real", low = "?", high = "?"',
    "text": 'type = "category", values = "?"',
    "boolean": 'type = "flag"',
    "csv": 'type = "?"',
}

_HEAD = """\
# Drafted by `dodona schema draft` from column names and types only; no row was read.
# Fill every "?" from what is publicly known (a questionnaire, a law, common sense), NEVER from the data:
# a bound or category taken from the data is itself a release. `dodona schema check` says what is still missing.

data = {data}   # relative to this file
# name = "{name}"             # what FROM calls the table
# neighbours = "replace"       # protects what a row says; "add-remove" also protects whether it is there
# ledger = "survey.ledger"     # default: this file's name, with .ledger

[budget]                       # for the lifetime of the data; numbers, or exact text like "1/10"
epsilon = "?"                  # how much any one person may be exposed, in all: 1 is usual, 0.1 strict, 10 weak
delta = "?"                    # far below 1 / number of rows, such as 1e-9; 0 for pure noise only

# Column types:
#   {{ type = "real", low = 0, high = 200000 }}         values outside are clipped; missing = ... fills gaps in the data
#   {{ type = "integer", low = 0, high = 120 }}
#   {{ type = "category", values = ["a", "b"] }}        any other value counts as missing
#   {{ type = "flag" }}                                 true/false or 0/1
# public = true: everyone knows this column already. Leave a column out, and no question can touch it.
[columns]
"""


def draft(source: str) -> str:
    """The TOML text for a data file."""
    from dodona.engines.duckdb import _family, _opened

    columns = {name: kind for name, (_, kind) in _opened(source, None, '"').columns.items()}
    stem = os.path.basename(source).rpartition("#")[2].partition(".")[0]
    lines = [_HEAD.format(data=_quoted(source), name=stem).rstrip("\n")]
    for name, kind in columns.items():
        family = "csv" if kind == "CSV" else _family(kind)
        if family in _FIELDS:
            lines.append(f"{_key(name)} = {{ {_FIELDS[family]} }}")
        else:
            # The type's first word only: an enumeration or struct would spell out more than its name.
            lines.append(f"# {_key(name)}: left out, since {kind.split('(')[0]} is not a type questions can use")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").replace("-", "a").isalnum() else _quoted(name)


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are a subset of TOML's, but for the delete sign."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
