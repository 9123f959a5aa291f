"""Runs tests against a mutated copy of the package, one fork a mutant.

Reads one JSON object a line, {"file", "old", "new", "tests"}, and writes one, {"code", "said", "seconds"}. The copy
is whole again after each line. ``code`` is pytest's: 0 all passed, 1 some failed; -9 ran out of time.

Two processes wait for mutants. The *warm* one has imported the package and collected every test that kills: its forks
put the mutant's bodies into the functions that are there, and run the tests at once. The *cold* one has the heavy
libraries alone: its forks import the mutated package anew. It is asked where a mutant is more than new bodies (a
constant, a default, a class), and again where a warm fork let a mutant live: what ran while the package was imported
ran unmutated there.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

LIMIT = 300
REPOSITORY = Path(__file__).parents[2]
MARKERS = "markers=slow: takes long\nxdist_group: which tests go to one worker, of a plugin that is not loaded here"
OPTIONS = ["-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir", ".", "-m", "not slow", "-o", MARKERS]
HEAVY = (
    *("fastapi", "httpx", "pandas", "polars", "psycopg", "scipy.stats", "sklearn.base", "sklearn.utils.validation"),
    *("mpmath", "typer", "uvicorn"),
)
Place = tuple[str, str, int]
Bodies = list[tuple[Place, CodeType, CodeType]]


def preload() -> None:
    """Everything but the package itself, so that a fork has it for nothing."""
    import concurrent.futures
    import decimal
    import multiprocessing
    import sqlite3

    import cryptography.hazmat.primitives.ciphers
    import duckdb
    import hypothesis.strategies
    import numpy.ma
    import pyarrow.parquet
    import pytest
    import sqlglot
    import sqlglot.errors

    for heavy in HEAVY:
        with suppress(ImportError):  # an extra that is not here
            import_module(heavy)
    assert all((concurrent, cryptography, decimal, duckdb, hypothesis, multiprocessing, numpy, pyarrow, pytest))
    assert all((sqlglot, sqlite3))
    assert "dodona" not in sys.modules


# -- what a mutant changes ---------------------------------------------------------------------------------------------


def new_bodies(file: Path, before: str, after: str) -> Bodies | None:
    """Every function whose body differs: its place, its old body and its new one. None: more than that differs."""
    found: Bodies = []
    try:
        old, new = (compile(text, str(file), "exec", dont_inherit=True) for text in (before, after))
    except SyntaxError:
        return None  # it is this mutant that fails, and not all that come after it
    return found if _gathered(old, new, found) else None


def _gathered(old: CodeType, new: CodeType, found: Bodies) -> bool:
    """Of a module or the body of a class: whether it does the same but for the functions that it makes."""
    if _shape(old) != _shape(new) or len(old.co_consts) != len(new.co_consts):
        return False
    for one, other in zip(old.co_consts, new.co_consts, strict=True):
        if not isinstance(one, CodeType) or not isinstance(other, CodeType):
            if repr(one) != repr(other):
                return False
        elif _whole(one) != _whole(other):
            function = bool(one.co_flags & 0x1)  # CO_OPTIMIZED: a class's body has names, no fast locals
            if not (_replaced(one, other, found) if function else _gathered(one, other, found)):
                return False
    return True


def _replaced(old: CodeType, new: CodeType, found: Bodies) -> bool:
    """Of a function: a body takes another's place where both close over the same names."""
    if old.co_freevars != new.co_freevars:
        return False
    found.append(((old.co_filename, old.co_qualname, old.co_firstlineno), old, new))
    inner = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)]
    if [one.co_name for one in inner[0]] != [one.co_name for one in inner[1]]:
        return True  # functions made before this one was replaced keep their bodies
    return all(_whole(one) == _whole(other) or _replaced(one, other, found) for one, other in zip(*inner, strict=True))


def _shape(code: CodeType) -> tuple[Any, ...]:
    """All of a code object but its constants and its lines."""
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_name, code.co_exceptiontable
    return code.co_code, names, code.co_flags, code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount


