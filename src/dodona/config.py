"""``survey.toml``: what the curator states once about a table: where it is, what is public, what may be spent.

::

    data = "survey.parquet"        # beside this file; also .csv, .csv.gz, .tsv or "survey.duckdb#table"; or [data]
    name = "survey"                # optional: what FROM calls it
    ledger = "survey.ledger"       # optional: this file's name with .ledger; or "postgresql://host/base#name"
    neighbours = "replace"         # or "add-remove"
    rows = 1000000                 # add-remove only: a publicly known number of rows
    population = "survey 2026"     # optional: whom the budget protects; else the data's path, which must then not move
    unit = { column = "patient", max_rows = 4 }   # optional: protects a patient, not a row; add-remove only. max_rows,
                                   # max_groups and max_rows_per_group are for questions that state none of their own
    disjoint = true                # optional: nobody in it is in another dataset of the same source

    [budget]
    epsilon = 1                    # with or without delta; or rho instead
    delta = 1e-6

    [columns]
    age = { type = "integer", low = 16, high = 95 }
    seen = { type = "date", low = "2020-01-01", high = 2026-12-31 }   # text, or TOML's own date

    [data]                         # in place of data = "...": a CSV file, and how it is written
    path = "survey.csv"
    delimiter = ";"                # default ","
    quote = '"'                    # the default; "" where no field is quoted
    decimal = ","                  # default "."
    encoding = "latin-1"           # default "utf-8"
    header = false                 # default true; false: the columns above, in order; or a list of all column names

Several tables of the same people, with one budget and one ledger, each under the name that FROM calls it; everything
above but ``data``, ``name``, ``rows``, ``key`` and ``columns`` is stated once, for all::

    unit = "patient"               # what a person is called; needed with more than one private table

    [tables.visits]
    data = "visits.parquet"        # or [tables.visits.data]
    unit = { column = "patient", max_rows = 4 }
    key = "visit"                  # optional: the column by which rows of other tables name a row of this one
    columns.cost = { type = "real", low = 0, high = 1000 }
    columns.zip = { type = "category", values = ["0150", "5003"] }

    [tables.bills]                 # of visits: whose bill it is, the visit says
    data = "bills.parquet"
    unit = { column = "visit.patient", max_rows = 8 }   # visit: a column of bills that holds the key of visits
    columns.paid = { type = "real", low = 0, high = 1000 }

    [tables.zips]
    public = true                  # everyone may know it: a JOIN with it costs nothing
    data = "zips.csv"              # columns may be stated; else they are read off the values

Relative places are beside this file. The ledger is made by ``dodona ledger new`` or ``dodona serve``, which say so; a
question to one that is missing is refused.

Nothing here is read from the data. A gap, written ``"?"`` by ``dodona schema draft``, is refused until it is filled.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dodona.engines.csv import Csv
from dodona.errors import BadEffort, BadSchema
from dodona.privacy.budget import Budget
from dodona.query.schema import Schema
from dodona.query.unit import Unit

if TYPE_CHECKING:
    from dodona.engines.public import Public
    from dodona.engines.table import Table
    from dodona.oracles.curator import Curator, During
    from dodona.oracles.dataset import Dataset
    from dodona.privacy.ledger.rules import ChainLedger

GAP = "?"
STATED = "\x00survey.toml"
"""Who makes the statements in a ledger: no analyst's name, which holds no control character."""
_DISJOINT = "stated in survey.toml: nobody in this dataset is in another dataset of the same source"
LARGEST_FILE = 16 * 2**20
NEIGHBOURS = ("replace", "add-remove")
_KEYS = ("data", "name", "ledger", "neighbours", "rows", "population", "unit", "key", "disjoint", "budget", "columns")
_MAY_BE_GAPS = ("type", "low", "high", "values")  # a category may well list "?", so ``missing`` is not among them


