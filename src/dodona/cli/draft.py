"""``dodona schema draft`` and ``dodona new``: a ``survey.toml`` for a file that nobody prepared.

A draft holds what a file's metadata says, and a gap for all it must not say. Names and types come from the file's
header. Bounds, categories and the budget are gaps: read from rows, they would be releases (HOSTILE A9). A CSV file has
no types: they are gaps too, unless the curator permits a look at its first records, and then the draft says what came
from that look. With which signs a file is written is guessed here, for the curator to check, and then stands in it.

``new`` asks for each gap in turn, writes the file, checks it against the data and makes the ledger.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dodona.cli import show
from dodona.cli.questions import require_free
from dodona.cli.survey import make_ledger
from dodona.config import GAP, Config
from dodona.errors import Refused

if TYPE_CHECKING:
    from dodona.engines.csv import Csv

_WORDS = {
    "integer": "whole number",
    "real": "number",
    "date": "date",
    "timestamp": "date and time",
    "category": "one of a list of texts",
    "text": "any text",
    "flag": "yes or no",
}
_OF_FAMILY = {"float": "real", "decimal": "real", "text": "category", "boolean": "flag", "integer": "integer"}
_BOUNDED = ("integer", "real", "date", "timestamp")

# A text that is not NULL may still be no listed value, and a float NaN: both count as missing.
_WHOLLY = ("integer", "decimal", "boolean")

_HEAD = """\
# Drafted by `dodona schema draft` from column names and types only{looked}.
# Fill every "?" from what is publicly known (a questionnaire, a law, common sense), NEVER from the data:
# a bound or category taken from the data is itself a release. `dodona schema check` says what is still missing.

{data}name = {name}
{neighbours}        # protects what a row says; "add-remove" also protects whether it is there
population = {population}
# ledger = "survey.ledger"     # default: this file's name, with .ledger; `dodona ledger new` makes it, once
{unit}
[budget]                       # for the lifetime of the data; numbers, or exact text like "1/10"
epsilon = {epsilon}
delta = {delta}

# Column types:
#   {{ type = "real", low = 0, high = 200000 }}         values outside are clipped; missing = ... fills gaps in the data
#   {{ type = "integer", low = 0, high = 120 }}
#   {{ type = "date", low = "2020-01-01", high = "2026-12-31" }}    format = "%d/%m/%Y" says how texts are written
#   {{ type = "timestamp", low = ..., high = ..., step = "second" }}  in UTC; minute, hour, millisecond, microsecond
#   {{ type = "category", values = ["a", "b"] }}        any other value counts as missing
#   {{ type = "flag" }}                                 true/false or 0/1
#   {{ type = "text", max_length = 80 }}                any text: conditions such as LIKE ask of it, it makes no groups
# Texts of a category are cleaned before they are compared: fold = "case" (A to Z), trim = true (blanks at both ends),
# aliases = {{ yes = ["y"] }} (other texts for a value), other = true (one more value, for all others).
# required = true: never missing (a gap, if there is one after all, counts as low, the first value or false). Columns
# that may be missing have one more value in every table, and about twice the error. Drafted where a database's table
# says NOT NULL; state it wherever it is publicly known.
# public = true: everyone knows this column already. Leave a column out, and no question can touch it.
[columns]
"""
_UNIT = """\
# unit = { column = "patient", max_rows = 4 }   # several rows of one person, protected together: needs "add-remove"
"""
_EPSILON = "how much any one person may be exposed, in all: 1 is usual, 0.1 strict, 10 weak"
_DELTA = "far below 1 / number of rows, such as 1e-9; 0 for pure noise only"
_DATA = "[data]                         # how the file seems to be written: check it, since opening does not guess"
_LOOKED = "found in the first {:,} records: keep only what everyone may know"

Data = Annotated[str, typer.Argument(metavar="FILE", help="Parquet, CSV, TSV or file.duckdb#table.")]
Look = Annotated[
    bool, typer.Option("--look", help="Look at a CSV file's first records for types and lists. Check what was found.")
]


@dataclasses.dataclass
class Column:
    """One drafted column: its settings, and a remark behind them. ``why``: the reason it cannot be used at all."""

    name: str
    stated: dict[str, Any]
    remark: str = ""
    why: str = ""

    @property
    def kind(self) -> str:
        """Its type's name, or the gap."""
        return str(self.stated.get("type", GAP))

    def gaps(self) -> list[str]:
        """The settings that only the curator can state."""
        return [key for key, value in self.stated.items() if value == GAP]

    def line(self) -> str:
        """Of the TOML text."""
        if self.why:
            return f"# {_key(self.name)}: left out, since {self.why}"
        stated = ", ".join(f"{key} = {_quote(value)}" for key, value in self.stated.items())
        return f"{_key(self.name)} = {{ {stated} }}" + (f"   # {self.remark}" if self.remark else "")


