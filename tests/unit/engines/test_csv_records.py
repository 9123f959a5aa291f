"""Records of CSV: the bounds of one never depend on what another holds, and a file that leaves a doubt is refused."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.engines.csv import Csv
from dodona.engines.csv import records as csv_records
from dodona.engines.csv.records import LONGEST, escapes, read_names, read_records
from dodona.errors import BadTable

BARE = Csv(header=False)
Rows = list[list[str]]


def split(lines: bytes, delimiter: str = ",") -> Rows:
    """The fields of records in plain form."""
    found = [line.split(delimiter) for line in lines.decode().split("\n")[:-1]]
    for two, one in escapes(delimiter).items():
        found = [[field.replace(two, one) for field in record] for record in found]
    return found


def scanned(raw: bytes, fields: int, size: int = 1 << 20, form: Csv = BARE) -> Rows:
    """As ``read_records`` does, from blocks of ``size`` bytes."""
    plain, records, found = csv_records._Plain(form, "x.csv"), csv_records._Records(fields, ord(form.delimiter)), b""
    for start in range(0, len(raw), size):
        found += records.whole(plain.block(raw[start : start + size]))[0]
    return split(found + records.whole(plain.end())[0], form.delimiter)


def by_hand(raw: bytes) -> Rows | None:
    """One byte after the other; None where the file is refused."""
    rows: Rows = []
    record, field, state, begun = [], "", "start", False
    for place, sign in enumerate(raw.decode("latin-1")):
        if state == "inside":
            state = "closed" if sign == '"' else state
            field += "" if sign == '"' else sign
        elif sign == '"':
            if state == "plain":
                return None
            field += '"' if state == "closed" else ""
            state, begun = "inside", True
        elif sign == ",":
            record.append(field)
            field, state, begun = "", "start", True
        elif sign in "\r\n":
            if sign == "\n" and not begun and raw[place - 1 : place] == b"\r" and state == "start":
                continue
            rows.append([*record, field])
            record, field, state, begun = [], "", "start", False
        elif state == "closed":
            return None
        else:
            field, state, begun = field + sign, "plain", True
    if state == "inside":
        return None
    return [*rows, [*record, field]] if begun else rows


def mended(rows: Rows, fields: int) -> Rows:
    return [row if len(row) == fields else [""] * fields for row in rows]


def strings(signs: bytes, most: int) -> Iterator[bytes]:
    for length in range(most + 1):
        yield from map(bytes, itertools.product(signs, repeat=length))


def test_every_short_file_has_the_records_that_a_reading_by_hand_finds() -> None:
    accepted = 0
    for place, raw in enumerate(strings(b'",\n\ra', 5)):
        expected = by_hand(raw)
        try:
            found = scanned(raw, 2, 1 + place % 4)
        except BadTable:
            assert expected is None, raw
            continue
        assert expected is not None, raw
        assert found == mended(expected, 2), raw
        accepted += 1
    assert accepted > 1000


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([b'"a\n', b'",', b'"\n', b'""', b"\r", b"\n", b"b,", b"\x00", b"\xc3"])),
    st.integers(1, 70),
)
def test_blocks_are_cut_anywhere(parts: list[bytes], size: int) -> None:
    raw = b"".join(parts)

    def outcome(size: int) -> Rows | str:
        try:
            return scanned(raw, 3, size)
        except BadTable as error:
            return str(error)

    assert outcome(size) == outcome(1 << 20)


FIELDS = st.text(st.sampled_from('a1 ",;\r\n\x00\x10Dé😀\t'), max_size=6)


def written(record: list[str], quoted: bool, end: str) -> str:
    needed = [quoted or any(sign in field for sign in '",\r\n') or record == [""] for field in record]
    cells = ('"' + f.replace('"', '""') + '"' if q else f for f, q in zip(record, needed, strict=True))
    return ",".join(cells) + end


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(FIELDS, min_size=n, max_size=n), max_size=6)),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 40),
)
def test_well_formed_records_are_those_of_the_standard_library(rows: Rows, quoted: bool, end: str, size: int) -> None:
    text = "".join(written(row, quoted, end) for row in rows)
    peer = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert peer == rows
    assert scanned(text.encode(), len(rows[0]) if rows else 1, size) == rows


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(FIELDS, min_size=2, max_size=2), max_size=4), st.text('",\n\ra', max_size=8), st.data())
def test_one_record_that_is_not_well_formed_always_refuses_the_file(rows: Rows, bad: str, data: st.DataObject) -> None:
    lines = [written(row, False, "\n") for row in rows]
    place = data.draw(st.integers(0, len(lines)))
    text = "".join([*lines[:place], bad + "\n", *lines[place:]])
    alone = by_hand(f"{bad}\n".encode())
    if alone is None:
        with pytest.raises(BadTable):
            scanned(text.encode(), 2)
    else:
        assert scanned(text.encode(), 2) == mended([*rows[:place], *alone, *rows[place:]], 2)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b'a,b\n1,2\n3,x"y\n', 3),
        (b'a,b\n"1"2,3\n', 2),
        (b'a,b\n"1" ,3\n', 2),
        (b'a,b\n1, "2"\n', 2),
        (b'a,b\n1,2\n"987654.25,3\n4,5\n', 3),
        (b'a,b\n"1\n\n2",x\n5,"""\n6,7\n', 5),
        (b'"', 1),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_a_refusal_names_the_line_and_no_value(raw: bytes, line: int, size: int) -> None:
    with pytest.raises(BadTable, match=rf"\(line {line}\)") as error:
        scanned(raw, 2, size)
    assert "987654" not in str(error.value)


