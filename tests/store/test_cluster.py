"""A cluster of servers: calls find their shard wherever it is, and one server's trouble stays its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import redis
from redis.exceptions import AskError

from loadtest.cluster import LocalCluster, Member, free_ports, until
from service.clock import ManualClock
from service.embedded import EmbeddedServer, bundled_binary
from service.errors import StoreUnavailable
from service.status import gather_status
from service.store.connection import Server
from service.store.filling import Filling
from service.store.keys import CONTROL, meta, shard_prefixes
from service.store.node import DEADLINE_S
from service.store.scripts import library
from tests.conftest import emptied
from tests.deadline import overdue_s
from tests.store.audit import audit
from tests.store.world import SHARDS, World, hosts_of, outcome
from workers.learn import Learner
from workers.loop import _round
from workers.ownership import Ownership
from workers.reprice import Repricer

PREFIXES = shard_prefixes(SHARDS)
MANY = hosts_of(40)
Move = Callable[[LocalCluster, int, Member, Member], Awaitable[None]]


@contextmanager
def frozen(member: Member) -> Iterator[None]:
    os.kill(member.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(member.process.pid, signal.SIGCONT)


@pytest.fixture
async def world(cluster: LocalCluster) -> AsyncIterator[World]:
    world = World(emptied(cluster), ManualClock())
    await world.bandwidth(1000.0)
    yield world
    await world.close()


async def test_shards_lie_on_every_primary(world: World, cluster: LocalCluster) -> None:
    assert await world.put(*MANY) == ["added"] * len(MANY)
    homes = {prefix: cluster.owner(prefix) for prefix in PREFIXES}
    assert set(homes.values()) == set(cluster.primaries)
    assert all(home.ask("EXISTS", meta(prefix)) for prefix, home in homes.items())
    assert (await audit(cluster.url, SHARDS))["waiting"] == len(MANY)


async def test_what_the_last_caller_got_is_counted_without_another_call(world: World) -> None:
    await world.put(*MANY)
    assert await world.next()
    async with asyncio.timeout(20):
        while await world.frontier.control.granted() != 1:
            pass


async def test_any_one_node_is_enough_to_find_the_others(cluster: LocalCluster) -> None:
    for member in cluster.primaries:
        server = Server(f"redis+cluster://127.0.0.1:1,{member.address}")
        replies = await server.call_shards("probe", [([prefix], []) for prefix in (CONTROL, *PREFIXES)])
        assert replies == [[b"ready"]] * (SHARDS + 1)
        await server.close()


async def test_a_server_that_is_no_cluster_is_named_as_the_trouble(redis_server: EmbeddedServer) -> None:
    (port,) = free_ports(1)
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("port", port)
    with pytest.raises(StoreUnavailable, match="cluster support disabled"):
        await _ask_once(f"redis+cluster://127.0.0.1:{port}")


async def _ask_once(url: str) -> None:
    server = Server(url)
    try:
        await server.execute("HGET", CONTROL, "rate")
    finally:
        await server.close()


async def test_a_cluster_nobody_of_which_answers_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="no server of the cluster answers"):
        await _ask_once("redis+cluster://127.0.0.1:1,127.0.0.1:2")


async def test_the_library_comes_back_on_the_primary_that_lost_it(
    world: World, cluster: LocalCluster
) -> None:
    await world.server.load()
    for member in cluster.primaries:
        member.ask("FUNCTION", "FLUSH")
        assert set(await world.put(*MANY)) <= {"added", "updated"}
        assert f"freshet_{library()[0]}" in str(member.ask("FUNCTION", "LIST"))


async def test_closing_leaves_no_connection_open(cluster: LocalCluster) -> None:
    def connections() -> set[tuple[int, str]]:
        lists = [(each.port, each.client.client_list(_type="normal")) for each in cluster.primaries]
        return {(port, one["id"]) for port, found in lists for one in found}

    before = connections()  # of earlier tests, too, that they are yet to hear the ends of
    server = Server(cluster.url)
    await asyncio.gather(*(server.execute("HGET", meta(prefix), "pages") for prefix in PREFIXES))
    assert connections() - before
    await server.close()
    while connections() - before:  # noqa: ASYNC110 - they may hear of the ends after they are asked
        await asyncio.sleep(0.01)


async def test_a_frozen_primary_fails_only_its_own_shards(world: World, cluster: LocalCluster) -> None:
    """Real time is the subject: its shards fail by the deadline, the others answer meanwhile."""
    await world.put(*MANY)
    silent_one = cluster.owner(PREFIXES[0])
    alive = [prefix for prefix in PREFIXES if cluster.owner(prefix) is not silent_one]
    with frozen(silent_one):
        calls = [([prefix], []) for prefix in PREFIXES]
        slow = asyncio.create_task(world.server.call_each("probe", calls))
        overdue = asyncio.create_task(overdue_s(asyncio.wait([slow])))
        await asyncio.sleep(0)
        others = [world.server.call("probe", [prefix], []) for prefix in alive * 20]
        assert await asyncio.gather(*others) == [[b"ready"]] * len(others)
        assert not slow.done()
        replies = dict(zip(PREFIXES, await slow, strict=True))
        assert await overdue < 1
    assert all(replies[prefix] == [b"ready"] for prefix in alive)
    silent = [reply for prefix, reply in replies.items() if prefix not in alive]
    assert silent
    assert all(isinstance(reply, StoreUnavailable) for reply in silent)


async def test_nobody_waits_again_for_a_primary_that_is_frozen(world: World, cluster: LocalCluster) -> None:
    """Real time is the subject: the deadline is waited for once or twice, not by every request."""
    await world.put(*hosts_of(60))
    silent_one = next(member for member in cluster.primaries if member is not cluster.owner(CONTROL))
    its = [url for url in hosts_of(60) if cluster.owner(world.prefix_of(url)) is silent_one]
    assert its
    with frozen(silent_one):
        found, took = [], []
        while len(found) < 60 - len(its):
            world.advance(0.2)  # so that every shard is looked at each time
            started = time.monotonic()
            found += await world.next()
            took.append(time.monotonic() - started)
        assert sum(seconds > 0.9 * DEADLINE_S for seconds in took) <= 2
        assert median(took) < DEADLINE_S / 4
        world.advance(0.2)
        with pytest.raises(StoreUnavailable):
            await world.next()
    async with asyncio.timeout(60):
        while len(found) < 60:
            world.advance(0.2)
            try:
                found += await world.next()
            except StoreUnavailable:
                await asyncio.sleep(0.05)
    assert {lease.url for lease in found} == set(hosts_of(60))


async def test_a_large_request_that_comes_again_while_a_part_is_under_way_gets_no_less(
    world: World, cluster: LocalCluster
) -> None:
    """Its first try has not yet got all it will."""
    one, other = (World(cluster.url, world.clock, lookahead_s=1.0) for _ in range(2))
    await one.bandwidth(1e6)
    most = one.frontier._dispatcher._most
    await one.put(*hosts_of(2 * most))
    fill = one.frontier._pages._spread._fill
    reached, released = asyncio.Event(), asyncio.Event()

    calls = 0

    async def fill_in_turn(filled: Filling, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            reached.set()
            await released.wait()
        await fill(filled, *arguments)

    one.frontier._pages._spread._fill = fill_in_turn  # type: ignore[method-assign]
    first = asyncio.create_task(one.next(2 * most, "again"))
    await asyncio.wait_for(reached.wait(), 10)
    assert await other.next(2 * most, "again") == []
    released.set()
    assert len(leases := await first) == 2 * most
    assert await other.next(2 * most, "again") == leases
    await one.close()
    await other.close()


async def test_a_node_without_shards_is_not_believed(cluster: LocalCluster, tmp_path: Path) -> None:
    """It has left the cluster, or is yet to join."""
    with LocalCluster(tmp_path, primaries=0) as strangers:
        stranger = strangers.add()
        server = Server(f"redis+cluster://{stranger.address},{cluster.primaries[0].address}", connections=4)
        assert await server.call("probe", [PREFIXES[0]], []) == [b"ready"]
        await server.close()


async def test_workers_learn_and_sweep_on_a_cluster(world: World, cluster: LocalCluster) -> None:
    await world.put(*MANY)
    for _ in range(3):
        world.advance(3600)
        outcomes = [outcome(url=url, fetched_at=world.clock.now_at) for url in MANY]
        assert set(await world.frontier.record_outcomes(outcomes)) == {"accepted"}
    assert await world.frontier.observations.backlog() == 2 * len(MANY)  # a first crawl shows no change
    learner, repricer = _worker(world)
    assert await learner.learn_all(world.clock.now_at) == len(MANY)
    assert await world.frontier.observations.backlog() == 0
    assert await repricer.sweep_all(world.clock.now_at) == len(MANY)
    status = await gather_status(world.frontier)
    assert status["pages"] == len(MANY)
    assert status["repriced_lag_s"] == 0
    assert status["expected_freshness"] > 0
    await audit(cluster.url, SHARDS)


def _worker(world: World) -> tuple[Learner, Repricer]:
    arguments = (world.server, world.settings, world.clock)
    return Learner(*arguments), Repricer(*arguments)


async def test_a_worker_goes_on_with_the_shards_it_can_reach(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        world = World(cluster.url, ManualClock())
        await world.put(*MANY)
        victim = next(m for m in map(cluster.owner, PREFIXES) if m is not cluster.owner(CONTROL))
        lost = {shard for shard, prefix in enumerate(PREFIXES) if cluster.owner(prefix) is victim}
        worker = Ownership(world.server, world.clock, SHARDS)
        learner, repricer = _worker(world)
        round_of = partial(_round, worker, repricer, learner, world.frontier.control, asyncio.Event())
        assert await worker.renew() == set(range(SHARDS))
        victim.kill()
        await round_of()
        assert worker.owned == set(range(SHARDS)) - lost
        swept = [status.priced_at for status in await world.frontier.shards.status(partly=True)]
        assert {shard for shard, priced_at in enumerate(swept) if priced_at is None} == lost
        victim.start()
        until(cluster.is_whole)
        await round_of()
        assert worker.owned == set(range(SHARDS))
        assert None not in [status.priced_at for status in await world.frontier.shards.status()]
        await world.close()


# --- shards that move


@contextmanager
def _movable(folder: Path, kind: str = "valkey") -> Iterator[LocalCluster]:
    """A cluster that a test may rearrange."""
    binary = shutil.which("redis-server") if kind == "redis7" else str(bundled_binary())
    if binary is None:
        pytest.skip("no redis-server on PATH")
    with LocalCluster(folder, binary=binary) as cluster:
        yield cluster


async def _signal_until(world: World, done: asyncio.Event) -> dict[str, int]:
    """Signals to every page while something else happens; how many of each were acknowledged."""
    counted = dict.fromkeys(MANY, 0)
    while not done.is_set():
        world.advance(61)  # signals without an id count once in a minute
        for url in MANY:
            counted[url] += await world.signal(url) == "accepted"
    return counted


async def _move_atomically(cluster: LocalCluster, slot: int, source: Member, target: Member) -> None:
    source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
    for member in (target, source):
        await asyncio.to_thread(until, lambda m=member: cluster.owner_of(m, slot) is target)


async def _move_key_by_key(cluster: LocalCluster, slot: int, source: Member, target: Member) -> None:
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 3):
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        await asyncio.sleep(0.005)  # the calls of the shard meet the half-moved slot
    for member in (target, source, *cluster.primaries):
        member.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)


@pytest.mark.parametrize(
    ("kind", "move"),
    [("valkey", _move_atomically), ("valkey", _move_key_by_key), ("redis7", _move_key_by_key)],
)
async def test_a_shard_moves_with_its_slot_while_calls_run(tmp_path: Path, kind: str, move: Move) -> None:
    with _movable(tmp_path, kind) as cluster:
        world = World(cluster.url, ManualClock())
        await world.put(*MANY)
        await world.bandwidth(1000.0)
        done = asyncio.Event()
        signals = asyncio.create_task(_signal_until(world, done))
        for key in (*PREFIXES, CONTROL):
            source = cluster.owner(key)
            target = cluster.primaries[(cluster.primaries.index(source) + 1) % 3]
            await move(cluster, cluster.slot(key), source, target)
            assert cluster.owner(key) is target
        done.set()
        counted = await signals
        assert min(counted.values()) > 0
        for url, count in counted.items():
            assert (await world.record(url)).signals == count
        assert (await audit(cluster.url, SHARDS))["waiting"] == len(MANY)
        assert (await world.frontier.control.bandwidth()).crawls_per_second == 1000.0
        await world.close()


async def test_a_shard_on_the_move_waits_and_is_not_torn(tmp_path: Path) -> None:
    """Real time is the subject: a slot that moves key by key for longer than the deadline is unavailable."""
    with _movable(tmp_path) as cluster:
        world = World(cluster.url, ManualClock())
        await world.put(*MANY)
        slot, source = cluster.slot(PREFIXES[0]), cluster.owner(PREFIXES[0])
        target = next(member for member in cluster.primaries if member is not source)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        calls = [([prefix], []) for prefix in PREFIXES]
        moving, *others = await world.server.call_each("probe", calls)
        assert others == [[b"ready"]] * (SHARDS - 1)
        assert isinstance(moving, AskError)
        assert target.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        source.ask("CLUSTER", "SETSLOT", slot, "STABLE")
        assert set(await world.put(*MANY)) == {"updated"}
        await audit(cluster.url, SHARDS)
        await world.close()


async def test_a_primary_added_later_gets_shards_and_the_library(tmp_path: Path) -> None:
    with _movable(tmp_path) as cluster:
        world = World(cluster.url, ManualClock())
        await world.put(*MANY)
        newcomer = cluster.add()
        cluster.meet()
        source = cluster.owner(PREFIXES[1])
        await _move_atomically(cluster, cluster.slot(PREFIXES[1]), source, newcomer)
        assert set(await world.put(*MANY)) == {"updated"}
        await world.frontier.ready()
        assert newcomer.ask("EXISTS", meta(PREFIXES[1]))
        await audit(cluster.url, SHARDS)
        await world.close()


# --- primaries that die


async def test_a_promoted_replica_serves_what_was_acknowledged(tmp_path: Path) -> None:
    """Real time is the subject: the others serve on, and the shard comes back by itself."""
    with LocalCluster(tmp_path, replicas=True, node_timeout_ms=1500) as cluster:
        world = World(cluster.url, ManualClock())
        await world.put(*MANY)
        victim = cluster.owner(PREFIXES[0])
        alive = [prefix for prefix in PREFIXES if cluster.owner(prefix) is not victim]
        until(lambda: _is_caught_up(victim))
        victim.kill()
        with pytest.raises(StoreUnavailable):
            await world.server.call("probe", [PREFIXES[0]], [])
        assert alive
        started = time.monotonic()
        while not await _serves(world, PREFIXES[0]):
            for prefix in alive:
                assert await world.server.call("probe", [prefix], []) == [b"ready"]
            assert time.monotonic() - started < 30
            await asyncio.sleep(0.05)
        assert set(await world.put(*MANY)) == {"updated"}
        assert (await audit(cluster.url.replace(f"{victim.address},", ""), SHARDS))["waiting"] == len(MANY)
        await world.close()


def _is_caught_up(primary: Member) -> bool:
    seen = primary.ask("INFO", "replication")
    return bool(seen["slave0"]["offset"] == seen["master_repl_offset"])


async def _serves(world: World, prefix: str) -> bool:
    try:
        await world.server.call("probe", [prefix], [])
    except StoreUnavailable:
        return False
    return True


# --- from one server to many


async def test_a_single_server_grows_into_a_cluster(tmp_path: Path) -> None:
    """As `deploy/README.md` has it: the same data in cluster mode, then more primaries and slots moved."""
    with EmbeddedServer(tmp_path / "single") as single:
        world = World(single.url, ManualClock())
        await world.put(*MANY)
        assert await world.signal(MANY[0]) == "accepted"
        await world.close()
    (tmp_path / "cluster/0").mkdir(parents=True)
    shutil.copytree(tmp_path / "single/appendonlydir", tmp_path / "cluster/0/appendonlydir")
    with LocalCluster(tmp_path / "cluster", primaries=1) as cluster:
        world = World(cluster.url, ManualClock())
        assert (await world.record(MANY[0])).signals == 1
        for _ in range(2):
            cluster.add()
        cluster.meet()
        for prefix, home in zip(PREFIXES[1:], cluster.members * 2, strict=False):
            if cluster.owner(prefix) is not home:
                await _move_atomically(cluster, cluster.slot(prefix), cluster.owner(prefix), home)
        assert {cluster.owner(prefix) for prefix in PREFIXES} == set(cluster.members)
        assert set(await world.put(*MANY)) == {"updated"}
        assert (await audit(cluster.url, SHARDS))["waiting"] == len(MANY)
        await world.close()
