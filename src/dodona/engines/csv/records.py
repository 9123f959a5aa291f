"""Reads CSV as records, as RFC 4180 and every other reader does, so that no record can change how another one is read.

A record ends at a line break (LF, CRLF or CR) outside quotes. A field is quoted as a whole or not at all, and a quote
in it is doubled. Whatever breaks that is refused, and the file with it: a quote inside an unquoted field, text after a
closing quote, a quote that never closes. That is enough. Let all records of a file but one be well formed. Those before
it leave the reader between records. If it has an even number of quotes and breaks the rule, this is seen inside it. If
the number is odd, that of the whole file is odd, and at the end of the file a quote is open. So a file that is accepted
has either no such record or several, and what one well-formed record holds moves no other's bounds.

Everything else is total. A record with too few or too many fields, or longer than ``LONGEST``, is a row of missing
values; a field with bytes that are not of the encoding is missing; an empty line is a record with one empty field.

What comes out is the same records in a form that cannot be misread: n fields between delimiters, one record a line, no
quotes. Where the content of a field has a delimiter, a line break, a NUL or the escape sign, two signs stand for it:
``ESCAPE`` and a letter. Blocks pass through NumPy; nothing is done for each byte or record in Python, except to mend.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dodona.engines.csv import BLOCK, ESCAPE, Csv, open_bytes
from dodona.errors import BadTable

LONGEST = 1 << 24  # bytes of a record
_LF, _CR, _NUL = 10, 13, 0
_FULL, _TOP = ~np.uint64(0), np.uint64(63)
_OTHER = "\udcff"  # stands for bytes that are not of the encoding; itself no UTF-8

Bytes = NDArray[np.uint8]
Marks = NDArray[np.bool_]


def escapes(delimiter: str) -> dict[str, str]:
    """Two signs for one, in the order in which they are to be read back."""
    signs = {"D": delimiter, "N": "\n", "R": "\r", "Z": "\x00", "P": chr(ESCAPE)}
    return {chr(ESCAPE) + letter: sign for letter, sign in signs.items()}


def read_names(path: str, csv: Csv) -> list[str]:
    """The column names in the header record."""
    first = b""
    with closing(_lines(path, csv)) as lines:
        while b"\n" not in first and len(first) <= LONGEST:
            block = next(lines, None)
            if block is None:
                raise BadTable(f"the file must begin with a record of column names. Got {path!r}.")
            first += block
    try:
        names = first.partition(b"\n")[0].decode().split(csv.delimiter)
    except UnicodeDecodeError:
        raise BadTable(f"the file must begin with a record of column names, in {csv.encoding}. Got {path!r}.") from None
    for two, one in escapes(csv.delimiter).items():
        names = [name.replace(two, one) for name in names]
    if len(set(names)) < len(names):
        raise BadTable(f"the column names in the first record must differ from each other. Got {path!r}.")
    return names


def read_records(path: str, csv: Csv, fields: int) -> Iterator[tuple[bytes, int]]:
    """The records in plain form, many at a time, and how many they are; without the header record.

    Raises ``BadTable``, with the line but no value, where the file's records are not well formed.
    """
    skip, records = csv.header is True, _Records(fields, ord(csv.delimiter))
    for block in _lines(path, csv):
        if skip:
            end = block.find(b"\n")
            if end < 0:
                continue
            block, skip = block[end + 1 :], False  # noqa: PLW2901
        yield records.whole(block)


def _lines(path: str, csv: Csv) -> Generator[bytes, None, None]:
    """Blocks of lines in plain form, cut anywhere; the last line is ended."""
    plain = _Plain(csv, path)
    for block in _utf8(path, csv.encoding):
        yield plain.block(block)
    yield plain.end()


def _utf8(path: str, encoding: str) -> Iterator[bytes]:
    """The bytes of the file in UTF-8, without a byte order mark; what cannot be decoded is no UTF-8 either."""
    try:
        with open_bytes(path) as stream:
            if encoding == "utf-8":
                first = stream.read(BLOCK)
                yield first.removeprefix(codecs.BOM_UTF8)
                while block := stream.read(BLOCK):
                    yield block
                return
            # In UTF-16 one byte too many would shift all that follows, so there a fault refuses the file.
            errors = "strict" if encoding == "utf-16" else "dodona.other"
            decoder = codecs.getincrementaldecoder(encoding)(errors)
            while block := stream.read(BLOCK):
                yield decoder.decode(block).encode("utf-8", "surrogatepass")
            yield decoder.decode(b"", True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise BadTable(f"the file must be in {encoding}, as stated. Got {path!r}.") from None
    except (OSError, EOFError, zlib.error):
        raise BadTable(f"the file must be whole and readable. Got {path!r}.") from None


codecs.register_error("dodona.other", lambda error: (_OTHER, cast("UnicodeDecodeError", error).end))


class _Plain:
    """Takes quotes away and writes what they protected with the escape sign, block by block."""

    def __init__(self, csv: Csv, path: str) -> None:
        self._path, self._delimiter = path, ord(csv.delimiter)
        self._quote = ord(csv.quote) if csv.quote else None
        self._rare = bytes([*([] if self._quote is None else [self._quote]), _CR, _NUL, ESCAPE])
        self._letters = np.arange(256, dtype=np.uint8)
        for two, one in escapes(csv.delimiter).items():
            self._letters[ord(one)] = ord(two[1])
        # Of the byte before: inside quotes; may stand beside a quote; closes quotes; ends a record; is a CR that does.
        self._inside, self._edge, self._closed, self._between, self._cr = False, True, False, True, False
        self._line, self._opened = 1, 1  # of the byte to come; of the last opening quote

    def block(self, block: bytes) -> bytes:
        if not block:
            return block
        if not (self._inside or self._closed or self._cr or any(sign in block for sign in self._rare)):
            self._line += block.count(b"\n")
            self._between = block[-1] == _LF
            self._edge = self._between or block[-1] == self._delimiter
            return block
        raw = np.frombuffer(block, dtype=np.uint8)
        breaks, cr = raw == _LF, raw == _CR
        line_ends, breaks = breaks, breaks | cr
        edge = breaks | (raw == self._delimiter)
        quotes = np.zeros(len(raw), dtype=np.bool_) if self._quote is None else raw == self._quote
        inside = _odd_so_far(quotes, self._inside)  # from an opening quote on, up to the closing one
        beside = edge | quotes
        closing_quotes = quotes & ~inside
        wrong = _shifted(closing_quotes, self._closed) & ~beside
        wrong |= quotes & inside & ~_shifted(beside, self._edge)
        if wrong.any():
            place = int(wrong.argmax())
            line = self._line + int(np.count_nonzero(line_ends[:place]))
            self._refuse(line, "a quote stands inside a field, or text after a closing quote")
        ends = breaks & ~inside
        ending_cr = cr & ~inside
        doubled = quotes & inside & _shifted(closing_quotes, self._closed)
        dropped = (quotes & ~doubled) | (line_ends & _shifted(ending_cr, self._cr))
        special = (edge & inside) | (raw == ESCAPE) | (raw == _NUL)
        self._inside, self._edge, self._closed = bool(inside[-1]), bool(beside[-1]), bool(closing_quotes[-1])
        self._between, self._cr = bool(ends[-1]), bool(ending_cr[-1])
        if self._inside and quotes.any():
            opened = len(raw) - int(quotes[::-1].argmax())
            self._opened = self._line + int(np.count_nonzero(line_ends[:opened]))
        self._line += int(np.count_nonzero(line_ends))
        plain = raw.copy()
        plain[ending_cr] = _LF
        places = np.flatnonzero(special)
        plain[places] = self._letters[plain[places]]
        plain[dropped] = _NUL
        if len(places):
            plain = np.insert(plain, places, ESCAPE)
        return plain.tobytes().translate(None, b"\x00")

    def end(self) -> bytes:
        """The end of a last record that has no line break."""
        if self._inside:
            self._refuse(self._opened, "a quote never closes")
        return b"" if self._between else b"\n"

    def _refuse(self, line: int, why: str) -> None:
        raise BadTable(
            f"the file must be CSV that can be read in one way only. Got {self._path!r}, where {why} (line "
            f"{line:,}). Quote such fields as a whole and double the quotes in them, or say quote = '' "
            "if the file has no quoted fields."
        )


def _shifted(marks: Marks, before: bool) -> Marks:
    """The marks of the byte before each."""
    result = np.empty_like(marks)
    result[0], result[1:] = before, marks[:-1]
    return result


def _odd_so_far(marks: Marks, odd: bool) -> Marks:
    """Whether up to and with each place there is an odd number of marks: 64 places a word, by doubling shifts."""
    packed = np.packbits(marks, bitorder="little")
    words = np.zeros(-(-len(packed) // 8), dtype=np.uint64)
    words.view(np.uint8)[: len(packed)] = packed
    for shift in (1, 2, 4, 8, 16, 32):
        words ^= words << np.uint64(shift)
    carried = np.bitwise_xor.accumulate((words >> _TOP).astype(np.bool_)) ^ odd
    words ^= np.where(_shifted(carried, odd), _FULL, np.uint64(0))
    return np.unpackbits(words.view(np.uint8), bitorder="little", count=len(marks)).view(np.bool_)


class _Records:
    """Puts lines together and mends those that are not records of ``fields`` fields in UTF-8."""

    def __init__(self, fields: int, delimiter: int) -> None:
        self._fields, self._delimiter = fields, delimiter
        self._empty = bytes([delimiter]) * (fields - 1)
        self._begun, self._long = b"", False  # a line without its end yet; whether it is too long to be kept

    def whole(self, block: bytes) -> tuple[bytes, int]:
        """The records that end in this block."""
        end = block.rfind(b"\n") + 1
        if not end:
            self._begin(self._begun + block)
            return b"", 0
        first = block.find(b"\n") + 1
        if self._long:  # in its place a line with as many fields as there must be, all of them empty
            block, end = self._empty + block[first - 1 :], len(self._empty) + end - first + 1
        lines, self._long = self._begun + block[:end], False
        self._begin(block[end:])
        return self._mended(lines)

    def _begin(self, line: bytes) -> None:
        self._long = self._long or len(line) > LONGEST
        self._begun = b"" if self._long else line

    def _mended(self, lines: bytes) -> tuple[bytes, int]:
        raw = np.frombuffer(lines, dtype=np.uint8)
        breaks = raw == _LF
        marks = np.flatnonzero(breaks | (raw == self._delimiter))  # the end of each field
        last = np.flatnonzero(breaks[marks])  # of each record
        ends = marks[last]
        ragged = np.diff(last, prepend=-1) != self._fields
        ragged |= np.diff(ends, prepend=-1) - 1 > LONGEST
        wrong = _undecodable(lines, self._delimiter)
        if not len(wrong) and not ragged.any():
            return lines, len(ends)
        mended = bytearray(lines)
        for field in wrong.tolist():
            start, end = int(marks[field - 1]) + 1 if field else 0, int(marks[field])
            mended[start:end] = bytes(end - start)
        parts: list[bytes | bytearray] = []
        kept = 0
        for record in np.flatnonzero(ragged).tolist():
            start, end = int(ends[record - 1]) + 1 if record else 0, int(ends[record])
            parts += [mended[kept:start], self._empty]
            kept = end
        return b"".join([*parts, mended[kept:]]).translate(None, b"\x00"), len(ends)


def _undecodable(text: bytes, delimiter: int) -> NDArray[np.intp]:
    """The numbers of the fields with bytes that are not UTF-8."""
    if text.isascii():
        return np.zeros(0, dtype=np.intp)
    try:
        text.decode()
        return np.zeros(0, dtype=np.intp)
    except UnicodeDecodeError:
        signs = np.frombuffer(text.decode("utf-8", "surrogateescape").encode("utf-32-le", "surrogatepass"), np.uint32)
    escaped = np.flatnonzero((signs >= 0xDC80) & (signs <= 0xDCFF))
    return np.unique(np.searchsorted(np.flatnonzero((signs == _LF) | (signs == delimiter)), escaped))
