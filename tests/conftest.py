"""Real servers for the tests: one of each kind per test process, gone when it ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, settings

from loadtest.cluster import LocalCluster
from service.embedded import EmbeddedServer

# What holds for an example holds however long the machine takes over it.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """The server users get from `freshet up`."""
    with EmbeddedServer(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(redis_server: EmbeddedServer) -> str:
    return redis_server.url


@pytest.fixture(scope="session")
def redis7_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Redis itself, where the machine has it."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("no redis-server on PATH")
    with EmbeddedServer(tmp_path_factory.mktemp("redis"), Path(binary)) as server:
        yield server


@pytest.fixture(scope="session", params=["redis_server", "redis7_server"], ids=["valkey", "redis7"])
def any_server(request: pytest.FixtureRequest) -> EmbeddedServer:
    """Each kind of server in turn."""
    server: EmbeddedServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster of three primaries."""
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def emptied(store: EmbeddedServer | LocalCluster) -> str:
    """The URL of a store that holds nothing any more."""
    if isinstance(store, LocalCluster):
        store.flush()
    else:
        with redis.Redis.from_url(store.url) as client:
            client.flushall()
    return store.url
