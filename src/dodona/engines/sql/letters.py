"""Texts in SQL: how a database cleans one, how it writes what is observed of them (``query/terms.py``), and how one
that says a date or a time is read.

Every text is valid Unicode and cut to what its column says before anything is done to it, so no operation can raise or
grow. Patterns are never handed to a database's LIKE where that tries every way to share a text among the % of a
pattern; how long a row takes depends on how long its text is, and not on what stands in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dodona.query import calendar
from dodona.query.schema import Date, Timestamp
from dodona.query.terms import Observation, Term, escaped, segments
from dodona.query.words import BLANKS, Cleaning

Stored = Callable[[str], str]
"""From a column's name to its stored text, cleaned and cut to one character more than counts."""
CAPITALS, SMALL = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"


class Letters(ABC):
    """A database's words for texts."""

    # -- what a database writes in its own way ---------------------------------------------------------------------

    @abstractmethod
    def literal(self, text: str) -> str:
        """A text as it is written."""

    @abstractmethod
    def length(self, x: str) -> str:
        """How many characters, as a double."""

    @abstractmethod
    def matches(self, x: str, pattern: str) -> str:
        """Whether x is like a pattern with % and _."""

    def trimmed(self, x: str, side: str, characters: str) -> str:
        """Without any of the characters at its left or right end, or at both."""
        return f"{_TRIM[side]}({x}, {self.literal(characters)})"

    def part(self, x: str, first: int, length: int | None) -> str:
        """So many characters from the ``first`` on, counted from 1."""
        return f"substr({x}, {first})" if length is None else f"substr({x}, {first}, {length})"

    def last(self, x: str, length: int) -> str:
        """So many characters at its end."""
        return f"right({x}, {length})"

    def same(self, x: str, y: str) -> str:
        """Whether two texts have the same bytes."""
        return f"({x} = {y})"

    def one_of(self, x: str, texts: Sequence[str]) -> str:
        """Whether it is one of literal texts."""
        return f"({x} IN ({', '.join(map(self.literal, texts))}))"

    def joined(self, parts: Sequence[str]) -> str:
        """One after the other; NULL where one is."""
        return f"({' || '.join(parts)})"

    # -- what all do alike -----------------------------------------------------------------------------------------

    def cleaned(self, x: str, cleaning: Cleaning) -> str:
        """A stored text as the schema cleans it (``words.Cleaning``)."""
        x = self.trimmed(x, "both", BLANKS) if cleaning.trim else x
        return self.cased(x, CAPITALS, SMALL) if cleaning.fold else x

    def cased(self, x: str, old: str, new: str) -> str:
        """With other letters for some of A to Z."""
        return f"translate({x}, {self.literal(old)}, {self.literal(new)})"

    def observed(self, observation: Observation, stored: Stored) -> str:
        """A number or a truth."""
        match observation:
            case ("length", term):
                return self.length(self.term(term, stored))
            case ("whole", term):
                return self.term(term, stored)
            case ("in", term, texts):
                return self.one_of(self.term(term, stored), texts)
            case ("same", one, other):
                return self.same(self.term(one, stored), self.term(other, stored))
        _, term, pattern = observation
        parts = segments(pattern)
        if len(parts) == 1 and None not in parts[0]:
            return self.one_of(self.term(term, stored), ["".join(map(str, parts[0]))])
        return self.matches(self.term(term, stored), pattern)

    def term(self, term: Term, stored: Stored) -> str:
        """The text of a term."""
        match term:
            case ("column", name, most, _, missing):
                x = self.part(stored(name), 1, most)
                return x if missing is None else f"COALESCE({x}, {self.literal(missing)})"
            case ("text", text):
                return self.literal(text)
            case ("lower", of):
                return self.cased(self.term(of, stored), CAPITALS, SMALL)
            case ("upper", of):
                return self.cased(self.term(of, stored), SMALL, CAPITALS)
            case ("trim", side, characters, of):
                return self.trimmed(self.term(of, stored), side, characters)
            case ("part", first, length, of):
                return self.part(self.term(of, stored), first, length)
            case ("last", length, of):
                return self.last(self.term(of, stored), length)
        return self.joined([self.term(part, stored) for part in term[1:]])


_TRIM = {"both": "btrim", "left": "ltrim", "right": "rtrim"}


def regular(pattern: str, sign: Callable[[str], str], whole: Callable[[str], str]) -> str:
    """A regular expression for a pattern that is matched in one pass, however a machine searches.

    ``sign``: a character that means itself. ``whole``: an expression that, once it has found a place, never looks for
    another. A segment between two % is looked for once, at the first place there is: no later one could do better.
    """
    first, *rest = segments(pattern)
    expression = _segment(first, sign)
    for segment in rest[:-1]:
        expression += whole(f".*?{_segment(segment, sign)}")
    return expression + (f".*{_segment(rest[-1], sign)}" if rest else "")


