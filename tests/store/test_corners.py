"""Corners of the store: places changed twice, clocks that differ, rests, repeats and late signals."""

from __future__ import annotations

import pytest

from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of, outcome, urls, urls_of
from workers.reprice import Repricer

PAGE = "https://one.example/"
HOST = "one.example"
HOUR_S = 3600.0


async def test_a_host_that_changes_places_twice_in_one_call_is_not_lost(make_world: MakeWorld) -> None:
    """Awake by a new page, then taking turns by an old one, then awake again by a young one."""
    world = await make_world(lookahead_s=1.0)
    old, young, new = urls_of(3)
    await world.put(old, change_rate_per_day=100.0)
    await world.frontier.record_outcomes([outcome(url=old)])
    await world.host(HOST, paused_until=world.clock.now_at * 1000 + 10_000)
    world.advance(20)
    await world.put(young, change_rate_per_day=100.0)
    await world.frontier.record_outcomes([outcome(url=young)])
    await world.put(new)
    assert urls(await world.next(2)) == [new, old]
    await audit(world.settings.redis_url, SHARDS)
    world.advance(1)
    assert urls(await world.next()) == [young]


async def test_answers_expire_also_after_a_try_that_came_to_nothing(make_world: MakeWorld) -> None:
    world = await make_world()
    for name in ("zero", "one"):
        assert await world.next(1, name) == []
        world.advance(0.2)
    await world.put(PAGE)
    assert len(await world.next(1, "two")) == 1
    (key,) = [key for key in await world.keys() if ":answers:" in key]
    assert await world.server.execute("PTTL", key) > 0


async def test_a_large_request_that_comes_again_gets_what_it_got(make_world: MakeWorld) -> None:
    """Also where more pages stand ready by then: its last part got none, and gets none."""
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    most = world.frontier._dispatcher._most
    await world.put(*hosts_of(most))
    first = await world.next(3 * most, "again")
    assert len(first) == most
    await world.put(*urls_of(most))
    assert await world.next(3 * most, "again") == first
    assert len(await world.next(3 * most, "other")) == most


async def test_a_large_request_cut_short_by_the_pace_is_no_longer_when_it_comes_again(
    make_world: MakeWorld,
) -> None:
    world = await make_world(bandwidth=100)
    most = world.frontier._dispatcher._most
    ahead_s = (most - 0.5) / 100  # slots for just one part
    world = await make_world(bandwidth=None, lookahead_s=ahead_s)
    await world.put(*hosts_of(3 * most))
    first = await world.next(2 * most, "again")
    assert len(first) == most
    world.advance(10)
    assert await world.next(2 * most, "again") == first


async def test_a_host_that_asked_for_a_long_rest_gets_it_after_a_pause(world: World) -> None:
    await world.put(*urls_of(3))
    first = await world.lease()
    world.advance(0.01)
    second = await world.lease()
    assert await world.report(first, "busy", retry_after_s=HOUR_S) == "accepted"
    assert await world.report(second, retry_after_s=1) == "accepted"
    await world.host(HOST, paused_until=world.clock.now_at * 1000 + 10_000)
    world.advance(5)
    await world.host(HOST, paused_until=0)
    world.advance(1000)
    assert await world.next() == []


async def test_a_pause_taken_back_does_not_shorten_a_rest_that_begins_ahead(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1, lookahead_s=10.0, min_delay_s=5.0)
    await world.put(*hosts_of(4))
    await world.put(*urls_of(3), importance=0.1)
    (last,) = [lease for lease in await world.next(5) if lease.host == HOST]
    assert last.not_before > world.clock.now_at + 3
    await world.host(HOST, paused_until=world.clock.now_at * 1000 + 10_000)
    await world.host(HOST, paused_until=0)
    starts = await starts_of(world, HOST)
    assert starts[0] - last.not_before >= 5.0 - 1e-3


async def starts_of(world: World, host: str) -> list[float]:
    """When pages of a host may be fetched that are leased within 20 seconds."""
    starts: list[float] = []
    for _ in range(100):
        world.advance(0.2)
        starts += [max(world.clock.now_at, le.not_before) for le in await world.next() if le.host == host]
    return starts


@pytest.mark.parametrize("kind", ["gone", "failed"])
async def test_a_crawl_without_lease_or_time_said_twice_within_seconds_counts_once(
    world: World, kind: str
) -> None:
    await world.put(PAGE)
    world.advance(9.5 - world.clock.now_at % 10)
    words: list[str] = []
    for _ in range(2):
        words += await world.frontier.record_outcomes([outcome(url=PAGE, kind=kind)])
        world.advance(1)
    assert words == ["accepted", "duplicate"]


async def test_a_shard_s_clock_is_not_turned_back_by_handing_out(world: World) -> None:
    """Nobody asked for pages while the shard heard of a signal."""
    await world.put(PAGE)
    await world.ask()
    world.advance(HOUR_S)
    await world.signal(PAGE)
    before = (await world.state(PAGE)).now_ms
    world.advance(-HOUR_S / 2)
    await world.put(*hosts_of(8))
    for _ in range(30):
        await world.next()
        world.advance(0.01)
    assert (await world.state(PAGE)).now_ms >= before