@dataclasses.dataclass
class Draft:
    """A survey.toml that may still have gaps. ``csv``: how a CSV file is written; ``looked``: at how many records."""

    source: str
    columns: list[Column]
    csv: Csv | None = None
    looked: int = 0
    epsilon: str = GAP
    delta: str = GAP
    unit: dict[str, Any] | None = None

    @staticmethod
    def of(source: str, look: bool = False) -> Draft:
        """What a data file's metadata say, and, with ``look``, what a CSV file's first records show."""
        from dodona.engines.duckdb import is_csv

        return _draft_csv(source, look) if is_csv(source, None) else _draft_typed(source)

    @property
    def stem(self) -> str:
        """The data's own name, as a FROM can say it without quotes."""
        stem = os.path.basename(self.source).rpartition("#")[2].partition(".")[0]
        name = re.sub(r"\W+", "_", stem).strip("_").lower()
        return name if name and not name[0].isdigit() else f"data_{name}".rstrip("_")

    def text(self, source: str | None = None) -> str:
        """The TOML text; ``source``: where the data are as seen from the file's place."""
        source = source or self.source
        looked = "; no row was read" if self.csv is None else ".\n# Its first records showed how it is written"
        looked += f", and {self.looked:,} of them what its columns are" if self.looked else ""

        def said(value: str, note: str) -> str:
            return f"{_quote(value):<22} # {note}" if value == GAP else value

        head = _HEAD.format(
            looked=looked,
            data="" if self.csv else f"data = {_quote(source)}   # relative to this file\n",
            name=f"{_quote(self.stem):<22} # what FROM calls the table",
            population=f"{_quote(self.stem):<22} # whose data these are: a ledger is theirs, wherever the files move",
            neighbours='# neighbours = "replace"' if self.unit is None else 'neighbours = "add-remove"',
            unit=_UNIT if self.unit is None else f"unit = {{ {_inline(self.unit)} }}\n",
            epsilon=said(self.epsilon, _EPSILON),
            delta=said(self.delta, _DELTA),
        )
        lines = [head.rstrip("\n"), *(column.line() for column in self.columns)]
        if self.csv is not None:
            lines += ["", _DATA, f"path = {_quote(source)}"]
            lines += [f"{key} = {_quote(value)}" for key, value in dataclasses.asdict(self.csv).items()]
        return "\n".join(lines) + "\n"


def _draft_typed(source: str) -> Draft:
    from dodona.engines.duckdb import open_typed
    from dodona.engines.duckdb.source import family_of, required_columns

    opened = open_typed(source)
    never = required_columns(opened)
    columns = []
    for name, (_, physical) in opened.columns.items():
        family = family_of(physical)
        kind = _OF_FAMILY.get(family) or (family == "moment" and ("date" if physical == "DATE" else "timestamp"))
        if kind:
            required = {"required": True} if name in never and family in _WHOLLY else {}
            columns.append(Column(name, _settings(kind) | required))
        else:
            # The type's first word only: an enumeration or struct would spell out more than its name.
            columns.append(Column(name, {}, why=f"{physical.split('(')[0]} is not a type questions can use"))
    return Draft(source, columns)


