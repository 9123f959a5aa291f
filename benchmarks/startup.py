"""How quickly Dodona starts, and how much it installs, against the targets.

It also installs the package without extras in a fresh environment and weighs it, which takes a minute and needs a
package index; without one that figure is left out, and said.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IMPORT_TARGET, ASK_TARGET, INSTALL_TARGET = 0.5, 1.5, 250.0


def seconds(command: list[str], cwd: Path, times: int = 7) -> tuple[float, float, float]:
    """Median and largest wall time of a command in fresh processes, and its processor time.

    The first run, which fills the disk cache, is left out. Processor time is what a busy machine cannot stretch.
    """
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    taken, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - started)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / times
    return statistics.median(taken), max(taken), processor


def report(what: str, value: float, target: float, unit: str, note: str = "") -> None:
    """One line: the figure, the target, and whether it is met."""
    verdict = "met" if value < target else "MISSED"
    print(f"{what:<34} {value:8.2f} {unit}   target {target:g} {unit}: {verdict} {note}")


def installed_megabytes() -> float | None:
    """The size of a fresh environment with the package and what it needs, less the environment itself."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder) / "env"
        venv.create(where, with_pip=True)
        empty = _size(where)
        install = [str(where / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*install, "--no-compile", str(ROOT)], check=False, capture_output=True, text=True)
        if done.returncode:
            print(f"not weighed, the installation failed: {done.stderr.strip().splitlines()[-1]}")
            return None
        return (_size(where) - empty) / 1e6


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def main() -> list[dict[str, Any]]:
    """Print every figure beside its target."""
    rows: list[dict[str, Any]] = []
    bare, _, _ = seconds([sys.executable, "-c", "pass"], ROOT)
    median, worst, processor = seconds([sys.executable, "-c", "import dodona"], ROOT)
    report("import dodona", median, IMPORT_TARGET, "s", f"(worst {worst:.2f}; python alone {bare:.2f})")
    rows.append(
        {"case": "import dodona", "ours": median, "target": IMPORT_TARGET, "unit": "s", "processor s": processor}
    )
    entered = [sys.executable, "-c", "import dodona; dodona.Curator, dodona.Table"]
    median, worst, processor = seconds(entered, ROOT)
    print(f"{'  and Curator and Table entered':<34} {median:8.2f} s   (worst {worst:.2f})")
    rows.append(
        {"case": "import dodona, then Curator and Table", "ours": median, "unit": "s", "processor s": processor}
    )
    with tempfile.TemporaryDirectory() as folder:
        here, command = Path(folder), [sys.executable, "-m", "dodona"]
        sample = ["sample", "survey.parquet", "--rows", "10000", "--schema", "survey.toml"]
        subprocess.run([*command, *sample], cwd=here, check=True, stdout=subprocess.DEVNULL)
        ask = [*command, "ask", "survey.toml", "age >= 65 AND smoker", "--share", "0.001"]
        median, worst, processor = seconds(ask, here)
        note = f"(worst {worst:.2f}; processor {processor:.2f})"
        report("dodona ask, cold, 10,000 rows", median, ASK_TARGET, "s", note)
        rows.append(
            {"case": "dodona ask, cold", "ours": median, "target": ASK_TARGET, "unit": "s", "processor s": processor}
        )
    size = installed_megabytes()
    if size is not None:
        report("pip install . without extras", size, INSTALL_TARGET, "MB")
    rows.append({"case": "installed without extras", "ours": size, "target": INSTALL_TARGET, "unit": "MB"})
    return rows


if __name__ == "__main__":
    main()
