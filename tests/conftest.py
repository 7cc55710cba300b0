"""Real servers for the tests: one of each kind per test process, gone when it ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """The server users get from `freshet up`."""
    with EmbeddedServer(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(redis_server: EmbeddedServer) -> str:
    return redis_server.url


@pytest.fixture(scope="session", params=["valkey", "redis7"])
def any_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedServer]:
    """Each kind of server in turn; Redis itself only where the machine has it."""
    if request.param == "valkey":
        yield request.getfixturevalue("redis_server")
        return
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("no redis-server on PATH")
    with EmbeddedServer(tmp_path_factory.mktemp("redis"), Path(binary)) as server:
        yield server
