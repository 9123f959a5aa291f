"""How a CSV file is written: its signs, its encoding, its header. Stated by the curator, never guessed at opening."""

from __future__ import annotations

import codecs
import gzip
import io
import re
from collections.abc import Mapping, Sequence
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass, fields
from typing import Any, BinaryIO, cast

from dodona.errors import BadSchema, BadTable

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
