"""Columns of words: one of listed values, true or false, or open text; and how what is stored is cleaned first.

Cleaning is public knowledge about a column, so it stands in the schema: ``trim`` takes the blanks (``BLANKS``) off both
ends, ``fold="case"`` makes A to Z small, ``aliases`` says which other texts mean a listed value, and ``other`` what a
value that is not listed counts as. Only ASCII letters are folded and only ASCII blanks are trimmed, so that every
engine does the same to every text, whatever language or version of Unicode it knows.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dodona.errors import BadSchema

MOST_CATEGORIES = 65_536
LONGEST_TEXT = 1_000  # characters of an open text: memory holds four bytes for each, in every row
BLANKS = " \t\n\v\f\r"
OTHER_VALUE = "other"
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)

Label = str | int | bool


@dataclass(frozen=True)
class Cleaning:
    """What is done to a stored value before it is looked for among the listed ones.

    ``aliases``: pairs of another text, cleaned, and the listed value that it means. ``other``: what counts where a
    value is there and is none of these; None: it is missing.
    """

    fold: bool = False
    trim: bool = False
    aliases: tuple[tuple[str, Label], ...] = ()
    other: Label | None = None

    def text(self, text: str) -> str:
        """A stored text as it is compared."""
        text = text.strip(BLANKS) if self.trim else text
        return text.translate(LOWER) if self.fold else text

    def codes(self, labels: Iterable[Label]) -> dict[Label, int]:
        """For every value that is known, cleaned, the place of the one it means among ``labels``."""
        places = {label: place for place, label in enumerate(labels)}
        known: dict[Label, int] = {
            self.text(label) if isinstance(label, str) else label: place for label, place in places.items()
        }
        return known | {alias: places[label] for alias, label in self.aliases}

    @property
    def changes_texts(self) -> bool:
        """Whether a text is looked for as something else than it is."""
        return self.fold or self.trim

    def describe(self) -> dict[str, Any]:
        """As plain data, what is not stated left out."""
        told: dict[str, Any] = ({"fold": "case"} if self.fold else {}) | ({"trim": True} if self.trim else {})
        if self.aliases:
            told["aliases"] = {
                str(label): [alias for alias, meant in self.aliases if meant == label]
                for label in dict.fromkeys(label for _, label in self.aliases)
            }
        return told | ({"other": self.other} if self.other is not None else {})


PLAIN = Cleaning()


def _cleaning(fold: Any, trim: Any) -> Cleaning:
    if fold not in (None, "case"):
        raise BadSchema(f"fold must be 'case', or be left out. Got {fold!r}.")
    if not isinstance(trim, bool):
        raise BadSchema(f"trim must be true or false. Got {trim!r}.")
    return Cleaning(fold is not None, trim)


def _paired(aliases: Any, values: tuple[Label, ...], cleaning: Cleaning) -> tuple[tuple[str, Label], ...]:
    """Aliases as they may be stated, cleaned; refused where one text would mean two values."""
    if not isinstance(aliases, Mapping) or not all(isinstance(texts, list | tuple) for texts in aliases.values()):
        raise BadSchema(f"aliases must list other texts for values, as {{'Oslo': ['oslo', 'OSLO ']}}. Got {aliases!r}.")
    meant: dict[str, Label] = {}
    for label in values:
        if isinstance(label, str) and meant.setdefault(cleaning.text(label), label) != label:
            raise BadSchema(
                f"after cleaning the values must still differ. Got {meant[cleaning.text(label)]!r} and {label!r}."
            )
    own = set(meant)
    for label, texts in aliases.items():
        if label not in values or not isinstance(label, str):
            raise BadSchema(f"aliases must be of listed texts. Got some for {label!r}.")
        for text in texts:
            if not isinstance(text, str):
                raise BadSchema(f"an alias must be text. Got {text!r}.")
            if meant.setdefault(cleaning.text(text), label) != label:
                raise BadSchema(
                    f"one text must mean one value. {text!r} means {meant[cleaning.text(text)]!r} and {label!r}."
                )
    return tuple((text, label) for text, label in meant.items() if text not in own)


@dataclass(frozen=True, init=False)
class Category:
    """A column that holds one of the listed ``values``; anything else counts as missing, or as ``other``.

    ``fold="case"``, ``trim=True``, ``aliases={"Oslo": ["OSLO ", "Kristiania"]}``: how stored texts are cleaned before
    they are looked for (above). ``other``: the listed value that others count as; ``True``: one more value, "other".
    ``required``: it is publicly known that nothing is missing; what is after all counts as the first value.
    """

    values: tuple[Label, ...]
    missing: Label | None
    public: bool
    required: bool
    cleaning: Cleaning
    kind = "category"

    def __init__(
        self,
        *values: Label,
        missing: Label | None = None,
        public: bool = False,
        required: bool = False,
        fold: str | None = None,
        trim: bool = False,
        aliases: Mapping[Any, Any] | None = None,
        other: Label | None = None,
    ) -> None:
        if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset | range):
            raise BadSchema(f"a category's values are stated one by one: Category(*{values[0]!r}).")
        types = {type(value) for value in values}
        if other is True and types == {str}:
            values, other = tuple(dict.fromkeys([*values, OTHER_VALUE])), OTHER_VALUE
        if not 1 <= len(values) <= MOST_CATEGORIES:
            raise BadSchema(f"a category column must list 1 to {MOST_CATEGORIES} values. Got {len(values)}.")
        if len(types) != 1 or not types <= {str, int, bool}:
            raise BadSchema("the values of a category must all be text, or all whole numbers, or all true/false.")
        if len(set(values)) != len(values):
            raise BadSchema("the values of a category must differ from each other.")
        for name, value in {"missing": missing, "other": other}.items():
            if value is not None and (type(value) not in types or value not in values):
                raise BadSchema(f"{name} must be one of the category's values. Got {value!r}.")
        cleaning = _cleaning(fold, trim)
        if (cleaning.changes_texts or aliases) and types != {str}:
            raise BadSchema("fold, trim and aliases are for categories of texts.")
        cleaning = replace(cleaning, aliases=_paired(aliases or {}, values, cleaning), other=other)
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "missing", values[0] if required and missing is None else missing)
        object.__setattr__(self, "public", bool(public))
        object.__setattr__(self, "required", bool(required))
        object.__setattr__(self, "cleaning", cleaning)

    def __repr__(self) -> str:
        said = {name: value for name, value in self.describe().items() if name not in ("type", "values")}
        return f"Category({', '.join([*map(repr, self.values), *(f'{n}={v!r}' for n, v in said.items())])})"

    def describe(self) -> dict[str, Any]:
        """The column as plain data, for TOML and JSON."""
        return described(self, {"values": list(self.values), **self.cleaning.describe()}, self.values)


@dataclass(frozen=True)
class Flag:
    """A true/false column: a boolean, or a number that is 0 or 1; anything else is missing.

    ``required``: it is publicly known that none is missing; one that is after all counts as false.
    """

    missing: bool | None = None
    public: bool = False
    required: bool = False
    kind = "flag"

    def __post_init__(self) -> None:
        if self.required and self.missing is None:
            object.__setattr__(self, "missing", False)
        if self.missing is not None and not isinstance(self.missing, bool):
            raise BadSchema(f"missing must be true or false. Got {self.missing!r}.")

    def describe(self) -> dict[str, Any]:
        """The column as plain data, for TOML and JSON."""
        return described(self, {}, ())


@dataclass(frozen=True, init=False)
class Text:
    """A column of any text, of which the first ``max_length`` characters count; a character is a code point of Unicode.

    Conditions speak of it (=, IN, LIKE, LENGTH, ...); its values are no groups, since nobody listed them. ``trim`` and
    ``fold="case"`` clean a text before it is cut. ``missing``: the text that NULL counts as. ``required``: it is
    publicly known that none is missing; one that is after all counts as the empty text.
    """

    max_length: int
    missing: str | None
    public: bool
    required: bool
    cleaning: Cleaning
    kind = "text"

    def __init__(
        self,
        max_length: int,
        missing: str | None = None,
        public: bool = False,
        required: bool = False,
        fold: str | None = None,
        trim: bool = False,
    ) -> None:
        if isinstance(max_length, bool) or not isinstance(max_length, int) or not 1 <= max_length <= LONGEST_TEXT:
            raise BadSchema(
                f"max_length must be a whole number from 1 to {LONGEST_TEXT:,} characters. Got {max_length!r}."
            )
        object.__setattr__(self, "max_length", max_length)
        object.__setattr__(self, "cleaning", _cleaning(fold, trim))
        missing = "" if required and missing is None else missing
        if missing is not None and (not is_text(missing) or self.cut(missing) != missing):
            raise BadSchema(
                f"missing must be a text as cleaning leaves it, of at most max_length characters. Got {missing!r}."
            )
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "public", bool(public))
        object.__setattr__(self, "required", bool(required))

    def cut(self, text: str) -> str:
        """A stored text as questions see it."""
        return self.cleaning.text(text)[: self.max_length]

    def __repr__(self) -> str:
        return f"Text({', '.join(f'{name}={value!r}' for name, value in self.describe().items() if name != 'type')})"

    def describe(self) -> dict[str, Any]:
        """The column as plain data, for TOML and JSON."""
        return described(self, {"max_length": self.max_length, **self.cleaning.describe()}, (self.max_length,))


def is_text(value: Any) -> bool:
    """Whether every engine can be told it: Unicode without a NUL and without half a character."""
    return isinstance(value, str) and "\x00" not in value and value.encode(errors="ignore").decode() == value


def described(column: Any, own: dict[str, Any], must: tuple[Any, ...]) -> dict[str, Any]:
    """A column as plain data. ``own``: what its kind alone says; ``must``: what it must state, in order."""
    told = {"type": column.kind, **own}
    if column.missing is not None and not column.required:
        told["missing"] = column.missing
    if column.public:
        told["public"] = True
    if column.required:
        told["required"] = True
        if column.missing != type(column)(*must, required=True).missing:
            told["missing"] = column.missing
    return told
