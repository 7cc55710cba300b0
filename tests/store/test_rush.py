"""Where very many pages are handed out, shards take turns in being looked at."""

from __future__ import annotations

from service.address import parse_url, shard_of
from service.domain import Lease
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import World, hosts_of

RUSH_SHARDS = 16
PAGES = hosts_of(2880)
CALL = 64


async def due_world(make_world: MakeWorld) -> World:
    """Many pages that were crawled at different times, all due."""
    world = await make_world(bandwidth=1e6, lookahead_s=1.0, shards=RUSH_SHARDS)
    await world.put_due(*PAGES)
    return world


async def hurried(make_world: MakeWorld) -> World:
    """So many were handed out just now that it is a rush."""
    world = await due_world(make_world)
    for _ in range(11):
        await call(world)
    world.advance(0.1)
    await call(world)  # the first look of a rush is at all shards
    await call(world)
    await call(world)
    return world


async def call(world: World, count: int = CALL, *, after_s: float = 0.001) -> list[Lease]:
    """Some pages, a moment later."""
    world.advance(after_s)
    leases = await world.next(count)
    assert len(leases) == count
    return leases


def shards_of(leases: list[Lease]) -> set[int]:
    return {shard_of(parse_url(lease.url).host_id, RUSH_SHARDS) for lease in leases}


async def test_in_a_rush_shards_take_turns(make_world: MakeWorld) -> None:
    world = await hurried(make_world)
    calls = [shards_of(await call(world)) for _ in range(12)]
    assert all(len(shards) <= RUSH_SHARDS / 2 for shards in calls)
    assert set.union(*calls) == set(range(RUSH_SHARDS))


async def test_the_longer_a_rush_lasts_the_fewer_shards_a_call_changes(make_world: MakeWorld) -> None:
    world = await due_world(make_world)
    if world.server.is_cluster:
        return  # where each call is one of a shard
    for _ in range(100):
        await call(world, 16, after_s=0.002)
    changed = [shards_of(await call(world, 16, after_s=0.002)) for _ in range(32)]
    assert max(map(len, changed[8:])) <= 2  # the first look of its tenth of a second was at all of them
    assert len(set.union(*changed[8:])) >= 7


async def calls_of_functions(world: World) -> int:
    """Made since the servers started."""
    stats = await world.server.everywhere("INFO", "commandstats")
    return sum(int(stat["cmdstat_fcall"]["calls"]) for stat in stats)


async def test_in_a_rush_no_shard_of_a_cluster_is_looked_at_between_its_turns(make_world: MakeWorld) -> None:
    world = await due_world(make_world)
    if not world.server.is_cluster:
        return  # counted on a cluster
    for _ in range(20):
        await call(world, 16, after_s=0.0025)
    before = await calls_of_functions(world)
    asked = [shards_of(await call(world, 16, after_s=0.0025)) for _ in range(60)]
    assert [len(shards) for shards in asked] == [1] * 60
    assert set.union(*asked[:16]) == set(range(RUSH_SHARDS))
    assert await calls_of_functions(world) - before <= 3 * 60


async def test_in_a_rush_a_page_that_is_new_goes_first(make_world: MakeWorld) -> None:
    world = await hurried(make_world)
    for number in range(RUSH_SHARDS):
        url = f"https://new{number}.example/"
        await world.put(url)
        if world.server.is_cluster:
            world.advance(0.11)  # a process asks the shards ten times a second
        assert url in [lease.url for lease in await call(world)]


async def test_in_a_rush_every_page_is_handed_out_once(make_world: MakeWorld) -> None:
    world = await due_world(make_world)
    served = [lease.url for _ in range(len(PAGES) // CALL) for lease in await call(world)]
    assert sorted(served) == sorted(PAGES)
    assert await world.next() == []
    await audit(world.settings.redis_url, RUSH_SHARDS)