def _draft_csv(source: str, look: bool) -> Draft:
    from dodona.engines.csv import look as look_at
    from dodona.engines.csv import sniff
    from dodona.engines.csv.records import read_names
    from dodona.engines.duckdb.source import existing_file

    file = existing_file(source)
    csv = sniff(file)
    names = csv.header if isinstance(csv.header, tuple) else read_names(file, csv)
    if not look:
        return Draft(source, [Column(name, {"type": GAP}) for name in names], csv)
    looked, found = look_at(file, csv)
    columns = []
    for name, seen in zip(names, found, strict=False):
        stated = _settings(seen.kind)
        if seen.form is not None:
            stated["format"] = seen.form
        if seen.kind == "category":
            spelled = {value.lower(): value for value in reversed(seen.values)}
            folded = len(spelled) < len(seen.values)
            stated = {"type": "category", "values": sorted(spelled.values()) if folded else list(seen.values)}
            stated |= {"trim": True} | ({"fold": "case"} if folded else {})
        remark = _LOOKED.format(looked) if seen.kind == "category" else ""
        columns.append(Column(name, stated, remark))
    return Draft(source, columns, csv, looked)


def _settings(kind: str) -> dict[str, Any]:
    """What a column of a type states, with its gaps."""
    stated: dict[str, Any] = {"type": kind}
    if kind in _BOUNDED:
        stated |= {"low": GAP, "high": GAP}
    more: dict[str, dict[str, Any]] = {
        "category": {"values": GAP, "trim": True},
        "timestamp": {"step": "second"},
        "text": {"max_length": 80},
    }
    return stated | more.get(kind, {})


def draft(data: Data, look: Look = False) -> None:
    """Print a survey.toml with column names and types; bounds, categories and budget are yours to state."""
    sys.stdout.write(Draft.of(data, look).text())


def new(
    data: Data,
    survey: Annotated[Path, typer.Option("--output", "-o", metavar="SURVEY.TOML", help="Where to write it.")] = Path(
        "survey.toml"
    ),
) -> None:
    """Ask the few things only you can state about a file; write its survey.toml, check it and make its ledger."""
    require_free(survey)
    drafted = Draft.of(data)
    if drafted.csv is not None:
        drafted = _permit_look(drafted)
    names = [column.name for column in drafted.columns if not column.why]
    show.say(f"\n{data}: {len(names)} columns: {show.clean(', '.join(names))}")
    drafted.unit = _ask_unit(names)
    drafted.epsilon = _ask_number(
        "\nBudget for the lifetime of the data. Epsilon: 1 is usual, 0.1 strict, 10 weak", "1"
    )
    drafted.delta = _ask_number("Delta: far below 1 / number of rows; 0 for pure noise only", "1e-9")
    show.say("\nColumns. State what is publicly known, never what the data show. Enter alone leaves a column out.")
    for column in drafted.columns:
        if not column.why and (drafted.unit is None or column.name != drafted.unit["column"]):
            _ask_about(column)
        elif not column.why:
            column.why = "it says whose a row is"
    if all(column.why for column in drafted.columns):
        raise Refused("no column is left to ask about; nothing was written.")
    _write(drafted, survey)


def _permit_look(drafted: Draft) -> Draft:
    csv = drafted.csv
    assert csv is not None
    header = "a header" if csv.header is True else "no header"
    signs = f"{csv.delimiter!r} between fields, {csv.decimal!r} in numbers, {csv.encoding}"
    show.say(f"{drafted.source}: CSV with {header}, {signs}.")
    show.say(
        "A CSV file states no types. They can be had from its first records, with lists of texts that recur there."
    )
    show.say("What then stands in survey.toml is not protected: keep only what everyone may know.")
    return Draft.of(drafted.source, typer.confirm("May its first records be looked at?", default=True))


