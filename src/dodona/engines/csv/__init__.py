"""How a CSV file is written: its signs, its encoding, its header. Stated by the curator, never guessed at opening."""

from __future__ import annotations

import codecs
import gzip
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from csv import QUOTE_NONE, reader
from csv import Error as CsvError
from dataclasses import dataclass, fields
from typing import Any, BinaryIO, cast

from dodona.errors import BadSchema, BadTable
from dodona.query.calendar import layout, moment_of

BLOCK = 1 << 20  # bytes read at once: what is made of them stays in cache
ESCAPE = 16  # the control sign that the reader's own copy uses (``engines/csv/records.py``)
_DECIMALS = (".", ",")
# One byte a sign, ASCII below 128: no byte can swallow the delimiter after it, as in Shift-JIS or GBK. UTF-16 is read
# strictly instead.
_ENCODINGS = ("utf-8", "utf-16", "latin-1", "iso-8859-2", "iso-8859-15", "cp1250", "cp1251", "cp1252", "koi8-r")
_NAMES = {codecs.lookup(name).name: name for name in _ENCODINGS}


@dataclass(frozen=True)
class Csv:
    """``Csv(delimiter=";", decimal=",", encoding="latin-1")``; what is left out is a comma, quotes ", UTF-8, a header.

    ``quote``: the sign around fields; "" where the file has none, so that every line is a record. ``header``: True
    where the first record names the columns; False where there is none and the fields are the schema's columns in
    order; or the names of all columns of a file that has no header. ``decimal``: the sign before a number's fraction.
    """

    delimiter: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    header: bool | tuple[str, ...] = True
    decimal: str = "."

    def __post_init__(self) -> None:
        if not _is_sign(self.delimiter):
            raise BadSchema(f"delimiter must be one sign such as ',' ';' '|' or a tab. Got {self.delimiter!r}.")
        if self.quote != "" and (not _is_sign(self.quote) or self.quote == self.delimiter):
            raise BadSchema(f"quote must be one sign other than the delimiter, or ''. Got {self.quote!r}.")
        if self.decimal not in _DECIMALS:
            raise BadSchema(f"decimal must be '.' or ','. Got {self.decimal!r}.")
        if not isinstance(self.header, bool):
            object.__setattr__(self, "header", _names(self.header))
        object.__setattr__(self, "encoding", _encoding(self.encoding))

    @staticmethod
    def read(stated: Mapping[str, Any]) -> Csv | None:
        """From the settings beside ``path`` in a configuration's ``[data]``; None if there are none."""
        known = [field.name for field in fields(Csv)]
        unknown = [key for key in stated if key not in known]
        if unknown:
            raise BadSchema(f"[data] takes path, {', '.join(known)}. Got {', '.join(map(repr, unknown))}.")
        return Csv(**stated) if stated else None

    @staticmethod
    def usual(path: str) -> Csv:
        """What a file's name says where nothing is stated."""
        return Csv(delimiter="\t") if path.removesuffix(".gz").endswith(".tsv") else Csv()


def _is_sign(sign: Any) -> bool:
    if not isinstance(sign, str) or len(sign) != 1 or not sign.isascii():
        return False
    return sign == "\t" or (sign.isprintable() and not sign.isalnum() and sign not in "+-.")


def _names(header: Any) -> tuple[str, ...]:
    names = tuple(header) if isinstance(header, list | tuple) else ()
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise BadSchema(f"header must be true, false, or the names of all columns, each once. Got {header!r}.")
    return names


def _encoding(encoding: Any) -> str:
    try:
        return _NAMES[codecs.lookup(encoding).name]
    except (LookupError, TypeError, ValueError):
        raise BadSchema(f"encoding must be one of {', '.join(_ENCODINGS)}. Got {encoding!r}.") from None


# Guesses how a CSV file is written, for ``dodona schema draft``: the curator reads the guess, and then it is fixed.
#
# It looks at the file's first records and, for the encoding, at all of it; what it says are signs, never values.


SAMPLE = 1 << 16
_COMMA, _POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d*\.\d+")
_WHOLE, _PADDED = re.compile(r"[+-]?\d{1,18}"), re.compile(r"0\d+")
_FORMS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y%m%d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")
_MOST = 0.9  # of a column's fields must be of a kind: the others are dirt, and count as missing
_FEW = 20  # different texts, each of several records, are a list


