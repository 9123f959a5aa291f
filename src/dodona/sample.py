"""A made-up survey: plausible people, none of whom exist. For trying Dodona out, for tests and for benchmarks.

Each column is a fixed function of the row's number, the seed and earlier columns, drawn from hashes of (row, seed,
column), so rows are independent, any part can be made by any thread, and the same seed gives the same file with the
same DuckDB. A seed is harmless here: it makes data, never noise.

=========  ========  =================================================================================================
column     range     how it is made
=========  ========  =================================================================================================
age        16-95     a broad adult pyramid: the smaller of one uniform age and, in one row of two, another
sex                  Female 51 %, Male 49 %
region               North 24 %, East 18 %, South 26 %, West 20 %, Capital 12 %
education            none, school, college, university; later cohorts and the capital study longer; 1 % missing
smoker               22 %, less with education and after 65, more among men; 2 % missing
hours      0-80      weekly paid work: a bell around 38, fewer under 20; 0 for most after 66 and one in nine others
income     0-200000  yearly, log-normal: rises with education and hours, peaks near 50, more in the capital; 5 % missing
children   0-8       falls with education, none for most under 22
obese                24 %, more in mid-life, less with education; 3 % missing
disease              chronic illness: a logistic risk of age, smoking and obesity
=========  ========  =================================================================================================

Bounds are the generator's own, enforced by it, so stating them in a schema tells nothing about any row.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dodona.errors import BadTable

MOST_ROWS = 10**10
LONG_RUN = 2_000_000  # rows from which a terminal is shown progress
_FORMATS = {".parquet": "FORMAT parquet, COMPRESSION zstd", ".csv": "FORMAT csv, HEADER true"}

# u(i, k), written u(k) below: the k-th uniform number of row i; z(k): a standard normal one (Box and Muller).
# 53 bits, hashed twice: DuckDB joins the parts of a hash by exclusive or, which alone would tie the columns together.
_MACROS = (
    "CREATE TEMP MACRO u(i, k) AS ((hash(hash(i, {seed}, k)) >> 11)::DOUBLE * 1.1102230246251565e-16)",
    "CREATE TEMP MACRO z(i, k) AS (sqrt(-2 * ln(1 - u(i, k))) * cos(6.283185307179586 * u(i, k + 50)))",
)
_STAGES = (
    "SELECT i FROM range({rows}) AS numbers(i)",
    """SELECT i,
        16 + floor(80 * CASE WHEN u(1) < 0.5 THEN least(u(2), u(3)) ELSE u(2) END)::INTEGER AS age,
        CASE WHEN u(4) < 0.51 THEN 'Female' ELSE 'Male' END AS sex,
        CASE WHEN u(5) < 0.24 THEN 'North' WHEN u(5) < 0.42 THEN 'East' WHEN u(5) < 0.68 THEN 'South'
             WHEN u(5) < 0.88 THEN 'West' ELSE 'Capital' END AS region,
        u(6) + 0.12 * (u(5) >= 0.88)::INTEGER AS bent""",
    """SELECT *, bent - 0.004 * greatest(age - 40, 0) + CASE WHEN age < 22 THEN -0.25 ELSE 0 END AS schooling""",
    """SELECT *,
        CASE WHEN schooling < 0.05 THEN 0 WHEN schooling < 0.50 THEN 1 WHEN schooling < 0.72 THEN 2 ELSE 3 END AS level,
        CASE WHEN (age >= 67 AND u(7) < 0.9) OR u(7) < 0.11 THEN 0
             ELSE least(80, greatest(1, round(CASE WHEN age < 20 THEN 18 ELSE 38 END + 8 * z(8)))) END AS hours""",
    """SELECT *,
        u(9) < 0.30 - 0.05 * level + 0.05 * (sex = 'Male')::INTEGER - 0.08 * (age > 65)::INTEGER AS smokes,
        u(10) < 0.22 - 0.03 * level + 0.12 * exp(-power((age - 55) / 18.0, 2)) AS heavy""",
    """SELECT age, sex, region,
        CASE WHEN u(11) >= 0.01 THEN ['none', 'school', 'college', 'university'][level + 1] END AS education,
        CASE WHEN u(12) >= 0.02 THEN smokes END AS smoker,
        hours::DOUBLE AS hours,
        CASE WHEN u(13) >= 0.05 THEN least(200000, round(exp(9.35 + 0.22 * level + 0.011 * hours
             - power((age - 50) / 60.0, 2) + 0.10 * (region = 'Capital')::INTEGER + 0.45 * z(14)), 2)) END AS income,
        CASE WHEN age < 22 AND u(15) < 0.97 THEN 0
             ELSE least(8, floor(-ln(1 - u(16)) * (1.75 - 0.2 * level)))::INTEGER END AS children,
        CASE WHEN u(17) >= 0.03 THEN heavy END AS obese,
        u(18) < 1 / (1 + exp(5.2 - 0.055 * age - 0.7 * smokes::INTEGER - 0.6 * heavy::INTEGER)) AS disease""",
)

COLUMNS = """\
[columns]
age = { type = "integer", low = 16, high = 95 }
sex = { type = "category", values = ["Female", "Male"] }
region = { type = "category", values = ["North", "East", "South", "West", "Capital"] }
education = { type = "category", values = ["none", "school", "college", "university"] }
smoker = { type = "flag" }
hours = { type = "real", low = 0, high = 80 }
income = { type = "real", low = 0, high = 200000 }
children = { type = "integer", low = 0, high = 8 }
obese = { type = "flag" }
disease = { type = "flag" }
"""


def statement(rows: int) -> str:
    """The SELECT that makes the survey, over the macros above."""
    text = _STAGES[0].format(rows=rows)
    for number, stage in enumerate(_STAGES[1:]):
        text = f"{stage} FROM ({text}) AS s{number}"
    return re.sub(r"\b([uz])\(", r"\1(i, ", text)


def write_sample(path: str | os.PathLike[str], rows: int, seed: int = 1, *, overwrite: bool = False) -> None:
    """Write a made-up survey of ``rows`` people as .parquet or .csv; the file appears whole or not at all."""
    import duckdb

    file = Path(path)
    if file.suffix not in _FORMATS:
        raise BadTable(f"the sample must be written as {' or '.join(_FORMATS)}. Got {file.name!r}.")
    if isinstance(rows, bool) or not isinstance(rows, int) or not 0 <= rows <= MOST_ROWS:
        raise BadTable(f"rows must be a whole number from 0 to {MOST_ROWS:.0e}. Got {rows!r}.")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise BadTable(f"seed must be a whole number from 0 to 2^63 - 1. Got {seed!r}.")
    refuse_overwriting(file, overwrite)
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}.part")
    connection = duckdb.connect()
    try:
        for macro in _MACROS:
            connection.execute(macro.format(seed=seed))
        target = str(partial).replace("'", "''")
        _run(connection, f"COPY ({statement(rows)}) TO '{target}' ({_FORMATS[file.suffix]})", rows)
        partial.replace(file)
    except (duckdb.IOException, OSError):
        raise BadTable(f"the folder must exist, be writable and have space. Got {str(file)!r}.") from None
    finally:
        connection.close()
        partial.unlink(missing_ok=True)


def write_schema(path: str | os.PathLike[str], data: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the complete ``survey.toml`` for a sample: the generator's documented bounds, and a budget."""
    import json

    file = Path(path)
    refuse_overwriting(file, overwrite)
    where = os.path.relpath(Path(data).absolute(), file.absolute().parent)
    head = "# A made-up survey (`dodona sample`). Bounds and categories are the generator's, publicly documented.\n"
    budget = "[budget]\nepsilon = 1\ndelta = 1e-6\n"
    text = f"{head}data = {json.dumps(where, ensure_ascii=False)}\n\n{budget}\n{COLUMNS}"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError:
        raise BadTable(f"the folder must exist and be writable. Got {str(file)!r}.") from None


