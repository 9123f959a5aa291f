"""What several folders of tests share."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

# Before NumPy is imported: workers share the cores, and threads that wait for small matrices only keep them busy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says how busy the machine is, not whether the law holds.
# `make test` draws the same examples in every run, so that it says something about the change and nothing about luck;
# pytest alone, and `make test-all`, draw others each time. A planted bug must be caught every time, in no fine words.
PLANTED = "DODONA_PLANTED" in os.environ
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=PLANTED or "DODONA_SAME_EXAMPLES" in os.environ,
    phases=[Phase.explicit, Phase.generate] if PLANTED else tuple(Phase),
)
settings.load_profile("patient")


def absent(what: str) -> NoReturn:
    """Skip and say why; in CI, where everything is to be there, fail."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def pytest_collection_finish() -> None:
    """Thousands of tests are known from here to the end: the collector of garbage need not look at them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Kept for ``.ci/again.py``, beside what failed."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("dodona/exit", int(exitstatus))


def pytest_unconfigure() -> None:
    """At the end all is looked at again, so that what is open is closed in its order."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What is dear to start is started once: the tests of a file stay together, with the server or the browser that
    the file starts, and so do all files that name Spark. Planted bugs go wherever there is room."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.endswith("test_mutants.py"):
                return nodeid
            return "spark" if _names_spark(config.rootpath / file) else file

    return ByFile(config, log)


@functools.cache
def _names_spark(file: Path) -> bool:
    return "spark" in file.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that, preloaded, makes a chosen system call of a process fail."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("failing system calls needs Linux and a C compiler (cc or gcc) for the preloaded shim")
    library, source = tmp_path_factory.mktemp("shim") / "shim.so", Path(__file__).parent / "system" / "ledger_shim.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """pytest's own folders are closed to other users."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL on loopback, one per worker, started by the first test that wants it."""
    from tests.support.postgres import PostgresMissing, PostgresServer

    try:
        server = PostgresServer()
    except PostgresMissing as missing:
        absent(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session whose executors are threads, one per worker, started by the first test that wants it."""
    from tests.support.spark import SparkMissing, local_session

    with ExitStack() as stack:
        try:
            session = stack.enter_context(local_session(compiler=1))
        except SparkMissing as missing:
            absent(str(missing))
        yield session