def sniff(path: str) -> Csv:
    """The way of writing that makes most of the first records alike."""
    encoding = _find_encoding(path)
    with open_bytes(path) as stream:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(stream.read(SAMPLE)).removeprefix("\ufeff")
    found = [
        (_alike(records), -place, sign, quote, records) for place, (sign, quote, records) in enumerate(_tries(text))
    ]
    _, _, delimiter, quote, records = max(found, key=lambda guess: guess[:2])
    header: bool | tuple[str, ...] = True
    if not _is_header(records[0] if records else []):
        header = tuple(f"column{place + 1}" for place in range(len(records[0]) if records else 1))
    fields = [field.strip() for record in records for field in record]
    commas, points = (sum(map(bool, map(sign.fullmatch, fields))) for sign in (_COMMA, _POINT))
    return Csv(delimiter, quote, encoding, header, "," if commas > points else ".")


@dataclass(frozen=True)
class Look:
    """What the first records show of a column. ``kind``: integer, real, flag, date, timestamp, category or text;
    ``form``: of dates; ``values``: the texts of a category."""

    kind: str
    form: str | None = None
    values: tuple[str, ...] = ()


def look(path: str, csv: Csv) -> tuple[int, list[Look]]:
    """How many first records were looked at, and what they show of each column in order.

    This reads values: only for a curator who says that what is found there may be known to everyone.
    """
    with open_bytes(path) as stream:
        block = stream.read(SAMPLE)
    text = codecs.getincrementaldecoder(csv.encoding)("replace").decode(block).removeprefix("\ufeff")
    own = {"quotechar": csv.quote} if csv.quote else {"quoting": QUOTE_NONE}
    records = [record for record in reader(io.StringIO(text, newline=""), delimiter=csv.delimiter, **own) if record]
    records = records[:-1] if len(block) == SAMPLE and len(records) > 1 else records
    records = records[1:] if csv.header is True else records
    width = len(csv.header) if isinstance(csv.header, tuple) else max(map(len, records), default=0)
    columns = [[record[place].strip() for record in records if place < len(record)] for place in range(width)]
    return len(records), [_kind([field for field in column if field], csv.decimal) for column in columns]


def _kind(fields: list[str], decimal: str) -> Look:
    def mostly(fits: Callable[[str], Any]) -> bool:
        return sum(map(bool, map(fits, fields))) >= _MOST * max(len(fields), 1)

    if not fields:
        return Look("text")
    for form in _FORMS:
        own = layout(form)
        if mostly(lambda field, own=own: moment_of(field, own) is not None):  # type: ignore[misc]
            return Look("date", None if form == _FORMS[0] else form)
    if mostly(_TIME.fullmatch):
        return Look("timestamp")
    listed = Counter(fields)
    if {field.lower() for field in listed} in ({"0", "1"}, {"true", "false"}):
        return Look("flag")
    if mostly(_WHOLE.fullmatch) and not any(map(_PADDED.fullmatch, listed)):
        return Look("integer")
    if mostly(lambda field: _is_number(field.replace(decimal, "."))) and not any(map(_PADDED.fullmatch, listed)):
        return Look("real")
    often = [field for field, count in listed.items() if count > 1]
    if len(often) <= _FEW and 2 * len(listed) <= len(fields):
        return Look("category", values=tuple(sorted(often)))
    return Look("text")


def _find_encoding(path: str) -> str:
    try:
        with open_bytes(path) as stream:
            block = stream.read(BLOCK)
            if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            decoder = codecs.getincrementaldecoder("utf-8")("strict")
            while block:
                decoder.decode(block)
                block = stream.read(BLOCK)
            decoder.decode(b"", True)
            return "utf-8"
    except UnicodeDecodeError:
        return "cp1252"
    except (OSError, EOFError):
        raise BadTable(f"the file must be whole and readable. Got {path!r}.") from None


def _tries(text: str) -> list[tuple[str, str, list[list[str]]]]:
    """The records under each delimiter and quote; the last may be cut, so it is left out where there are several."""
    tries = []
    for quote in '"', "'":
        for delimiter in ",;\t|":
            lines = reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote)
            records: list[list[str]] = []
            try:
                records.extend(lines)
            except CsvError:
                continue
            tries.append((delimiter, quote, records[:-1] if len(records) > 1 and len(text) >= SAMPLE else records))
    return tries


def _alike(records: Sequence[Sequence[str]]) -> tuple[float, int]:
    """Which part of the records has as many fields as the first, if it has several; and how many these are."""
    width = len(records[0]) if records else 0
    if width < 2:
        return 0.0, 0
    return sum(len(record) == width for record in records) / len(records), width


def _is_header(record: Sequence[str]) -> bool:
    """Whether a record can be names: each there, each once, none a number."""
    return bool(record) and all(record) and len(set(record)) == len(record) and not any(map(_is_number, record))


def _is_number(field: str) -> bool:
    try:
        float(field.replace(",", "."))
    except ValueError:
        return False
    return True


def open_bytes(path: str) -> BinaryIO:
    """The file's bytes, unpacked where its name ends in .gz."""
    return cast("BinaryIO", gzip.open(path)) if path.endswith(".gz") else open(path, "rb")
