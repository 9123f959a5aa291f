"""Where rows live, by what a table is given: which engine opens it, what it is called, and which rows it really reads.

Which rows: so that one table is not given two budgets by two names. A path is followed through its links; a file is its
device and number, so a hard link is the same file; a table in a file is that file and the table. What cannot be seen:
copies, and paths that only another machine can read.

``@registered`` above a class is all it takes: tables find it through here. Folders of this package are looked through;
a home from elsewhere counts once it is imported.
"""

from __future__ import annotations

import glob
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, TypeVar, final

from dodona.engines.csv import Csv
from dodona.engines.engine import Engine
from dodona.errors import BadTable
from dodona.query.schema import Schema
from dodona.query.unit import Unit


class Terms(NamedTuple):
    """What a table promises of its rows, which its engine must keep. ``csv``: how a CSV file is written, if stated.
    ``key``: a column that is kept beside, for other tables' rows name rows by it.
    """

    schema: Schema
    unit: Unit | None
    public_rows: bool
    csv: Csv | None = None
    key: str | None = None


class Home(ABC):
    """The sources that one engine opens. An address is a source that is text; paths are made text."""

    prefix: ClassVar[str] = ""  # that addresses begin with
    general: ClassVar[bool] = False  # whether it takes what no other home does
    reads_csv: ClassVar[bool] = False  # whether ``Terms.csv`` can be of use

    @abstractmethod
    def holds(self, source: Any) -> bool:
        """Whether a source is one of these, by its text or its type; nothing is opened."""

    @abstractmethod
    def open(self, source: Any, terms: Terms) -> Engine:
        """The engine on it."""

    @abstractmethod
    def shown(self, address: str) -> str:
        """The address without user and password: it stands in ledgers and messages."""

    @abstractmethod
    def real_place(self, address: str) -> str:
        """What a ledger calls the rows there: the same for all names of one place."""

    @abstractmethod
    def folder(self, address: str) -> str | None:
        """The folder of the data, beside which a relative ledger is; None for rows that are in no file."""

    @abstractmethod
    def identities(self, address: str) -> frozenset[str]:
        """Names of all that is read; two sources that share one read the same rows."""

    @final
    def stem(self, address: str) -> str:
        """``dir/survey.csv.gz`` -> survey; ``file.duckdb#main.people`` -> people."""
        file, _, table = address.removeprefix(self.prefix).rstrip("/").partition("#")
        return table.rpartition(".")[2] or os.path.basename(file).split(".")[0]


class FileHome(Home):
    """Files of this machine, folders of them or patterns. ``tables``: how files are called that hold several tables,
    which are written ``file#table``.
    """

    tables: ClassVar[tuple[str, ...]] = ()

    @final
    def shown(self, address: str) -> str:
        """As it is."""
        return address

    @final
    def real_place(self, address: str) -> str:
        """A file's name in full, with no link in it; with a prefix, which another machine may read, as it is."""
        if self.prefix:
            return address
        file, table = self._split(address)
        return os.path.realpath(os.path.expanduser(file)) + (f"#{table.removeprefix('main.')}" if table else "")

    @final
    def folder(self, address: str) -> str | None:
        """Of a pattern, the last folder before its first sign."""
        file = self._local(address)
        if file is None:
            return None
        while glob.has_magic(file) and not os.path.exists(file):
            file = os.path.dirname(file)
            if not glob.has_magic(file):
                return os.path.realpath(file)
        return os.path.dirname(os.path.realpath(file))

    def tables_read(self, file: str, table: str) -> frozenset[str]:  # noqa: ARG002
        """The tables of a file that a name in it stands for: a view is the tables that it reads."""
        return frozenset({table})

    @final
    def identities(self, address: str) -> frozenset[str]:
        """Each file by its path and by its number."""
        file, table = self._local(address), self._split(address)[1]
        if file is None:
            return frozenset({address})
        read = self.tables_read(file, table) if table else frozenset({""})
        suffixes = [f"#{one if '.' in one else f'main.{one}'}" if one else "" for one in read]
        return frozenset(name + suffix for one in _files(file) for name in _names(one) for suffix in suffixes)

    def _split(self, address: str) -> tuple[str, str]:
        """A file and the table in it."""
        file, _, table = address.partition("#")
        return (file, table) if self.tables and file.endswith(self.tables) else (address, "")

    def _local(self, address: str) -> str | None:
        """The file, folder or pattern on this machine, in full."""
        bare = self._split(address.removeprefix(self.prefix))[0]
        bare = bare.removeprefix("file://") if self.prefix else bare
        return None if not bare or "://" in bare else os.path.abspath(os.path.expanduser(bare))


