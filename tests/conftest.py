"""What several folders of tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from dodona.testing.postgres import PostgresServer

# How long an example takes says how busy the machine is, not whether the law holds.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def absent(what: str) -> NoReturn:
    """Skip and say why; in CI, where everything is to be there, fail."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL on loopback, one per worker, started by the first test that wants it."""
    from dodona.testing.postgres import PostgresMissing, PostgresServer

    try:
        server = PostgresServer()
    except PostgresMissing as missing:
        absent(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session whose executors are threads, one per worker, started by the first test that wants it."""
    from dodona.testing.spark import SparkMissing, local_session

    with ExitStack() as stack:
        try:
            session = stack.enter_context(local_session())
        except SparkMissing as missing:
            absent(str(missing))
        yield session