async def test_a_lease_extended_while_nobody_asks_runs_out_after_a_step_back(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    for _ in range(60):
        world.advance(59)
        assert await world.extend(lease, 60) != "stale"
    world.advance(-3000)
    assert await world.extend(lease, 60) != "stale"
    world.advance(61)
    assert len(await world.next()) == 1


@pytest.mark.parametrize("kind", ["busy", "failed"])
async def test_an_outcome_right_after_a_step_back_counts_from_the_latest_instant(
    make_world: MakeWorld, kind: str
) -> None:
    """Its shard had nothing to give for a while, though pages were asked for all the time."""
    world = await make_world(lease_s=HOUR_S)
    await world.put(PAGE)
    lease = await world.lease()
    for _ in range(10):
        world.advance(180)
        await world.ask()
    world.advance(-HOUR_S)
    assert await world.report(lease, kind) == "accepted"
    world.advance(20)
    assert await world.next() == []


async def test_a_lease_runs_out_where_the_slots_clock_alone_saw_a_step_back(world: World) -> None:
    await world.put(PAGE)
    world.advance(HOUR_S)
    await world.bandwidth(999)
    world.advance(-HOUR_S)
    await world.lease()
    world.advance(61)
    assert len(await world.next()) == 1


async def test_a_host_rests_from_its_slot_on_where_its_shard_alone_saw_a_step_back(
    make_world: MakeWorld,
) -> None:
    world = await make_world(bandwidth=1, lookahead_s=10.0, min_delay_s=5.0)
    await world.put(*hosts_of(4))
    await world.put(*urls_of(3), importance=0.1)
    world.advance(HOUR_S)
    await world.signal(urls_of(1)[0])
    world.advance(-HOUR_S)
    leases = await world.next(5)
    (last,) = [lease for lease in leases if lease.host == HOST]
    ahead_s, began = last.not_before - leases[0].not_before, world.clock.now_at
    assert ahead_s > 3
    asked_at: list[float] = []
    for _ in range(100):
        world.advance(0.2)
        asked_at += [world.clock.now_at - began for lease in await world.next() if lease.host == HOST]
    assert asked_at[0] - ahead_s >= 5.0 - 0.2


async def test_a_signal_after_a_lease_ran_out_outlives_the_late_outcome(world: World) -> None:
    await world.put(PAGE, change_rate_per_day=1.0)
    await world.crawl()
    world.advance(1000)
    lease = await world.lease()
    fetched_at = world.clock.now_at + 1
    world.advance(30)
    assert await world.signal(PAGE, id="during the lease") == "accepted"
    world.advance(31)
    await world.put("https://two.example/")
    assert urls(await world.next()) == ["https://two.example/"]  # and the lease has run out
    world.advance(1)
    assert await world.signal(PAGE, id="after it") == "accepted"
    assert await world.report(lease, fetched_at=fetched_at) == "accepted"
    assert (await world.record(PAGE)).signals == 2
    await audit(world.settings.redis_url, SHARDS)


async def test_a_signal_that_was_not_counted_leaves_its_window_open(make_world: MakeWorld) -> None:
    world = await make_world(signal_delay_s=5.0)
    await world.put(PAGE, change_rate_per_day=1.0)
    world.advance(30 - world.clock.now_at % 60)
    await world.crawl()
    world.advance(1)
    assert await world.signal(PAGE) == "stale"
    world.advance(9)
    assert await world.signal(PAGE) == "accepted"
    assert await world.signal(PAGE) == "duplicate"
    assert (await world.record(PAGE)).signals == 1


async def test_a_signal_within_its_delay_after_the_fetch_is_not_kept_by_the_outcome(
    make_world: MakeWorld,
) -> None:
    world = await make_world(signal_delay_s=5.0)
    await world.put(PAGE, change_rate_per_day=1.0)
    await world.crawl()
    world.advance(1000)
    lease = await world.lease()
    fetched_at = world.clock.now_at + 1
    world.advance(3)
    assert await world.signal(PAGE, id="two seconds after the fetch") == "accepted"
    world.advance(5)
    assert await world.signal(PAGE, id="seven seconds after it") == "accepted"
    assert await world.report(lease, fetched_at=fetched_at) == "accepted"
    assert (await world.record(PAGE)).signals == 1


@pytest.mark.parametrize("belief", [{"importance": 1e-50}, {"importance": 1e-40, "change_rate_per_day": 1e9}])
@pytest.mark.parametrize("swept", [False, True])
async def test_a_page_worth_next_to_nothing_is_no_obstacle_for_others(
    make_world: MakeWorld, belief: dict[str, float], swept: bool
) -> None:
    """Its value would be no number, and nothing is worth more or less than that."""
    world = await make_world()
    await world.put(PAGE, **belief)
    await world.put(*hosts_of(11), change_rate_per_day=5.0)
    for _ in range(12):
        world.advance(0.01)
        last = await world.crawl()
    assert last.url == PAGE
    world.advance(10 * HOUR_S)
    if swept:
        await Repricer(world.server, world.settings, world.clock).sweep_all(world.clock.now_at)
    found = []
    for _ in range(11):
        world.advance(0.01)
        found.append(await world.lease())
    assert set(urls(found)) == set(hosts_of(11))
