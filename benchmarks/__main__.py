"""``python -m benchmarks [--quick] [name ...]``: runs the named files in this folder, or all of them.

A benchmark is a file with ``main() -> list[dict]`` (or ``run(quick)``) that returns its rows: one for each figure, with
``case``, ``ours``, and where they exist ``target``, ``peer``, ``peer name``, ``better``, ``unit``; benchmarks/_rows.py
says what each means. Whether a target was met is worked out here. What is printed is kept as well.

Results go to ``benchmarks/results/NAME.json`` (or the folder ``DODONA_RESULTS`` names), figures to ``docs/figures``
(``DODONA_FIGURES``). benchmarks/figures.toml lists every figure that was asked for and which rows answer it, and
``python docs/tools/pages.py`` makes docs/benchmarks.md of all three. ``--draw`` draws the plots anew from the kept
results. ``--quick`` runs each at a size of seconds and keeps nothing unless a folder is named: it shows that they run,
not how well.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks import _rows

HERE = Path(__file__).resolve().parent
FIGURES = HERE.parent / "docs" / "figures"


def names() -> list[str]:
    """Every benchmark in this folder."""
    return sorted(
        file.stem for file in HERE.glob("*.py") if not file.stem.startswith("_") and "def main(" in file.read_text()
    )


class _Tee(io.StringIO):
    """Keeps what is printed, and prints it."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return super().write(text)


def measure(name: str, quick: bool, figures: Path) -> dict[str, Any]:
    """One benchmark: its rows, what it printed, where and when it ran; its figures land in ``figures``.

    Raises what it raises.
    """
    _rows.look()
    module = importlib.import_module(f"benchmarks.{name}")
    for constant in ("FOLDER", "FIGURES"):
        if hasattr(module, constant):
            setattr(module, constant, figures)
    about = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
    print(f"\n== {name}: {about}", flush=True)
    started, printed = time.time(), _Tee()
    with contextlib.redirect_stdout(printed):
        if hasattr(module, "run"):
            rows = module.run(quick)
        elif quick:
            from benchmarks import _quick

            rows = _quick.WAYS[name](module)
        else:
            rows = module.main()
    seconds = time.time() - started
    print(f"== {name}: {seconds:.1f} s", flush=True)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return {
        "name": name,
        "about": about,
        "when": time.strftime("%Y-%m-%d", time.gmtime(started)),
        "machine": f"{os.cpu_count()} cores {platform.machine()}, Python {platform.python_version()}{load}",
        "seconds": round(seconds, 1),
        "quick": quick,
        "rows": _rows.judged(rows) if isinstance(rows, list) else [],
        "text": printed.getvalue().replace(f"{figures}/", "").replace(f"{HERE.parent}/", ""),
        "plots": sorted(file.name for file in figures.glob("*.png")),
    }


def redraw(results: Path, figures: Path) -> None:
    """Draw the plot of every kept result anew, and note its name there."""
    for file in sorted(results.glob("*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        result["rows"] = _rows.judged(result["rows"])
        drawn = _rows.draw(result, figures)
        result["plots"] = sorted({*result["plots"], *([drawn] if drawn else [])})
        if _text(result) != file.read_text(encoding="utf-8"):
            file.write_text(_text(result), encoding="utf-8")


def _text(result: dict[str, Any]) -> str:
    return json.dumps(result, indent=1) + "\n"


def main(arguments: list[str]) -> int:
    """Runs them one after the other; a failing one does not stop the rest."""
    quick = "--quick" in arguments
    if arguments == ["--draw"]:
        redraw(HERE / "results", FIGURES)
        return 0
    wanted = [argument for argument in arguments if argument != "--quick"]
    strange = [name for name in wanted if name not in names()]
    if strange:
        print(f"no such benchmark: {', '.join(strange)}. There are: {', '.join(names())}.", file=sys.stderr)
        return 2
    if quick:
        from benchmarks import _quick

        os.environ.update(_quick.SMALL)
        os.environ.pop("DODONA_PEER_PYTHON", None)
    figures = None if quick else Path(os.environ.get("DODONA_FIGURES", FIGURES))
    stated = os.environ.get("DODONA_RESULTS")
    results = Path(stated) if stated else None if quick else HERE / "results"
    failed = [name for name in wanted or names() if not _one(name, quick, results, figures)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _one(name: str, quick: bool, results: Path | None, figures: Path | None) -> bool:
    """Run one, then keep its figures and its result where a folder for them is named; false if it or a row is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder)
        os.environ["DODONA_FIGURES"] = folder
        try:
            result = measure(name, quick, drawn)
            picture = _rows.draw(result, drawn)
        except Exception:
            traceback.print_exc()
            return False
        result["plots"] += [picture] if picture else []
        if figures is not None:
            figures.mkdir(parents=True, exist_ok=True)
            for file in drawn.iterdir():
                shutil.copy(file, figures / file.name)
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        (results / f"{name}.json").write_text(_text(result), encoding="utf-8")
    wrong = _rows.faults(result["rows"])
    for fault in wrong:
        print(f"{name}: {fault}", file=sys.stderr)
    return not wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
