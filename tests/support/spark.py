"""Spark sessions for tests: quick in one process, or a small cluster with executors in processes of their own.

``local_session`` runs executors as threads (``local[2]``); ``cluster_session`` starts two worker processes on this
machine (``local-cluster``), so that one can be killed; ``standalone_session`` starts a master and a worker as a cluster
has them; ``connect_session`` speaks to a server in another process. Each is a context manager that stops what it
started, and raises ``SparkMissing`` with what to install where it cannot.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_QUIET = """\
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %m%n
"""


class SparkMissing(RuntimeError):
    """What Spark needs is not here; the message says what."""


def require(*, connect: bool = False) -> None:
    """Refuses with what is missing: Java, PySpark, or what Spark Connect needs besides."""
    if find_spec("pyspark") is None:
        raise SparkMissing("Spark needs PySpark: pip install dodona[spark].")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        raise SparkMissing("Spark needs Java 17 or later: install it, or set JAVA_HOME.")
    wanted = ("grpc", "grpc_status", "google.rpc", "pandas", "pyarrow", "zstandard")
    absent = [name for name in wanted if connect and not _found(name)]
    if absent:
        raise SparkMissing(f"Spark Connect needs pip install 'pyspark[connect]'. Missing: {', '.join(absent)}.")


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def local_session(cores: int = 2, *, compiler: int = 4, **settings: str) -> Iterator[Any]:
    """A session whose executors are threads of one JVM. ``compiler``: how far Java goes in compiling, 1 to 4; 1 is
    the cheapest where no question is asked often."""
    with _session(f"local[{cores}]", settings, compiler) as session:
        yield session


@contextmanager
def cluster_session(workers: int = 2, megabytes: int = 1024, **settings: str) -> Iterator[Any]:
    """A session on a cluster of worker processes, one core and so much memory each."""
    with _session(f"local-cluster[{workers},1,{megabytes}]", settings) as session:
        # Its workers keep their files beside PySpark, whatever the settings say.
        left = Path(os.environ.get("SPARK_HOME", _beside_pyspark()), "work", session.sparkContext.applicationId)
        try:
            yield session
        finally:
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def standalone_session(cores: int = 2, **settings: str) -> Iterator[Any]:
    """A session on a standalone cluster: a master and a worker, each a process of its own on loopback."""
    require()
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="dodona-spark-") as folder, ExitStack() as started:
        where = ["--host", "127.0.0.1", "--webui-port", "0"]
        started.enter_context(_daemon("master.Master", [*where, "--port", str(port)], folder))
        _wait_for(port)
        own = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(Path(folder, "work"))]
        started.enter_context(_daemon("worker.Worker", [*where, *own, f"spark://127.0.0.1:{port}"], folder))
        with _session(f"spark://127.0.0.1:{port}", settings) as session:
            yield session


@contextmanager
def _daemon(name: str, arguments: Sequence[str], folder: str) -> Iterator[None]:
    """A part of a cluster, running meanwhile."""
    program = Path(os.environ.get("SPARK_HOME", _beside_pyspark()), "bin", "spark-class")
    quiet = Path(folder, "quiet.properties")
    quiet.write_text(_QUIET)
    wanted = {"SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={quiet}", "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(program), f"org.apache.spark.deploy.{name}", *arguments]
    none = subprocess.DEVNULL
    with subprocess.Popen(command, env=os.environ | wanted, stdout=none, stderr=none) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _wait_for(port: int, seconds: float = 120.0) -> None:
    """Until something listens on the port of loopback."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.2)
    raise SparkMissing("Spark's master did not start: is port 127.0.0.1 open to this process?")


def _beside_pyspark() -> Path:
    found = find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else Path()


@contextmanager
def _session(master: str, settings: dict[str, str], compiler: int = 4) -> Iterator[Any]:
    """``settings``: names of Spark settings with ``__`` for a dot."""
    require()
    with tempfile.TemporaryDirectory(prefix="dodona-spark-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark warns of newer versions of what it does not use here
        from pyspark.sql import SparkSession

        builder = _configured(
            SparkSession.builder.master(master).appName("dodona tests"), Path(folder), settings, compiler
        )
        with _environment(folder):
            session = builder.getOrCreate()
        gateway = session.sparkContext._gateway
        try:
            yield session
        finally:
            session.stop()
            _end(gateway)


def _configured(builder: Any, folder: Path, settings: dict[str, str], compiler: int = 4) -> Any:
    quiet = folder / "log4j2.properties"
    quiet.write_text(_QUIET)
    options = f"-Dlog4j2.configurationFile={quiet} -Djava.io.tmpdir={folder} -XX:TieredStopAtLevel={compiler}"
    chosen = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
    } | {name.replace("__", "."): value for name, value in settings.items()}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder


@contextmanager
def _environment(folder: str) -> Iterator[None]:
    """What the JVM's launcher reads from the environment: this Python for workers, loopback, their folder."""
    wanted = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(Path(folder, "work")),
        "SPARK_LOG_DIR": folder,
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end(gateway: Any) -> None:
    """Ends the JVM that PySpark leaves running until the interpreter exits, so that another session can start."""
    from pyspark import SparkContext

    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(timeout=60)
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def connect_session(**settings: str) -> Iterator[Any]:
    """A Spark Connect session on a server of its own, in another process."""
    require(connect=True)
    with tempfile.TemporaryDirectory(prefix="dodona-spark-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = _configured(SparkSession.builder.remote("local[2]"), Path(folder), settings)
        with _environment(folder):
            session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