def _ask_unit(names: list[str]) -> dict[str, Any] | None:
    show.say("\nIf several rows can be of one person, all of them are protected together.")
    while True:
        answer = _ask("Column that says whose a row is (Enter: each row is another person)")
        if not answer:
            return None
        if answer in names:
            rows = _ask_number(f"At most how many rows of one {answer} may count in a question", "4")
            if rows.isdigit() and int(rows):
                return {"column": answer, "max_rows": int(rows)}
            show.say("A whole number of at least 1.")
        else:
            show.say(f"It must be one of: {show.clean(', '.join(names))}")


def _ask_about(column: Column) -> None:
    """Fills the column's gaps, or leaves it out."""
    name = show.clean(column.name)
    if column.kind == GAP:
        kind = _ask_kind(name)
        column.stated = {} if kind is None else _settings(kind)
    if column.kind == "text":
        column.stated["max_length"] = GAP
    for key in column.gaps():
        answer: Any
        if key == "max_length":
            answer = _ask(f"{name} ({_WORDS['text']}): length of the longest text that counts, 80")
            answer = answer if answer.isdigit() else ""
        elif key == "values":
            answer = [value.strip() for value in _ask(f"{name} ({_WORDS['category']}): values, a, b, c").split(",")]
            answer = [value for value in answer if value]
        else:
            answer = _ask_bound(f"{name} ({_WORDS[column.kind]}): {key}est value that counts", column.kind)
        if not answer:
            column.stated = {}
            break
        column.stated[key] = answer if isinstance(answer, list) else _as_number(answer)
    if column.stated and "values" in column.stated and column.remark:
        found = ", ".join(column.stated["values"])
        if not typer.confirm(f"{name} ({_WORDS['category']}): {show.clean(found)}. May everyone know this list?"):
            column.stated = {}
        column.remark = ""
    if not column.stated:
        column.why = "nothing was stated about it"


def _ask_kind(name: str) -> str | None:
    while True:
        answer = _ask(f"{name}: integer, real, date, timestamp, category, flag or text")
        if not answer or answer in _WORDS:
            return answer or None


def _ask_bound(prompt: str, kind: str) -> str:
    form = {"date": " (2026-01-31)", "timestamp": " (2026-01-31T00:00)"}.get(kind, "")
    while True:
        answer = _ask(prompt + form)
        good = re.fullmatch(r"\d{4}-\d\d-\d\d.*" if form else r"[+-]?\d+(\.\d+)?", answer)
        if not answer or good:
            return answer
        show.say("A date like 2026-01-31." if form else "A number, with a point before its fraction.")


def _as_number(answer: str) -> Any:
    return int(answer) if re.fullmatch(r"[+-]?\d+", answer) else float(answer) if "-" not in answer[1:] else answer


def _ask_number(prompt: str, default: str) -> str:
    while True:
        answer: str = typer.prompt(prompt, default=default, show_default=True).strip()
        if re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", answer):
            return answer
        show.say("A number.")


def _ask(prompt: str) -> str:
    return str(typer.prompt(prompt, default="", show_default=False)).strip()


def _write(drafted: Draft, survey: Path) -> None:
    """The file, checked against the data, and its ledger; a file that does not fit is said to, and stays."""
    file, mark, table = drafted.source.rpartition("#") if "#" in drafted.source else (drafted.source, "", "")
    source = os.path.relpath(os.path.abspath(file), survey.absolute().parent) + mark + table
    survey.write_text(drafted.text(source.replace(os.sep, "/")), encoding="utf-8")
    show.say(f"\nwrote {survey}")
    curator = Config.read(survey).open_curator("check", asking=False)
    rows = "a private number of" if curator.rows is None else f"{curator.rows:,}"
    show.say(f"it fits {os.path.basename(drafted.source)}: {rows} rows")
    make_ledger(survey)
    show.say(f'\nNext: dodona price {survey} "SELECT COUNT(*) AS n FROM {drafted.stem}" --share 0.01')


def _inline(stated: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {_quote(value)}" for key, value in stated.items())


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").replace("-", "a").isalnum() else _quote(name)


def _quote(value: Any) -> str:
    """A value in TOML; JSON's escapes are a subset of its own, but for the delete sign."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
