"""``survey.toml``: what the curator states once about a table: where it is, what is public, what may be spent.

::

    data = "survey.parquet"        # beside this file; also .csv, .csv.gz, .tsv or "survey.duckdb#table"
    name = "survey"                # optional: what FROM calls it
    ledger = "survey.ledger"       # optional: this file's name with .ledger; or "postgresql://host/base#name"
    neighbours = "replace"         # or "add-remove"
    rows = 1000000                 # add-remove only: a publicly known number of rows
    population = "survey 2026"     # optional: whom the budget protects; else the data's path, which must then not move
    unit = { column = "patient", max_rows = 4 }   # optional: protects a patient, not a row; add-remove only

    [budget]
    epsilon = 1                    # with or without delta; or rho instead
    delta = 1e-6

    [columns]
    age = { type = "integer", low = 16, high = 95 }

Nothing here is read from the data. A gap, written ``"?"`` by ``dodona schema draft``, is refused until it is filled.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dodona.errors import BadEffort, BadSchema
from dodona.privacy.budget import Budget
from dodona.query.schema import Schema
from dodona.query.unit import Unit

if TYPE_CHECKING:
    from dodona.engines.table import Table
    from dodona.privacy.chain import ChainLedger
    from dodona.trust.curator import Curator

GAP = "?"
LARGEST_FILE = 16 * 2**20
NEIGHBOURS = ("replace", "add-remove")
_KEYS = ("data", "name", "ledger", "neighbours", "rows", "population", "unit", "budget", "columns")
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

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Config:
        """The file's statements, or one ``BadSchema`` that says what is wrong with them."""
        file = Path(path)
        try:
            return _config(file.absolute(), _toml(file))
        except (BadSchema, BadEffort) as error:
            raise BadSchema(f"{file.name}: {error}") from None

    def open_table(self) -> Table:
        """The data, checked against the schema; only its shape is looked at."""
        from dodona.engines.table import Table

        return Table(
            self.data,
            self.schema,
            neighbours=self.neighbours,
            rows=self.rows,
            name=self.name,
            population=self.population,
            unit=self.unit,
        )

    def open_curator(self, analyst: str, *, asking: bool = True, table: Table | None = None) -> Curator:
        """The oracle. With ``asking`` false nothing will be charged, so a ledger that is not there yet is not made."""
        from dodona.privacy.open import ledger_exists
        from dodona.trust.curator import Curator

        ledger = self.ledger if asking or ledger_exists(self.ledger) else None
        return Curator(table or self.open_table(), self.budget, ledger, analyst=analyst)


def open_ledger(place: str | os.PathLike[str]) -> ChainLedger:
    """An existing ledger as it was made: budget and population are in it, so an auditor needs nothing else."""
    from dodona.privacy.open import existing_ledger

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
    data, name = _text(stated, "data"), _text(stated, "name")
    ledger = _text(stated, "ledger") or f"{path.stem}.ledger"
    assert data is not None  # it was not absent
    neighbours = stated.get("neighbours", "replace")
    if neighbours not in NEIGHBOURS:
        raise BadSchema(f"neighbours must be {' or '.join(map(repr, NEIGHBOURS))}. Got {neighbours!r}.")
    where = data if "://" in data else str(path.parent / data)
    budget, schema = _budget(stated["budget"]), Schema.read(stated["columns"])
    unit = None if "unit" not in stated else Unit.read(stated["unit"]).checked(schema)
    kept = ledger if "://" in ledger else path.parent / ledger
    rows, population = _rows(stated, neighbours), _text(stated, "population")
    return Config(path, where, schema, budget, kept, neighbours, rows, name, population, unit)


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
    unknown = [key for key in stated if key not in ("epsilon", "delta", "rho")]
    if unknown:
        raise BadSchema(f"[budget] takes epsilon and delta, or rho. Got {', '.join(map(repr, unknown))}.")
    try:
        return Budget(**stated)
    except BadEffort as error:
        raise BadSchema(f"[budget]: {error}") from None
