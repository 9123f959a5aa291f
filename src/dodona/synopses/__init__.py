"""Published results as values: what each kind of release holds and how it answers, free, for ever, without rows.

Each kind has a file here. A synopsis is kept as one file: a ZIP of a readable ``header.json`` and one Parquet file per
published array. The header names format, version, class, accuracy, cost, schema and the SHA-256 of each part, so that a
truncated or changed file is refused, and a file of a newer version says so. It loads without the data.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona._doors import load_module, module_names
from dodona.errors import BadTable, DodonaError
from dodona.oracles.answer import Bill
from dodona.oracles.synopsis import KINDS, Arrays, Body, Header, Synopsis
from dodona.query.schema import Schema

FORMAT, VERSION = "dodona synopsis", 2
READABLE = (1, 2)
"""Version 1 does not tell the class of a synthetic table, nor how noise enters: such margins are not proven."""
_AGAIN = "Copy it again from where it was saved."
ROOMS = ("dodona.synopses", "dodona.release")
"""Where kinds of bodies are looked for; one from elsewhere counts once it is imported. A file names no module."""


def save(synopsis: Synopsis, path: Any) -> None:
    """Write the file whole or not at all."""
    head, body = synopsis.header, synopsis.body
    parts = {f"{name}.parquet": _parquet(array) for name, array in body.arrays().items()}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kind": body.kind,
        "name": head.name,
        "about": head.about,
        "accuracy": head.accuracy,
        "method": head.method,
        "rows": head.rows,
        "cost": vars(head.cost),
        "notes": dict(head.notes),
        "schema": head.schema.describe(),
        "settings": body.settings(),
        "parts": {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()},
    }
    target = Path(path)
    scratch = target.with_name(target.name + ".part")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", json.dumps(header, indent=2, allow_nan=False))
        for name, data in parts.items():
            archive.writestr(name, data)
    os.replace(scratch, target)


def load(path: Any) -> Synopsis:
    """The synopsis in a file; a missing, foreign, corrupt or newer file is refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                raise ValueError("parts are stored as they are, so that none can unpack to more than the file holds")
            header = json.loads(archive.read("header.json"))
            parts = {name: archive.read(name) for name in archive.namelist() if name != "header.json"}
    except FileNotFoundError:
        raise BadTable(f"there is no file {str(path)!r}.") from None
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, EOFError, RecursionError, NotImplementedError):
        raise BadTable(f"{str(path)!r} is not a synopsis, or it is truncated. {_AGAIN}") from None
    _check(header, parts, str(path))
    try:
        return _restored(header, parts)
    except DodonaError:
        raise
    except Exception:  # a header that was changed by hand can be wrong in any way
        raise BadTable(f"{str(path)!r} is damaged: its header does not describe its parts.") from None


def _restored(header: dict[str, Any], parts: dict[str, bytes]) -> Synopsis:
    schema = Schema.read(header["schema"])
    arrays = {name.removesuffix(".parquet"): _array(data) for name, data in parts.items()}
    body = KINDS[header["kind"]].restore(schema, header["settings"], arrays)
    name, about, accuracy, method = (header[key] for key in ("name", "about", "accuracy", "method"))
    cost = Bill(**header["cost"])
    return Synopsis(Header(name, about, accuracy, method, schema, header["rows"], cost, header["notes"]), body)


def _check(header: Any, parts: dict[str, bytes], path: str) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BadTable(f"{path!r} is not a synopsis.")
    if header.get("version") not in READABLE:
        raise BadTable(
            f"{path!r} has version {header.get('version')!r}; this Dodona reads versions up to {VERSION}. Load it with "
            "the Dodona that wrote it, or a newer one."
        )
    found = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
    if header.get("parts") != found or _kind(header.get("kind")) is None:
        raise BadTable(f"{path!r} is damaged: its parts do not match its header. {_AGAIN}")


def _kind(kind: Any) -> type[Body] | None:
    """The class that states this kind: modules are imported until one does, a file of its name first."""
    if not isinstance(kind, str):
        return None
    for room in ROOMS:
        for module in sorted(module_names(room), key=lambda name: not name.endswith(f".{kind.lower()}")):
            if kind not in KINDS:
                load_module(module, optional=True)
    return KINDS.get(kind)


def _parquet(array: NDArray[Any]) -> bytes:
    import duckdb

    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        file = os.path.join(folder, "part.parquet")
        connection.register("part", {"value": np.ascontiguousarray(array)})
        connection.execute(f"COPY (SELECT value FROM part) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
        return Path(file).read_bytes()


def _array(data: bytes) -> NDArray[Any]:
    import duckdb

    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        file = os.path.join(folder, "part.parquet")
        Path(file).write_bytes(data)
        connection.execute("SET preserve_insertion_order = true")
        values = connection.execute(f"SELECT value FROM '{file}'").fetchnumpy()["value"]
        return np.asarray(values)


__all__ = ["FORMAT", "VERSION", "Arrays", "load", "save"]
