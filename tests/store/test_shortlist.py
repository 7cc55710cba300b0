"""What one look left over serves the next calls, and is never trusted blindly. The clock stands still."""

from __future__ import annotations

import redis

from service.address import parse_url
from service.settings import Settings
from service.store.scripts import library
from service.store.wire import pack
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of, outcome


def scripts_reads(settings: Settings) -> int:
    """Records and due times read since the server started, on a single server."""
    with redis.Redis.from_url(settings.redis_url) as client:
        stats = client.info("commandstats")
    return int(sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("hget", "zrange")))


async def crawled(world: World, count: int) -> list[str]:
    """Pages on hosts of their own, all crawled long ago and due, the first worth most."""
    urls = hosts_of(count)
    for at, url in enumerate(urls):
        await world.put(url, importance=float(count - at), change_rate_per_day=1.0)
    words = await world.frontier.record_outcomes([outcome(url=url) for url in urls])
    assert set(words) == {"accepted"}
    world.advance(86400 * 30)
    return urls


def pass_on(world: World) -> None:
    """One server hears of a change at once; on a cluster a process asks the shards ten times a second."""
    if world.server.is_cluster:
        world.advance(0.11)


async def test_the_second_call_looks_at_far_less(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    if world.server.is_cluster:
        return  # counted on one server
    urls = await crawled(world, 40)
    reads = [scripts_reads(world.settings)]
    for url in urls[:2]:
        assert (await world.lease()).url == url
        reads.append(scripts_reads(world.settings))
    assert reads[2] - reads[1] < (reads[1] - reads[0]) / 4


async def test_a_new_page_goes_before_what_was_left_over(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    urls = await crawled(world, 10)
    assert (await world.lease()).url == urls[0]
    await world.put("https://new.example/", importance=1e-6)
    pass_on(world)
    assert (await world.lease()).url == "https://new.example/"
    assert (await world.lease()).url == urls[1]


async def test_what_has_gone_meanwhile_is_passed_over(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    other = await make_world(bandwidth=None, lookahead_s=1.0)
    urls = await crawled(world, 10)
    assert (await world.lease()).url == urls[0]
    await world.delete(urls[1])
    await world.host("h2.example", paused_until=(world.clock.now_at + 3600) * 1000)
    await world.report((await other.lease()).lease)
    assert (await world.lease()).url == urls[4]
    served = [lease.url for lease in await world.next(5)]
    assert served == urls[5:]
    await audit(world.settings.redis_url, SHARDS)


async def test_a_page_that_a_signal_makes_worth_most_is_seen_at_once(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    await world.put(
        "https://late.example/", precision=0.9, recall=0.9, change_rate_per_day=1.0, importance=1e3
    )
    urls = await crawled(world, 10)
    await world.frontier.record_outcomes([outcome(url="https://late.example/")])
    assert (await world.lease()).url == urls[0]
    world.advance(0.001)
    assert await world.signal("https://late.example/") == "accepted"
    pass_on(world)
    assert (await world.lease()).url == "https://late.example/"


async def test_a_page_that_was_changed_meanwhile_is_leased_as_it_is_now(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    urls = await crawled(world, 10)
    assert (await world.lease()).url == urls[0]
    await world.put(urls[5], importance=4.0, change_rate_per_day=2.0)
    assert await world.signal(urls[6]) == "accepted"
    leases = []
    while len(leases) < 9:
        world.advance(0.06)  # a changed host is looked at again
        leases += await world.next(9)
    assert {lease.url: lease.signals for lease in leases} == {url: int(url == urls[6]) for url in urls[1:]}
    assert (await world.record(urls[5])).model.importance == 4.0
    assert (await world.record(urls[6])).signals == 1
    await audit(world.settings.redis_url, SHARDS)


async def test_nothing_of_an_emptied_store_is_remembered(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    urls = await crawled(world, 10)
    assert (await world.lease()).url == urls[0]
    await world.server.everywhere("FLUSHALL")
    await world.bandwidth(1e6)
    await world.put("https://new.example/")
    pass_on(world)
    assert [lease.url for lease in await world.next(10)] == ["https://new.example/"]
    await audit(world.settings.redis_url, SHARDS)


async def test_what_another_release_changed_meanwhile_is_seen(make_world: MakeWorld) -> None:
    """Two releases share a server in a change of releases; neither knows what the other remembers."""
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    if world.server.is_cluster:
        return  # each of its servers does the same
    urls = await crawled(world, 10)
    version, source = library()
    with redis.Redis.from_url(world.settings.redis_url) as client:
        client.execute_command("FUNCTION", "LOAD", "REPLACE", source.replace(version, "0ther"))
        assert (await world.lease()).url == urls[0]
        address = parse_url(urls[1])
        paused_until = (world.clock.now_at + 3600) * 1000
        args = (f"{world.clock.now_at * 1000:.3f}", address.host_id, address.host, 0, 0)
        place = world.prefix_of(urls[1])
        changes = pack({"paused_until": paused_until})
        client.execute_command("FCALL", "set_host_0ther", 1, place, *args, changes, "")
    world.advance(0.001)
    assert {lease.url for lease in await world.next(9)} == set(urls[2:])
    host = await world.frontier.read_host(address)
    assert host is not None
    assert host.paused_until == paused_until / 1000
