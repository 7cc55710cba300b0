"""The log of the embedded server is kept short when nobody minds, by a process that stands back."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from service.embedded import EmbeddedServer
from service.store.upkeep import AGAIN_S, GROWTH, LOOK_S, NICE, QUIET_S, QUIET_SHARE, Upkeep
from tests.store.test_embedded import binary, connected, wait_until

__all__ = ["binary"]  # the fixture
WORTH_BYTES = 1 << 20
BURN = "local sum = 0 for at = 1, 1e6 do sum = sum + at end return sum"


@pytest.fixture
def server(tmp_path: Path, binary: Path | None) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path, binary) as server:
        yield server


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with connected(server) as client:
        yield client


@pytest.fixture
def upkeep(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upkeep]:
    """However long the server of a slow machine takes to answer."""
    monkeypatch.setattr("service.store.upkeep.TIMEOUT_S", 60.0)
    with closing(Upkeep(server.socket_path, lambda: server.pid, worth_bytes=WORTH_BYTES)) as upkeep:
        yield upkeep


def lengthen(client: redis.Redis) -> None:
    """The same key again and again: a long log of little."""
    for at in range(20):
        client.set("page", str(at) * 100_000)


def rewrites(client: redis.Redis) -> int:
    """So many ended well."""
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    return int(client.info("persistence")["aof_rewrites"])


def keep_busy(client: redis.Redis, seconds: float) -> None:
    """For so much of its processor time."""
    until = client.info("cpu")["used_cpu_user"] + seconds
    while client.info("cpu")["used_cpu_user"] < until:
        client.eval(BURN, 0)


def look_for(upkeep: Upkeep, seconds: float, begin: float = 1000.0) -> float:
    """As often as time passes; when that was."""
    looks = int(seconds / LOOK_S)
    for at in range(looks + 1):
        upkeep.look(begin + at * LOOK_S)
    return begin + looks * LOOK_S


def test_a_long_log_is_written_anew_once_the_server_was_quiet(client: redis.Redis, upkeep: Upkeep) -> None:
    lengthen(client)
    before = client.info("persistence")["aof_current_size"]
    now = look_for(upkeep, QUIET_S - LOOK_S)
    assert rewrites(client) == 0
    look_for(upkeep, LOOK_S, now)
    assert rewrites(client) == 1
    wait_until(lambda: client.info("persistence")["aof_current_size"] < before / GROWTH)


def test_a_log_is_asked_for_anew_at_most_every_ten_minutes(client: redis.Redis, upkeep: Upkeep) -> None:
    """A try that fails leaves a file behind, and the log as long: tries would fill the disk."""
    lengthen(client)
    asked_at = look_for(upkeep, QUIET_S)
    assert rewrites(client) == 1
    lengthen(client)
    look_for(upkeep, 2 * QUIET_S, asked_at + LOOK_S)
    upkeep.look(asked_at + AGAIN_S - LOOK_S)
    assert rewrites(client) == 1
    upkeep.look(asked_at + AGAIN_S)
    assert rewrites(client) == 2


def test_a_short_log_stays(client: redis.Redis, upkeep: Upkeep) -> None:
    client.set("page", "short")
    look_for(upkeep, 3 * QUIET_S)
    assert rewrites(client) == 0


def test_a_log_that_would_be_nearly_as_long_stays(client: redis.Redis, upkeep: Upkeep) -> None:
    for at in range(20):
        client.set(f"page{at}", os.urandom(100_000))
    client.bgrewriteaof()
    assert rewrites(client) == 1
    look_for(upkeep, 3 * QUIET_S)
    assert rewrites(client) == 1


def test_a_busy_server_is_left_alone(client: redis.Redis, upkeep: Upkeep) -> None:
    lengthen(client)
    now = 1000.0
    for _ in range(int(QUIET_S / LOOK_S) + 2):
        upkeep.look(now)
        keep_busy(client, 1.1 * QUIET_SHARE * LOOK_S)
        now += LOOK_S
    upkeep.look(now)
    assert rewrites(client) == 0
    look_for(upkeep, QUIET_S, now + LOOK_S)
    assert rewrites(client) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's children")
def test_who_writes_the_log_anew_stands_back(
    server: EmbeddedServer, client: redis.Redis, upkeep: Upkeep
) -> None:
    own = os.getpriority(os.PRIO_PROCESS, server.pid)
    for at in range(50):
        client.set(f"page{at}", at)
    client.config_set("rdb-key-save-delay", 40_000)  # microseconds, for each key
    client.bgrewriteaof()
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    wait_until(lambda: children.read_text() != "")
    child = int(children.read_text())
    os.kill(child, signal.SIGSTOP)  # so that it does not end before it was looked at
    upkeep.look(1000.0)
    assert os.getpriority(os.PRIO_PROCESS, child) == NICE
    assert os.getpriority(os.PRIO_PROCESS, server.pid) == own
    os.kill(child, signal.SIGCONT)
    assert rewrites(client) == 1


def test_a_server_that_is_away_is_waited_for(server: EmbeddedServer, upkeep: Upkeep) -> None:
    os.kill(server.pid, 9)
    wait_until(lambda: not server.is_running)
    now = look_for(upkeep, 2 * QUIET_S)
    server.revive()
    with connected(server) as client:
        lengthen(client)
        look_for(upkeep, QUIET_S + LOOK_S, now + LOOK_S)
        assert rewrites(client) == 1


def test_a_server_whose_log_is_off_is_looked_after_all_the_same(client: redis.Redis, upkeep: Upkeep) -> None:
    client.config_set("appendonly", "no")
    for second in range(int(QUIET_S / LOOK_S) + 3):
        upkeep.look(second * LOOK_S)
    assert client.info("persistence")["aof_enabled"] == 0