@dataclass(frozen=True)
class Config:
    """A checked ``survey.toml``. ``data`` and ``ledger`` are absolute; nothing was opened yet."""

    path: Path
    data: str
    schema: Schema
    budget: Budget
    ledger: str | Path
    neighbours: str = "replace"
    rows: int | None = None
    name: str | None = None
    population: str | None = None
    unit: Unit | None = None
    csv: Csv | None = None
    disjoint: bool = False
    key: str | None = None
    family: Family | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Config:
        """The file's statements, or one ``BadSchema`` that says what is wrong with them."""
        file = Path(path)
        try:
            stated = _toml(file)
            return _config(file.absolute(), stated) if "tables" not in stated else _family(file.absolute(), stated)
        except (BadSchema, BadEffort) as error:
            raise BadSchema(f"{file.name}: {error}") from None

    @property
    def members(self) -> tuple[Config, ...]:
        """A configuration for each private table of the file: this one alone, where it states one table."""
        return (self,) if self.family is None else self.family.members

    def open_table(self) -> Table:
        """The data, checked against the schema; only its shape is looked at. Of several tables all are opened once."""
        if self.family is not None:
            return self.family.tables[str(self.name)]
        return self.open_alone()

    def open_alone(self) -> Table:
        """The table by itself, as if it were the only one of the file."""
        from dodona.engines.table import Table

        return Table(
            self.data,
            self.schema,
            neighbours=self.neighbours,
            rows=self.rows,
            name=self.name,
            population=self.population,
            unit=self.unit,
            csv=self.csv,
            key=self.key,
        )

    def open_curator(
        self,
        analyst: str | None,
        *,
        asking: bool = True,
        create: bool = False,
        table: Table | None = None,
        ledger: str | os.PathLike[str] | None = None,
        during: During | None = None,
    ) -> Curator:
        """The oracle. Who is logged in asks, unless another is named. ``create``: make a ledger that is not there.
        ``ledger``: in place of the one the file names. ``during``: runs what a charge has paid for.

        With ``asking`` false nothing will be charged, and no ledger need be there.
        """
        from dodona.oracles.curator import Curator
        from dodona.privacy.ledger.places import ledger_exists

        place, analyst = ledger or self.ledger, login() if analyst is None else analyst
        kept = place if asking or ledger_exists(place) else None
        table = table or self.open_table()
        curator = Curator(table, self.budget, kept, analyst=analyst, create=create)
        if during is not None:
            curator = Curator.sharing(table, curator.ledger, analyst=analyst, during=during)
        if self.disjoint and asking:
            # An entry that costs nothing, whoever asks and however often: a repeated request is entered once.
            stated = curator.ledger.charge(amount=0, analyst=STATED, request_id="disjoint", what=_DISJOINT)
            if stated.answer is None:
                curator.ledger.store_answer(stated.entry.seq, "stated")
        return curator


def open(path: str | os.PathLike[str], *, analyst: str | None = None, create: bool = False) -> Curator | Dataset:
    """What the command line and the server ask: the oracle that ``survey.toml`` states, or, of several tables, a
    ``Dataset``. In Python, ``dd.open("survey.toml")``.

    ``analyst``: who asks, the login name unless stated. ``create``: make the ledger where there is none.
    """
    from dodona.oracles.dataset import Dataset

    config = Config.read(path)
    first = config.open_curator(analyst, create=create)
    if config.family is None:
        return first
    others = [member.open_table() for member in config.members if member.name != config.name]
    return Dataset.sharing(first, others)


def login() -> str:
    """Who is logged in."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "curator"


class Family:
    """The tables of one file. ``members``: the private ones; ``public``: data, how it is written, and columns."""

    def __init__(
        self,
        members: Iterable[Config],
        public: Mapping[str, tuple[str, Csv | None, Schema | None]],
        unit: str | None,
        population: str | None,
    ) -> None:
        self.members = tuple(replace(member, family=self) for member in members)
        self._public, self._unit, self._population = dict(public), unit, population

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The private tables, each as one of the dataset."""
        from dodona.engines.joined import together
        from dodona.engines.public import Public

        held: dict[str, Table | Public] = {str(member.name): member.open_alone() for member in self.members}
        held |= {name: Public(data, schema, csv=csv) for name, (data, csv, schema) in self._public.items()}
        return together(held, self._unit, self._population)


def _family(path: Path, stated: Mapping[str, Any]) -> Config:
    """Of a file with [tables.NAME]: the first of its private tables, which knows of the others."""
    shared = {key: value for key, value in stated.items() if key != "tables"}
    own = [key for key in ("data", "name", "rows", "key", "columns") if key in shared]
    if own or not isinstance(stated["tables"], Mapping):
        raise BadSchema(
            f"a file with [tables.NAME] states {', '.join(own) or 'them'} in each of them, not above: [tables.visits]."
        )
    people = shared.get("unit")
    if isinstance(people, str):
        shared.pop("unit")
    members, public = list[Config](), dict[str, tuple[str, Csv | None, Schema | None]]()
    for name, table in stated["tables"].items():
        try:
            if not isinstance(table, Mapping):
                raise BadSchema("it must state data, and columns or public = true.")
            if "public" in table:
                public[name] = _public(path, table)
            else:
                members.append(_config(path, {**shared, **table, "name": name}))
        except BadSchema as error:
            raise BadSchema(f"[tables.{name}] {error}") from None
    if not members:
        raise BadSchema("one of the tables must be private: what is public needs no budget.")
    unit = members[0].unit
    called = people if isinstance(people, str) else None if unit is None else unit.column
    return Family(members, public, called, members[0].population).members[0]


def _public(path: Path, stated: Mapping[str, Any]) -> tuple[str, Csv | None, Schema | None]:
    unknown = [key for key in stated if key not in ("public", "data", "columns")]
    if unknown or stated["public"] is not True or "data" not in stated:
        odd = ", ".join(map(repr, unknown)) or f"public = {stated['public']!r}"
        raise BadSchema(f"a public table states public = true, data, and columns if wanted. Got {odd}.")
    data, csv = _data(stated)
    schema = Schema.read(stated["columns"]) if "columns" in stated else None
    return (data if "://" in data else str(path.parent / data)), csv, schema


