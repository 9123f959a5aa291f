"""What an answer can be handed on as: columns, data frames, files, a page's table, a picture. All of it is free."""

from __future__ import annotations

import csv
import io
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, Unsupported

if TYPE_CHECKING:
    from types import ModuleType

    import pandas
    import polars
    import pyarrow


_SHOWN = 10
"""Made-up rows that a page or Markdown shows."""


@dataclass(frozen=True)
class Bar:
    """A number that a picture shows: where it stands, and how far off it may be."""

    label: str
    value: float
    margin: float


class Tabular(ABC):
    """A result that is a table, however small: each number beside its error. ``cost``: what was paid for it."""

    cost: Any

    @abstractmethod
    def to_dict(self) -> dict[str, list[Any]]:
        """Plain columns by name. Beside a number ``n`` stand ``n_margin``, ``n_low`` and ``n_high``; whole numbers are
        integers, and what is not known is None.
        """

    @abstractmethod
    def bars(self, column: str | None = None) -> tuple[str, Sequence[Bar]]:
        """A number's name, and what a picture of it shows: of ``column``, or of the first that has an error."""

    @abstractmethod
    def lines(self) -> tuple[Sequence[str], Sequence[Sequence[str]], Sequence[str]]:
        """As people read it: the names of columns, the cells, and what stands below the table."""

    def notes(self) -> Sequence[str]:
        """What must be known of the numbers: how sure their margins are, whether proven, and what they leave out."""
        return ()

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas frame, with ``attrs["notes"]``; whole numbers with gaps stay whole, in its own type for those."""
        frame = _library("pandas", "pandas")
        series = {}
        for name, values in self.to_dict().items():
            gaps = any(value is None for value in values)
            whole = {type(value) for value in values if value is not None} == {int}
            series[name] = frame.Series(values, dtype="Int64" if whole and gaps else None)
        made: pandas.DataFrame = frame.DataFrame(series)
        made.attrs["notes"] = list(self.notes())
        return made

    def to_polars(self) -> polars.DataFrame:
        """A Polars frame. It has no place for notes: they are the table's own."""
        made: polars.DataFrame = _library("polars", "polars").DataFrame(self.to_dict(), strict=False)
        return made

    def to_arrow(self) -> pyarrow.Table:
        """An Arrow table, with ``notes`` in its schema's metadata."""
        made = _library("pyarrow", "dodona[arrow]").table(self.to_dict())
        return made.replace_schema_metadata({"notes": "; ".join(self.notes())}) if self.notes() else made

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For whatever reads Arrow's stream: Polars, DuckDB, pandas."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_csv(self, place: str | os.PathLike[str] | None = None) -> str:
        """Its text as CSV (RFC 4180), written to the file ``place`` where one is named. A last column ``notes`` says in
        every row what must be known of the numbers.
        """
        columns, text = self.to_dict(), io.StringIO()
        if self.notes():
            rows = len(next(iter(columns.values()), []))
            columns = {**columns, apart("notes", [*columns]): ["; ".join(self.notes())] * rows}
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        if place is not None:
            Path(place).write_text(text.getvalue(), encoding="utf-8", newline="")
        return text.getvalue()

    def to_markdown(self) -> str:
        """A table in Markdown, numbers with their error, and below it what must be known of them."""
        head, cells, notes = self.lines()
        rows = [head, ["---"] * len(head), *cells]
        table = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
        return "\n".join([*table, "", *notes]) + "\n"

    def _repr_html_(self) -> str:
        """For notebooks: the table, and the cost below."""
        head, cells, notes = self.lines()
        top = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
        below = "".join(f"<br>{escape(note)}" for note in notes).removeprefix("<br>")
        return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table><p><small>{below}</small></p>"

    def plot(self, column: str | None = None, ax: Any = None) -> Any:
        """Its numbers as bars with their errors, on matplotlib's ``ax`` or a new one, which is given back."""
        ax = _library("matplotlib.pyplot", "dodona[plot]").gca() if ax is None else ax
        name, bars = self.bars(column)
        places = range(len(bars))
        ax.bar(places, [bar.value for bar in bars], color="#7a9e7e")
        ax.errorbar(
            places, [bar.value for bar in bars], [bar.margin for bar in bars], fmt="none", ecolor="#333333", capsize=3
        )
        ax.set_xticks(places, [bar.label for bar in bars], rotation=45 if len(bars) > 6 else 0)
        ax.set_ylabel(name)
        return ax


