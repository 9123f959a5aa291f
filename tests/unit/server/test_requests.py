import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.server.guard import MOST_BYTES, Problem
from dodona.server.requests import DEEPEST, parse

BAD = {
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": Infinity}',
    "minus Infinity": b"[-Infinity]",
    "1e400": b'{"a": 1e400}',
    "duplicate": b'{"a": 1, "a": 1}',
    "nested duplicate": b'[{"b": {"a": 1, "a": 2}}]',
    "5001 digits": b'{"a": ' + b"1" * 5001 + b"}",
    "20 digits": b"[" + b"1" * 20 + b"]",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep and closed": b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
    "not UTF-8": b'{"a": "\xff"}',
    "half a surrogate": b'{"a": "\\ud800"}',
    "half a surrogate as a name": b'{"\\udfff": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "two values": b"1 2",
    "nothing": b"",
    "comment": b'{"a": 1 /* b */}',
    "trailing comma": b"[1,]",
    "single quotes": b"{'a': 1}",
    "too large": b'"' + b"a" * MOST_BYTES + b'"',
    "an open string full of brackets": b'"' + b"[" * 500_000,
}


@pytest.mark.parametrize("name", list(BAD))
def test_refused_quickly(name):
    start = time.process_time()
    with pytest.raises(Problem) as caught:
        parse(BAD[name])
    assert time.process_time() - start < 1
    assert caught.value.status in (400, 413)


def test_brackets_in_strings_do_not_nest():
    text = json.dumps({"a": "[{" * 1000 + '\\"' + "[" * 1000, "b": [1]})
    assert parse(text.encode()) == json.loads(text)


TEXT = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_plain_passes_unchanged(value):
    assert parse(json.dumps(value).encode()) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body):
    with contextlib.suppress(Problem):
        assert parse(body) == json.loads(body)
