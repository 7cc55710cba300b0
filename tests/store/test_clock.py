"""Time as the scripts keep it: it may be stepped back outside, it never runs backwards inside."""

from __future__ import annotations

import pytest

from service.clock import ManualClock, ServerClock
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.pace import Pace
from tests.store.world import SHARDS, World, hosts_of, urls_of

PAGE = "https://one.example/"
HOUR_S = 3600.0
GRACE_S = 0.010  # a slot this near is as good as free


async def test_now_does_not_run_backwards(world: World) -> None:
    await world.put(PAGE)
    await world.lease()
    before = await world.frontier.control.now()
    world.advance(-HOUR_S)
    after = await world.frontier.control.now()
    assert after >= before - 1e-3
    await world.ask()
    world.advance(10)
    await world.ask()
    world.advance(5)
    assert await world.frontier.control.now() == pytest.approx(before + 15, abs=0.2)


async def test_a_second_step_back_is_carried_too(world: World) -> None:
    now = await world.frontier.control.now()
    for _ in range(3):
        await world.ask()
        world.advance(-HOUR_S)
        await world.ask()
        world.advance(10)
    assert await world.frontier.control.now() == pytest.approx(now + 30, abs=0.5)


async def test_a_step_back_freezes_no_lease(world: World) -> None:
    await world.put(PAGE)
    await world.lease()
    world.advance(1)
    await world.ask()
    world.advance(-HOUR_S)
    assert await world.next() == []
    world.advance(58)
    assert await world.next() == []
    world.advance(2)
    assert (await world.lease()).url == PAGE


async def test_a_step_back_opens_no_burst_and_stops_no_slot(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=10)
    await world.put(*hosts_of(5))
    pace, elapsed = Pace(), 0.0
    pace.turn(world.clock.now_at, 10)
    for at in range(600):
        for lease in await world.next():
            pace.grant(lease.not_before)
            await world.report(lease)
        world.advance(0.02)
        elapsed += 0.02
        if at == 300:
            world.advance(-HOUR_S)
    assert pace.worst_excess() <= 0.01
    assert pace.granted == pytest.approx(10 * elapsed, abs=3)


async def test_a_step_forward_opens_no_burst(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=10, lookahead_s=0.5)
    await world.put(*hosts_of(60))
    await world.lease()
    world.advance(HOUR_S)
    assert len(await world.next(60)) == 6
    assert (await world.why()).reason == "pace"


async def test_after_a_step_back_a_crawl_counts_as_now(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    first = (await world.record(PAGE)).crawled_at_ms
    world.advance(10)
    lease = await world.lease()
    world.advance(-HOUR_S)
    await world.report(lease)
    assert (await world.record(PAGE)).crawled_at_ms >= first
    await audit(world.settings.redis_url, SHARDS)


async def test_a_lease_can_be_extended_after_a_step_back(world: World) -> None:
    """The page's shard was last written ten minutes before the lease, so it saw a smaller step."""
    await world.put(PAGE)
    world.advance(600)
    lease = await world.lease()
    world.advance(-HOUR_S)
    await world.ask()
    world.advance(50)
    expires_ms = float(await world.extend(lease, 60))
    now = await world.frontier.control.now()
    assert expires_ms / 1000 - now >= 59


async def test_a_failed_page_is_held_for_its_backoff_after_a_step_back(world: World) -> None:
    await world.put(PAGE)
    world.advance(600)
    lease = await world.lease()
    world.advance(-HOUR_S)
    await world.report(lease, "failed")
    world.advance(20)
    assert await world.next() == []
    world.advance(11)
    assert len(await world.next()) == 1


async def test_a_busy_host_rests_after_a_step_back(world: World) -> None:
    await world.put(*urls_of(3))
    world.advance(600)
    lease = await world.lease()
    world.advance(-HOUR_S)
    await world.report(lease, "busy")
    world.advance(20)
    assert await world.next() == []
    world.advance(11)
    assert len(await world.next()) == 1


async def test_two_processes_with_different_clocks_share_one_time(make_world: MakeWorld) -> None:
    """Each step back of what arrives is taken up; time only goes on."""
    ahead = ManualClock(1_700_000_300.0)
    here, there = await make_world(bandwidth=1), await make_world(bandwidth=None, clock=ahead)
    await here.put(*hosts_of(5))
    instants = []
    for world in (here, there, here, there, here):
        instants.append(await world.frontier.control.now())
        await world.ask()
    assert instants == sorted(instants)


async def test_the_server_s_own_clock_drives_a_real_deployment(make_world: MakeWorld) -> None:
    world = await make_world(clock=ServerClock())
    before = await time_of(world)
    assert before <= await world.frontier.control.now() + 0.001 <= await time_of(world) + 0.002
    await world.put(PAGE)
    before = await time_of(world)
    lease = await world.lease()
    assert before <= lease.not_before + 0.001 <= await time_of(world) + 0.002 + GRACE_S


async def time_of(world: World) -> float:
    """By the server's own clock."""
    seconds, micros = await world.server.execute("TIME")
    return int(seconds) + int(micros) / 1e6