def open_ledger(place: str | os.PathLike[str]) -> ChainLedger:
    """An existing ledger as it was made: budget and population are in it, so an auditor needs nothing else."""
    from dodona.privacy.ledger.places import existing_ledger

    return existing_ledger(place)


def _toml(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise BadSchema(f"the file must be at most {LARGEST_FILE >> 20} MiB.")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadSchema(
            f"the file must exist. Got {str(file)!r}; `dodona schema draft DATA > {file}` starts one."
        ) from None
    except (OSError, UnicodeDecodeError):
        raise BadSchema(f"the file must be readable text in UTF-8. Got {str(file)!r}.") from None
    except tomllib.TOMLDecodeError as error:
        raise BadSchema(f"the file must be TOML. {error}.") from None
    except (ValueError, RecursionError):  # digits without end, brackets without end
        raise BadSchema("the file must be TOML of ordinary size and depth.") from None


def _config(path: Path, stated: Mapping[str, Any]) -> Config:
    unknown = [key for key in stated if key not in _KEYS]
    if unknown:
        raise BadSchema(f"its settings must be among {', '.join(_KEYS)}. Got {', '.join(map(repr, unknown))}.")
    gaps = list(_gaps(stated))
    if gaps:
        raise BadSchema(
            f'{len(gaps)} gap(s) marked "{GAP}" must be filled first: {", ".join(gaps)}. State bounds, categories and '
            "budget from what is publicly known, never from the data: what is read from the data is itself a release."
        )
    absent = [key for key in ("data", "budget", "columns") if key not in stated]
    if absent:
        raise BadSchema(f"it must state {', '.join(absent)}.")
    data, csv = _data(stated)
    name, ledger = _text(stated, "name"), _text(stated, "ledger") or f"{path.stem}.ledger"
    neighbours = stated.get("neighbours", "replace")
    if neighbours not in NEIGHBOURS:
        raise BadSchema(f"neighbours must be {' or '.join(map(repr, NEIGHBOURS))}. Got {neighbours!r}.")
    where = data if "://" in data else str(path.parent / data)
    budget, schema = _budget(stated["budget"]), Schema.read(stated["columns"])
    unit = None if "unit" not in stated else Unit.read(stated["unit"]).checked(schema)
    kept = ledger if "://" in ledger else path.parent / ledger
    rows, population = _rows(stated, neighbours), _text(stated, "population")
    disjoint, key = stated.get("disjoint", False), _text(stated, "key")
    if not isinstance(disjoint, bool):
        raise BadSchema(f"disjoint must be true or false. Got {disjoint!r}.")
    return Config(path, where, schema, budget, kept, neighbours, rows, name, population, unit, csv, disjoint, key)


def _data(stated: Mapping[str, Any]) -> tuple[str, Csv | None]:
    """Where the rows are and, of a CSV file, how it is written."""
    settings = {"path": stated["data"]} if not isinstance(stated["data"], Mapping) else dict(stated["data"])
    data = _text({"data": settings.pop("path", None)}, "data")
    if data is None:
        raise BadSchema('[data] must state its path: path = "survey.csv".')
    return data, Csv.read(settings)


def _gaps(stated: Mapping[str, Any]) -> Iterator[str]:
    """The places still marked as gaps, all of them, so that one reading of the message is enough."""
    budget, columns = stated.get("budget"), stated.get("columns")
    yield from (f"budget.{key}" for key, value in _items(budget) if value == GAP)
    for name, column in _items(columns):
        gaps = [key for key, value in _items(column) if key in _MAY_BE_GAPS and value in (GAP, [GAP])]
        if gaps:
            yield f"{name} ({', '.join(gaps)})"


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _text(stated: Mapping[str, Any], key: str) -> str | None:
    value = stated.get(key)
    if value is not None and (not isinstance(value, str) or not value.strip() or "\x00" in value):
        raise BadSchema(f"{key} must be text. Got {value!r}.")
    return value


def _rows(stated: Mapping[str, Any], neighbours: str) -> int | None:
    rows = stated.get("rows")
    if rows is None:
        return None
    if neighbours == "replace":
        raise BadSchema(
            'rows is for neighbours = "add-remove", where the true number is private. Under "replace" it is public and '
            "is counted; leave rows out."
        )
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise BadSchema(f"rows must be a whole number of at least 1. Got {rows!r}.")
    return rows


def _budget(stated: Any) -> Budget:
    if not isinstance(stated, Mapping):
        raise BadSchema(f"budget must be a table: [budget] with epsilon and delta, or rho. Got {stated!r}.")
    unknown = [key for key in stated if key not in ("epsilon", "delta", "rho", "keys", "accountant")]
    if unknown:
        listed = ", ".join(map(repr, unknown))
        raise BadSchema(f"[budget] takes epsilon and delta, or rho; keys and accountant. Got {listed}.")
    try:
        return Budget(**stated)
    except BadEffort as error:
        raise BadSchema(f"[budget]: {error}") from None
