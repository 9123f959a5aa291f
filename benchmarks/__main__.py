"""``python -m benchmarks [--quick] [name ...]``: runs the named files in this folder, or all of them.

A benchmark is a file with ``run(quick) -> list[dict]`` or with ``main()``, which may return such rows. Everything
printed is kept as well. Results go to ``benchmarks/results/NAME.json`` (or the folder ``DODONA_RESULTS`` names),
figures to ``docs/figures`` (``DODONA_FIGURES``), and ``python docs/tools/pages.py`` makes docs/benchmarks.md of both.
``--quick`` runs each at a size of seconds and keeps nothing unless a folder is named: it shows that they run, not how
well.
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

HERE = Path(__file__).resolve().parent
FIGURES = HERE.parent / "docs" / "figures"
Rows = list[dict[str, Any]]


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
        "rows": rows if isinstance(rows, list) else [],
        "text": printed.getvalue().replace(f"{figures}/", "").replace(f"{HERE.parent}/", ""),
        "plots": sorted(file.name for file in figures.glob("*.png")),
    }


def draw(result: dict[str, Any], folder: Path) -> str | None:
    """Rows that have ours and a target or a peer, as bars of ours over theirs; the name of the picture, if any."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    bars = [
        (f"{row['case']} ({kind})", row["ours"] / row[kind], row.get("better", "lower"))
        for row in result["rows"]
        for kind in ("target", "peer")
        if row.get("ours") and row.get(kind)
    ]
    if not bars:
        return None
    figure, axes = plt.subplots(figsize=(7.2, 1.2 + 0.32 * len(bars)), layout="constrained")
    good = [(ratio <= 1) == (better == "lower") for _, ratio, better in bars]
    colours = ["#0072B2" if g else "#D55E00" for g in good]
    axes.barh([name for name, _, _ in bars], [ratio - 1 for _, ratio, _ in bars], left=1, color=colours)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="ours / theirs (blue: ours is better)", title=result["name"])
    low, high = axes.get_xlim()
    ticks = [tick for tick in (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.invert_yaxis()
    name = f"bench-{result['name']}.png"
    figure.savefig(folder / name, dpi=100)
    plt.close(figure)
    return name


def main(arguments: list[str]) -> int:
    """Runs them one after the other; a failing one does not stop the rest."""
    quick = "--quick" in arguments
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
    """Run one, then keep its figures and its result where a folder for them is named."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder)
        os.environ["DODONA_FIGURES"] = folder
        try:
            result = measure(name, quick, drawn)
            picture = draw(result, drawn) if result["rows"] else None
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
        (results / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