def _files(file: str) -> Iterable[str]:
    if os.path.isdir(file):
        return (os.path.join(folder, name) for folder, _, names in os.walk(file) for name in names)
    return glob.glob(file) if any(sign in file for sign in "*?[") else [file]


def _names(file: str) -> tuple[str, str]:
    found = os.stat(file)
    return f"file {os.path.realpath(file)}", f"file {found.st_dev}:{found.st_ino}"


# -- who is there -----------------------------------------------------------------------------------------------------

_REGISTERED: list[Home] = []
Kind = TypeVar("Kind", bound=type[Home])


def registered(kind: Kind) -> Kind:
    """Class decorator: from now on tables open the sources of this home."""
    _REGISTERED.append(kind())
    return kind


@cache
def _load_engines() -> None:
    """Imports every folder of this package, so that what they register is found; none imports its driver yet."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        if module.ispkg:
            import_module(module.name)


_INSTEAD = {
    (".xlsx", ".xls", ".ods"): "a spreadsheet is not read: save it as CSV, or pass pandas.read_excel(...)",
    (".json", ".jsonl", ".ndjson"): "JSON is not read: pass a data frame of it, or have DuckDB write Parquet, "
    "COPY (FROM 'rows.json') TO 'rows.parquet'",
    (".feather", ".arrow", ".ipc"): "Arrow files are not opened by name: pass polars.read_ipc(...)",
    (
        ".sav",
        ".dta",
        ".sas7bdat",
        ".rds",
        ".rdata",
    ): "a statistics package's file is not read: save it as CSV or Parquet",
    (".zip", ".tar", ".7z", ".xz", ".bz2", ".zst"): "an archive is not read: unpack it; .csv.gz is read as it is",
    (".sqlite", ".sqlite3", ".db"): "SQLite is not read: have DuckDB write Parquet of it",
    (".txt", ".dat", ""): "what kind of file it is must be seen: name it .csv and say with dd.Csv how it is written",
}


def what_instead(source: Any) -> str:
    """What to write in place of a source that nothing opens."""
    kind = f"{type(source).__module__.partition('.')[0]}.{type(source).__name__}"
    known = {
        "polars.LazyFrame": "a LazyFrame has no rows yet: pass its .collect()",
        "pyarrow.FileSystemDataset": "pass its files as a pattern, 'parts/*.parquet', or its .to_table()",
        "duckdb.DuckDBPyRelation": "pass its .arrow(), or the file it reads",
        "_duckdb.DuckDBPyRelation": "pass its .arrow(), or the file it reads",
    }
    if not isinstance(source, str):
        return known.get(kind, "pass a file's name, a mapping of arrays, a data frame or Arrow data")
    if "://" in source:
        return "what is elsewhere is fetched first: a question must read the same rows as its price"
    if os.path.isdir(os.path.expanduser(source)):
        return f"a folder is read by a pattern: {os.path.join(source, '*.parquet')!r}"
    suffix = os.path.splitext(source.partition("#")[0])[1].lower()
    return next((told for names, told in _INSTEAD.items() if suffix in names), "save it as Parquet or CSV")


def home_of(source: Any) -> Home | None:
    """Where a table's source is; None for rows in memory."""
    _load_engines()
    text = os.fspath(source) if isinstance(source, os.PathLike) else source
    found = [home for home in _REGISTERED if home.holds(text)]
    found = [home for home in found if not home.general] or found
    if len(found) > 1:
        listed = ", ".join(sorted(type(home).__name__ for home in found))
        raise BadTable(f"a source must be of one engine. Got one that {listed} take for theirs.")
    return found[0] if found else None
