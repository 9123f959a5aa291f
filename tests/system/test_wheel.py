"""What is shipped works: the archives build, hold what they must, and install into a clean environment."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from dodona import __version__

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dodona"
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    words = list(map(str, command))
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, built from the source archive, which is built from the tree."""
    pytest.importorskip("build", reason="building needs the extra 'docs' or pip install build")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=ROOT)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


@pytest.fixture(scope="module")
def clean(archives: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel and no extra; its folder is not in the repository."""
    folder = tmp_path_factory.mktemp("clean") / "env"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
        archives[0],
        cwd=folder,
    )
    return python


def test_the_wheel_holds_the_package_and_nothing_else(archives: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(archives[0]).namelist())
    shipped = {f"dodona/{file.relative_to(SOURCE).as_posix()}" for file in SOURCE.rglob("*") if file.is_file()}
    wanted = {name for name in shipped if "__pycache__" not in name and "/." not in name}
    assert wanted <= names
    assert "dodona/py.typed" in names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"dodona"}


def test_the_source_archive_builds_alone_and_holds_the_tests(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/dodona/py.typed", "tests/system/test_wheel.py"} <= names
    assert not any(name.startswith((".venv", "site/", "demo/")) for name in names)


def test_it_works_without_extras(clean: Path, tmp_path: Path) -> None:
    dodona = clean.parent / "dodona"
    run(dodona, "sample", "survey.parquet", "--rows", "2000", "--schema", "survey.toml", cwd=tmp_path)
    assert "mean" in run(dodona, "ask", "survey.toml", "age >= 65 AND smoker", "--share", "0.1", cwd=tmp_path)
    assert "every hash and every sum holds" in run(dodona, "ledger", "survey.toml", "--verify", cwd=tmp_path)
    absent = (
        "import importlib.util as u; print([n for n in ('sklearn', 'scipy', 'pyarrow', 'fastapi') if u.find_spec(n)])"
    )
    assert run(clean, "-c", absent, cwd=tmp_path).strip() == "[]"
    code = "import dodona as dd; from dodona import release; print(dd.__version__, release.conjunctions, dd.Local)"
    assert __version__ in run(clean, "-W", "error", "-c", code, cwd=tmp_path)


@pytest.mark.parametrize("name", ["learn.KMeans", "release.intervals"])
def test_what_needs_an_extra_names_it(clean: Path, tmp_path: Path, name: str) -> None:
    room, _, what = name.partition(".")
    command = [str(clean), "-c", f"from dodona import {room}; {room}.{what}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "pip install 'dodona[learn]'" in done.stderr


def test_it_works_with_extras(clean: Path, archives: tuple[Path, Path], tmp_path: Path) -> None:
    wheel = f"{archives[0]}[learn,arrow]"
    run(clean, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", wheel, cwd=tmp_path)
    code = (
        "import numpy as np; from dodona.learn import KMeans; "
        "print(KMeans(2, epsilon=1, delta=1e-6, bounds=(0, 1)).fit(np.random.default_rng(0).random((500, 2))).cost_)"
    )
    assert "rho" in run(clean, "-W", "error", "-c", code, cwd=tmp_path)


def test_it_is_typed(clean: Path, tmp_path: Path) -> None:
    """A caller's type checker sees our types, through py.typed."""
    pytest.importorskip("mypy", reason="needs the extra 'lint'")
    (tmp_path / "caller.py").write_text(
        "import dodona as dd\n\nbudget: dd.Budget = dd.Budget(epsilon=1)\nwrong: int = dd.Budget(epsilon=1)\n"
    )
    command = [sys.executable, "-m", "mypy", "--python-executable", str(clean), "--strict", "caller.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert "caller.py:4: error: Incompatible types in assignment" in done.stdout
    assert done.stdout.count("error:") == 1, done.stdout