def _whole(code: CodeType) -> tuple[Any, ...]:
    inner = tuple(_whole(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts)
    return *_shape(code), inner


# -- the warm process --------------------------------------------------------------------------------------------------


class Warm:
    """The package and the tests, imported and collected once. ``functions``: the package's, by where they stand."""

    def __init__(self, copy: Path) -> None:
        os.chdir(REPOSITORY)
        sys.path.insert(0, str(copy))
        for module in _modules(copy):
            with suppress(ImportError):  # an extra that is not here
                import_module(module)
        self._copy = str(copy)
        self.functions: dict[Place, list[FunctionType]] = defaultdict(list)

    def hold(self, files: list[str], serve: Callable[[], None]) -> None:
        """Collect the tests of these files, and serve instead of running them."""
        import pytest

        self._serve = serve
        with open(os.devnull, "w", encoding="utf-8") as nowhere, _printing_to(nowhere.fileno()):
            pytest.main([*OPTIONS, "--capture=no", "--tb=short", *files], plugins=[self])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of pytest's own."""
        self._session = session
        gc.unfreeze()  # what ``tests/conftest.py`` has frozen would not be found
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(self._copy):
                code = one.__code__
                self.functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(one)
        gc.collect()
        gc.freeze()  # a fork's collector need not touch, and so copy, what is here
        self._serve()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Where a bug lives, or the sound copy fails, this is what there is to read."""
        if report.failed:
            print(f"{report.nodeid}, {report.when}:\n{report.longreprtext}", flush=True)

    def run(self, tests: list[str]) -> int:
        """In a fork: the tests of these names, of whole files and of all parameters too, until one fails."""
        named = {name: self._named(name) for name in tests}
        if not all(named.values()):
            print("no such test:", *(name for name, found in named.items() if not found), flush=True)
            return 4
        items = [one for one in self._session.items if any(one in found for found in named.values())]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._session.testsfailed:
                self._session._setupstate.teardown_exact(None)  # what is left open, as at the end of a session
                return 1
        return 0

    def _named(self, name: str) -> set[pytest.Item]:
        below = tuple(f"{name}{sign}" for sign in ("[", "::", "/"))
        return {one for one in self._session.items if one.nodeid == name or one.nodeid.startswith(below)}

    def plant(self, bodies: Bodies) -> None:
        """In a fork: the new bodies for the old."""
        for place, _, new in bodies:
            for function in self.functions.get(place, []):
                function.__code__ = new

    def can_plant(self, bodies: Bodies | None) -> bool:
        """Whether the mutant is new bodies, the outermost of which are there."""
        return bool(bodies) and any(place in self.functions for place, _, _ in bodies or ())


def _modules(copy: Path) -> Iterator[str]:
    for file in sorted((copy / "dodona").rglob("*.py")):
        if file.stem != "__main__":
            yield ".".join(file.relative_to(copy).with_suffix("").parts).removesuffix(".__init__")


class _printing_to:  # noqa: N801 - reads as what it does
    """Standard output and error go to a file."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __enter__(self) -> None:
        self._kept = os.dup(1), os.dup(2)
        os.dup2(self._file, 1)
        os.dup2(self._file, 2)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        for kept, stream in zip(self._kept, (1, 2), strict=True):
            os.dup2(kept, stream)
            os.close(kept)


# -- one mutant --------------------------------------------------------------------------------------------------------


class Forge:
    """Cold until ``warm`` is given."""

    def __init__(self, copy: Path, warm: Warm | None = None) -> None:
        self._copy, self._warm = copy, warm

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """One mutant and its tests; a warm forge says ``code`` None where it cannot plant it."""
        start = time.monotonic()
        file = self._copy / "dodona" / job["file"] if job["file"] else None
        before, stamp = (file.read_text(encoding="utf-8"), file.stat()) if file else ("", None)
        bodies: Bodies | None = []
        if file is not None:
            assert before.count(job["old"]) == 1
            after = before.replace(job["old"], job["new"])
            if self._warm is not None and file.suffix == ".py":
                bodies = new_bodies(file, before, after)
                if not self._warm.can_plant(bodies):
                    return {"code": None}
            file.write_text(after, encoding="utf-8")
            for stale in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
                stale.unlink()
        try:
            with tempfile.TemporaryFile("w+") as said:
                code = _forked(lambda: self._tested(bodies or [], job["tests"]), said.fileno())
                said.seek(0)
                return {"code": code, "said": said.read()[-3000:], "seconds": time.monotonic() - start}
        finally:
            if file is not None and stamp is not None:
                file.write_text(before, encoding="utf-8")
                os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    def _tested(self, bodies: Bodies, tests: list[str]) -> int:
        import pytest

        os.chdir(REPOSITORY)
        if self._warm is None:
            sys.path.insert(0, str(self._copy))
        else:
            self._warm.plant(bodies)
        import dodona

        assert Path(dodona.__file__).is_relative_to(self._copy)
        code = self._warm.run(tests) if self._warm else int(pytest.main(["-x", "--tb=line", *OPTIONS, *tests]))
        sys.stdout.flush()
        return code


def _forked(work: Callable[[], int], output: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.setsid()
            os._exit(work())
        finally:
            os._exit(70)
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -9


class Process:
    """The warm forge, in a fork of the cold one that was made before anything of the package was imported."""

    def __init__(self, copy: Path, files: list[str]) -> None:
        jobs, results = os.pipe(), os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(jobs[1])
            os.close(results[0])
            with os.fdopen(jobs[0]) as lines, os.fdopen(results[1], "w") as out, suppress(BrokenPipeError):
                warm = Warm(copy)
                forge = Forge(copy, warm)

                def serve() -> None:
                    for line in lines:
                        print(json.dumps(forge.run(json.loads(line))), file=out, flush=True)

                warm.hold(files, serve)
            os._exit(0)
        os.close(jobs[0])
        os.close(results[1])
        self._jobs, self._results = os.fdopen(jobs[1], "w"), os.fdopen(results[0])

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """As the forge does."""
        print(json.dumps(job), file=self._jobs, flush=True)
        found: dict[str, Any] = json.loads(self._results.readline())
        return found

    def end(self) -> None:
        """Wait until it has put its folders away."""
        self._jobs.close()
        os.waitpid(self._process, 0)


def main() -> None:
    sys.dont_write_bytecode = True
    preload()
    copy = Path(sys.argv[1])
    cold, warm = Forge(copy), Process(copy, sys.argv[2:])
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        found = warm.run(job)
        if job["file"] and found["code"] != 1:
            found = cold.run(job) | {"cold": True}
        print(json.dumps(found), flush=True)
    warm.end()


if __name__ == "__main__":
    main()
