"""One file for every release: a ZIP of a readable ``header.json`` and one Parquet file per published array.

The header names format, version, class, accuracy, cost, schema and the SHA-256 of each part, so that a truncated or
changed file is refused, and a file of a newer version says so. It loads without the data.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Bill
from dodona.errors import BadTable, DodonaError
from dodona.query.schema import Schema
from dodona.synopses.base import Arrays, Body, Header, Synopsis

FORMAT, VERSION = "dodona synopsis", 1
_AGAIN = "Copy it again from where it was saved."
KINDS: dict[str, str] = {
    "Boxes": "boxes",
    "HalfspaceNets": "halfspaces",
    "Halfspaces": "halfspaces",
    "Ranges": "ranges",
    "Rows": "rows",
    "Cells": "cells",
    "Marginals": "marginals",
    "Mixture": "product_mixture",
    "Tree": "tree",
    "Degrees": "degrees",
    "Arrangement": "arrangement",
    "Asked": "asked",
    "Projected": "projected",
}
"""Body kind -> module in this room that holds its class, which is called as the kind."""


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
    body = _kind(header["kind"]).restore(schema, header["settings"], arrays)
    name, about, accuracy, method = (header[key] for key in ("name", "about", "accuracy", "method"))
    cost = Bill(**header["cost"])
    return Synopsis(Header(name, about, accuracy, method, schema, header["rows"], cost, header["notes"]), body)


def _check(header: Any, parts: dict[str, bytes], path: str) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BadTable(f"{path!r} is not a synopsis.")
    if header.get("version") != VERSION:
        raise BadTable(
            f"{path!r} has version {header.get('version')!r}; this Dodona reads version {VERSION}. Load it with the "
            "Dodona that wrote it, or a newer one."
        )
    found = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
    if header.get("parts") != found or header.get("kind") not in list(KINDS):
        raise BadTable(f"{path!r} is damaged: its parts do not match its header. {_AGAIN}")


def _kind(kind: str) -> type[Body]:
    found: type[Body] = getattr(importlib.import_module(f"dodona.synopses.{KINDS[kind]}"), kind)
    return found


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


__all__ = ["FORMAT", "KINDS", "VERSION", "Arrays", "load", "save"]