def _segment(segment: Sequence[Any], sign: Callable[[str], str]) -> str:
    return "".join("." if one is None else sign(one) for one in segment)


def plain_pattern(pattern: str) -> tuple[str, str] | None:
    """("starts", text), ("ends", text) or ("holds", text), where a pattern says no more than that."""
    parts = segments(pattern)
    if any(None in part for part in parts) or len(parts) not in (2, 3):
        return None
    texts = ["".join(map(str, part)) for part in parts]
    if len(texts) == 2 and not texts[1]:
        return "starts", texts[0]
    if len(texts) == 2 and not texts[0]:
        return "ends", texts[1]
    return ("holds", texts[1]) if len(texts) == 3 and not texts[0] and not texts[2] else None


def standard_pattern(pattern: str) -> str:
    """The pattern again, every sign that means itself behind the escape sign where it must be."""
    return "%".join("".join("_" if one is None else escaped(one) for one in part) for part in segments(pattern))


_FAR = 864_000_000_000  # seconds: added before a division, so that what is divided is positive; whole days


class Words(NamedTuple):
    """What databases write in different ways where a text is read as a date or time.

    ``group``: the n-th group of a pattern that matches all of a text; NULL or empty where it does not. ``whole``:
    digits as a BIGINT, NULL where there are none. ``over``: a positive BIGINT by a constant one, rounded down.
    """

    group: Callable[[str, str, int, int], str]
    whole: Callable[[str], str]
    over: Callable[[str, int], str]


def steps_of_text(words: Words, text: str, column: Date | Timestamp) -> str:
    """A BIGINT: the whole steps of the column since 1970, unbounded; NULL where the text cannot be read.

    No database is asked what a text means: they differ in what they take for a date, and some raise where it is none.
    The digits that the pattern finds become whole numbers, as in ``calendar.moment``, and a text that is no day of the
    years 1 to 9999 is NULL.
    """
    layout = calendar.layout(column.format)
    count = len(layout.fields)
    found = {field: words.group(text, layout.pattern, place + 1, count) for place, field in enumerate(layout.fields)}
    year, month, day = (words.whole(found[field]) for field in "Ymd")
    seconds = f"({_days(words, year, month, day)}) * 86400"
    tests = [_is_day(words, year, month, day)]
    for field, most, worth in (("H", 23, 3600), ("M", 59, 60), ("S", 59, 1)):
        if field in found:
            part = f"COALESCE({words.whole(found[field])}, 0)"
            tests.append(f"{part} <= {most}")
            seconds += f" + {part} * {worth}"
    if "z" in found:
        zone = found["z"]
        hours, minutes = (f"COALESCE({words.whole(f'SUBSTR({zone}, {at}, 2)')}, 0)" for at in (2, 5))
        tests += [f"{hours} <= 23", f"{minutes} <= 59"]
        seconds += f" - CASE WHEN SUBSTR({zone}, 1, 1) = '-' THEN -1 ELSE 1 END * ({hours} * 3600 + {minutes} * 60)"
    if column.step >= calendar.STEPS["second"]:
        width = column.step // calendar.STEPS["second"]
        steps = f"{words.over(f'({seconds} + {_FAR})', width)} - {_FAR // width}"
    else:
        digits = 3 if column.step == calendar.STEPS["millisecond"] else 6
        fraction = f"COALESCE({words.whole(f'''RPAD({found['f']}, {digits}, '0')''')}, 0)" if "f" in found else "0"
        fraction = f"CASE WHEN LENGTH({found['f']}) > 0 THEN {fraction} ELSE 0 END" if "f" in found else fraction
        steps = f"({seconds}) * {10**digits} + {fraction}"
    return f"CASE WHEN {' AND '.join(tests)} THEN {steps} END"


def _is_day(words: Words, year: str, month: str, day: str) -> str:
    fourth, hundredth, leap = (f"{words.over(year, by)} * {by} = {year}" for by in (4, 100, 400))
    february = f"CASE WHEN {leap} OR ({fourth} AND NOT {hundredth}) THEN 29 ELSE 28 END"
    last = f"CASE WHEN {month} = 2 THEN {february} WHEN {month} IN (4, 6, 9, 11) THEN 30 ELSE 31 END"
    return f"{year} >= 1 AND {month} BETWEEN 1 AND 12 AND {day} >= 1 AND {day} <= {last}"


def _days(words: Words, year: str, month: str, day: str) -> str:
    """Days since 1970-01-01 (``calendar.first_of``); January and February are the last months of the year before."""
    early = f"CASE WHEN {month} <= 2 THEN 1 ELSE 0 END"
    since, place = f"({year} - {early})", f"({month} - 3 + 12 * {early})"
    leaps = f"{words.over(since, 4)} - {words.over(since, 100)} + {words.over(since, 400)}"
    return f"365 * {since} + {leaps} + {words.over(f'(153 * {place} + 2)', 5)} + {day} - 719469"