class Totals(Tabular):
    """Of an answer, which has its numbers in arrays: a record for each total."""

    total: Any
    margin: Any
    confidence: float
    rows: int | None
    proven: bool
    leaves_out: tuple[str, ...]

    @property
    @abstractmethod
    def labels(self) -> tuple[tuple[Any, ...], ...]:
        """The keys along each axis of a partition, in order."""

    def to_dict(self) -> dict[str, list[Any]]:
        """The keys of each total, the total and, where the number of rows is public, the mean."""
        columns: dict[str, list[Any]] = {}
        places = self._places()
        for axis in range(len(places[0]) if places else 0):
            name = "key" if len(places[0]) == 1 else f"key_{axis + 1}"
            columns[name] = [place[axis] for place in places]
        total, margin = np.ravel(self.total), np.broadcast_to(self.margin, np.shape(self.total)).ravel()
        columns |= {"total": whole(total.tolist()), "total_margin": margin.tolist()}
        columns |= {"total_low": (total - margin).tolist(), "total_high": (total + margin).tolist()}
        if self.rows is not None:
            mean, half = total / max(self.rows, 1), margin / max(self.rows, 1)
            columns |= {"mean": mean.tolist(), "mean_margin": half.tolist()}
            columns |= {"mean_low": (mean - half).tolist(), "mean_high": (mean + half).tolist()}
        return columns

    def _places(self) -> list[tuple[Any, ...]]:
        """The keys of each total, in order; by number where it has none."""
        shape = np.shape(self.total)
        labels = self.labels
        if not labels or tuple(map(len, labels)) != shape:
            labels = tuple(tuple(range(size)) for size in shape)
        return list(itertools.product(*labels))

    def bars(self, column: str | None = None) -> tuple[str, list[Bar]]:
        """Of the means, where the number of rows is public; else of the totals."""
        name = column or ("total" if self.rows is None else "mean")
        found = self.to_dict()
        if f"{name}_margin" not in found:
            raise BadQuery(f"an answer has a total and, where the number of rows is public, a mean. Got {name!r}.")
        labels = (", ".join(map(str, place)) for place in self._places())
        return name, [Bar(*bar) for bar in zip(labels, found[name], found[f"{name}_margin"], strict=True)]

    def lines(self) -> tuple[list[str], list[list[str]], list[str]]:
        """As people read it."""
        found = self.to_dict()
        names = [name for name in found if not name.endswith(("_margin", "_low", "_high"))]
        columns = [
            [f"{a:,.6g} ± {b:,.3g}" for a, b in zip(found[name], found[f"{name}_margin"], strict=True)]
            if f"{name}_margin" in found
            else list(map(str, found[name]))
            for name in names
        ]
        return names, [list(row) for row in zip(*columns, strict=True)], [*self.notes(), f"cost: {self.cost}"]

    def notes(self) -> list[str]:
        """How sure the margins are, and what they leave out."""
        how = f"± at {self.confidence * 100:.10g} %, {'proven' if self.proven else 'estimated'}"
        return [how, *([f"noise only: {'; '.join(self.leaves_out)}"] if self.leaves_out else [])]


class Sample(dict[str, NDArray[Any]], Tabular):
    """Made-up rows as columns of arrays. ``wholes``: those of whole numbers, also where some are missing."""

    cost = "free: drawn from what is published"

    def __init__(self, columns: Mapping[str, NDArray[Any]], wholes: Collection[str] = ()) -> None:
        super().__init__(columns)
        self.wholes = frozenset(wholes)

    def to_dict(self) -> dict[str, list[Any]]:
        """Plain columns by name: texts, truths, numbers, dates; None where a value is missing."""
        columns: dict[str, list[Any]] = {}
        for name, values in self.items():
            listed = values.astype(object)
            if values.dtype.kind == "f":
                listed[np.isnan(values)] = None
            listed = listed.tolist()
            columns[name] = whole(listed) if name in self.wholes else listed
        return columns

    def bars(self, column: str | None = None) -> tuple[str, Sequence[Bar]]:  # noqa: ARG002
        """None: made-up rows have no errors; what they are drawn from has."""
        raise BadQuery("made-up rows have no error to draw: ask the synopsis they are drawn from.")

    def lines(self) -> tuple[Sequence[str], Sequence[Sequence[str]], Sequence[str]]:
        """Its first rows."""
        found = self.to_dict()
        rows = len(next(iter(found.values()), []))
        cells = [[str(column[place]) for column in found.values()] for place in range(min(rows, _SHOWN))]
        return [*found], cells, [f"{rows:,} made-up rows", str(self.cost)]


def whole(values: Sequence[float | None]) -> list[float | int | None]:
    """The same numbers, as integers where all of them are whole."""
    if all(value is None or float(value).is_integer() for value in values):
        return [None if value is None else int(value) for value in values]
    return list(values)


def apart(name: str, taken: Sequence[str]) -> str:
    """A column's name that no other has yet."""
    while name in taken:
        name += "_"
    return name


def _library(name: str, package: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise Unsupported(f"this needs {name.partition('.')[0]}: pip install '{package}'.") from None