def refuse_overwriting(file: Path, overwrite: bool) -> None:
    """A sample must never take the place of something else by mistake."""
    if file.exists() and not overwrite:
        raise BadTable(f"the file must not exist yet. Got {str(file)!r}; choose another name, or say --force.")


def _run(connection: Any, text: str, rows: int) -> None:
    """The statement. A long run can be interrupted, and shows a bar in a terminal."""
    if rows < LONG_RUN:
        connection.execute(text)
        return
    faults: list[BaseException] = []
    done = threading.Event()  # not Thread.join: in Python 3.11 an interrupted join takes the thread for ended

    def work() -> None:  # in a thread of its own: DuckDB would hold back the signal of an interrupt until it is done
        try:
            connection.execute(text)
        except BaseException as error:
            faults.append(error)
        done.set()

    with _bar(rows) as show:
        threading.Thread(target=work, daemon=True).start()
        try:
            while not done.wait(0.1):
                show(max(0.0, connection.query_progress()))
        except KeyboardInterrupt:
            connection.interrupt()
            done.wait()
            raise
    if faults:
        raise faults[0]


@contextmanager
def _bar(rows: int) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal's stderr: a function to be told the percentage."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn(f"making {rows:,} rows"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sample", total=100.0)
        yield lambda done: bar.update(task, completed=done)