def test_without_quotes_every_line_is_a_record() -> None:
    raw = b'5" pipe,"a\nb",c\n"open,x\n'
    assert scanned(raw, 2, form=Csv(quote="", header=False)) == [['5" pipe', '"a'], ['b"', "c"], ['"open', "x"]]


def test_ragged_records_are_rows_of_missing_values() -> None:
    assert scanned(b"1,2\n3\n4,5,6\n\n,\n7,8", 2) == [["1", "2"], ["", ""], ["", ""], ["", ""], ["", ""], ["7", "8"]]
    assert scanned(b'\n""\na\n"",b\n""', 1) == [[""], [""], ["a"], [""], [""]]


def test_fields_that_are_not_of_the_encoding_are_missing_and_no_other() -> None:
    raw = b"1,\xff\n\xed\xa0\x80,2\n\xc3\xa9,\xc3\n\xf0\x9f\x98\x80,\xf0\x9f\x98\n\xc0\xaf,\xf4\x90\x80\x80"
    assert scanned(raw, 2) == [["1", ""], ["", "2"], ["é", ""], ["😀", ""], ["", ""]]


@pytest.mark.parametrize("size", [1000, 1 << 20, LONGEST + 100])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_record_that_is_too_long_is_one_row_of_missing_values(
    size: int, quoted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_records, "LONGEST", 5000)
    quote = b'"' if quoted else b""
    for length, expected in ((4998, "1"), (4999, ""), (40000, "")):
        found = scanned(b"0,a\n1," + quote + b"x" * length + quote + b"\n2,b\n", 2, size)
        assert [row[0] for row in found] == ["0", expected, "2"]
        assert [len(row) for row in found] == [2, 2, 2]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le", "iso-8859-15"])
@pytest.mark.parametrize("packed", [False, True])
def test_encodings(encoding: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_records, "BLOCK", 7)
    text = 'Größe,"n\nm"\r\n"é,è",ü\r\n'
    raw = (b"\xff\xfe" if encoding == "utf-16-le" else b"") + text.encode(encoding)
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    form = Csv(encoding="utf-16" if encoding == "utf-16-le" else encoding.removesuffix("-sig"))
    assert read_names(str(path), form) == ["Größe", "n\nm"]
    assert split(b"".join(lines for lines, _ in read_records(str(path), form, 2))) == [["é,è", "ü"]]


def test_bytes_that_an_encoding_does_not_have_are_missing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n\x81,\x80\n")
    lines = b"".join(lines for lines, _ in read_records(str(tmp_path / "a.csv"), Csv(encoding="cp1252"), 2))
    assert split(lines) == [["", "€"]]
    (tmp_path / "b.csv").write_bytes("a,b\n1,2\n".encode("utf-16") + b"\n")
    with pytest.raises(BadTable, match="utf-16"):
        list(read_records(str(tmp_path / "b.csv"), Csv(encoding="utf-16"), 2))
