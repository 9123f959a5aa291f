"""Servers for tests: one in a thread of this process, or real processes; always on loopback and a free port."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dodona.query.schema import Schema
from dodona.server.keys import KeyStore
from dodona.server.settings import Settings
from tests.support.commands import make_ledger


def write_survey(
    folder: Path, columns: Mapping[str, Any], schema: Schema, budget: Mapping[str, Any], name: str = "people"
) -> Path:
    """A survey.toml over a Parquet file of these columns, and its ledger."""
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(dict(columns)), folder / f"{name}.parquet")
    lines = [f'data = "{name}.parquet"', f'name = "{name}"', f'population = "{name} of a test"', "[budget]"]
    lines += [f"{key} = {_toml(value)}" for key, value in budget.items()]
    lines += ["[columns]"]
    for column, facts in schema.describe().items():
        inside = ", ".join(f"{key} = {_toml(value)}" for key, value in facts.items())
        lines.append(f"{json.dumps(column)} = {{ {inside} }}")
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n")
    make_ledger(path)
    return path


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def add_key(folder: Path, analyst: str, share: str | None = None, **settings: Any) -> str:
    """A key's token; without a share, a curator's, unless ``settings`` name another role."""
    store = KeyStore(folder / "dodona.keys")
    role = settings.pop("role", "curator" if share is None else "analyst")
    try:
        return store.add(analyst, role=role, share=share, **settings)[1]
    finally:
        store.close()


@contextmanager
def in_thread(folder: Path, surveys: Sequence[Path], **settings: Any) -> Iterator[str]:
    """A server in a thread of this process; its URL. ``settings``: of ``Settings``, the tick among them."""
    from dodona.server.app import make_app

    stated = Settings(tuple(map(str, surveys)), str(folder), audit=str(folder / "audit.log"), **settings)
    with listening(make_app(stated)) as url:
        yield url


@contextmanager
def listening(app: Any, **options: Any) -> Iterator[str]:
    """An application in a thread of this process; its URL. ``options``: of uvicorn."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, access_log=False, log_level="error", server_header=False, **options)
    server = _quick_server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server did not start")
        time.sleep(0.002)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.end()
        thread.join(30)
        listener.close()


def _quick_server(config: Any) -> Any:
    """uvicorn's, which ends when it is told and not some tenths of a second later: hundreds of tests start one."""
    import uvicorn

    class Quick(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
            await super().startup(sockets)

        async def main_loop(self) -> None:
            while not await self.on_tick(0):  # each second: its clock, and whether it is to end
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._told.wait(), 1.0)

        def end(self) -> None:
            self.should_exit = True
            self._loop.call_soon_threadsafe(self._told.set)

        async def shutdown(self, sockets: Any = None) -> None:
            for one in (*self.servers, *(sockets or ())):
                one.close()
            for connection in list(self.server_state.connections):
                connection.shutdown()
            while self.server_state.connections or self.server_state.tasks:
                await asyncio.sleep(0.002)
            await self.lifespan.shutdown()

    return Quick(config)


class Process:
    """A server process of its own: ``dodona serve``. ``out``: what it printed so far.

    ``patience``: seconds that headers may take, instead of the usual ten.
    """

    def __init__(
        self,
        folder: Path,
        surveys: Sequence[Path],
        *options: str,
        port: int | None = None,
        ledger: str | None = None,
        patience: float | None = None,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._out = (folder / f"out.{self.port}").open("w+")
        patient = f"from dodona import cli; from dodona.server import app; app.HEADERS = {patience}; cli.main()"
        program = ["-m", "dodona"] if patience is None else ["-c", patient]
        command = [sys.executable, *program, "serve", *map(str, surveys), "--port", str(self.port)]
        command += ["--keys", str(folder / "dodona.keys"), "--audit", str(folder / "audit.log"), *options]
        # A session of its own, so that a kill reaches the workers and nobody else.
        env = {**os.environ, **({} if ledger is None else {"DODONA_LEDGER": ledger})}
        self.process = subprocess.Popen(command, stdout=self._out, stderr=self._out, start_new_session=True, env=env)
        self._wait()

    @property
    def out(self) -> str:
        """Everything it wrote."""
        return Path(self._out.name).read_text()

    @classmethod
    def shuffling(cls, folder: Path, collector: str, surveys: Sequence[str], key: str, *options: str) -> Process:
        """``dodona shuffle`` in its own process, with what waits in ``folder``."""
        made = cls.__new__(cls)
        made.port = free_port()
        made.url = f"http://127.0.0.1:{made.port}"
        made._out = (folder / f"out.{made.port}").open("w+")
        command = [sys.executable, "-m", "dodona", "shuffle", collector, "--port", str(made.port), *options]
        command += ["--folder", str(folder), *(part for id in surveys for part in ("--survey", id))]
        env = {**os.environ, "DODONA_KEY": key}
        made.process = subprocess.Popen(command, stdout=made._out, stderr=made._out, start_new_session=True, env=env)
        made._wait()
        return made

    def _wait(self, seconds: float = 60.0) -> None:
        """Until it says that it serves, which it does once it listens."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.out}")
            if "dodona: serving" in self.out or "dodona: shuffling" in self.out:
                return
            time.sleep(0.05)
        raise RuntimeError(f"the server does not listen: {self.out}")

    def kill(self) -> None:
        """SIGKILL to it and its workers: nobody gets a word in."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self._out.close()

    def stop(self) -> int:
        """SIGTERM, and wait for what is at work; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(60)
        self._out.close()
        return code


PROBLEM = {"type", "title", "status", "code", "detail", "request_id", "charged"}


def problem_code(response: Any) -> str:
    """The code of a refusal, which must be a whole problem document."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    assert set(response.json()) >= PROBLEM
    return str(response.json()["code"])
