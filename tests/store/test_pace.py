"""Slots: granted once, evenly spaced, lost when missed; the dial in motion."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from service.errors import VersionMoved
from service.store.keys import CONTROL
from tests.store.conftest import MakeWorld
from tests.store.pace import Pace
from tests.store.world import World, hosts_of, outcome

EXACT = 1e-5  # seconds; instants are doubles of some 1.7e9 s


async def next_slot(world: World) -> float:
    """Seconds from now to the next slot, by the clock of those who wait as they are told to."""
    start = world.clock.now_at
    nothing = await world.why()
    assert nothing.reason == "pace"
    world.advance(nothing.retry_after_s)
    return (await world.lease()).not_before - start


async def test_slots_are_one_gap_apart(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=8)
    await world.put(*hosts_of(20))
    granted = []
    for _ in range(160):
        granted += [lease.not_before for lease in await world.next()]
        world.advance(0.0125)
    gaps = [b - a for a, b in pairwise(granted)]
    assert len(granted) == 16
    assert gaps == pytest.approx([0.125] * 15, abs=EXACT)


async def test_missed_slots_are_lost(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=10)
    await world.put(*hosts_of(20))
    await world.lease()
    world.advance(60)
    assert len(await world.next()) == 1
    assert (await world.why()).reason == "pace"


async def test_calls_in_a_row_count_and_price_what_each_gave(make_world: MakeWorld) -> None:
    """On a cluster the second tells what the first gave, also where it gets nothing itself."""
    world = await make_world(bandwidth=1000, lookahead_s=0.2)
    urls = hosts_of(600)
    await world.put(*urls, change_rate_per_day=1.0)
    await world.frontier.record_outcomes([outcome(url=url) for url in urls])
    world.advance(86400 * 30)
    gave = await asyncio.gather(world.next(150), world.next(150), world.next(150))
    assert [len(leases) for leases in gave] == [150, 0, 0]
    await world.frontier.close()
    assert await world.frontier.control.granted() == 150
    assert int(await world.server.execute("HGET", CONTROL, "picks")) == 150
    slots = sorted(lease.not_before for leases in gave for lease in leases)
    world.advance(slots[-1] - world.clock.now_at)
    after = await make_world(bandwidth=None)
    assert (await after.lease()).not_before == pytest.approx(slots[-1] + 0.001, abs=EXACT)


async def test_a_late_caller_gets_the_slot_it_is_in_and_the_rhythm_stays(
    make_world: MakeWorld,
) -> None:
    world = await make_world(bandwidth=1)
    await world.put(*hosts_of(5))
    first = await world.lease()
    world.advance(7.75)
    assert (await world.lease()).not_before == pytest.approx(first.not_before + 7, abs=EXACT)
    assert await next_slot(world) == pytest.approx(0.25, abs=EXACT)


async def test_a_batch_takes_the_slots_within_the_lookahead(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=10, lookahead_s=1.0)
    await world.put(*hosts_of(30))
    batch = await world.next(30)
    start = world.clock.now_at
    assert [lease.not_before - start for lease in batch] == pytest.approx(
        [at / 10 for at in range(11)], abs=EXACT
    )
    assert await next_slot(world) == pytest.approx(1.1, abs=EXACT)


async def test_a_lease_taken_ahead_runs_from_its_own_slot(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=10, lookahead_s=1.0, lease_s=5)
    await world.put(*hosts_of(30))
    for lease in await world.next(11):
        assert lease.lease_expires_at == pytest.approx(lease.not_before + 5, abs=0.002)


async def test_without_lookahead_a_batch_is_one_page(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=10)
    await world.put(*hosts_of(30))
    assert len(await world.next(30)) == 1


async def test_what_was_handed_out_is_counted_not_what_was_asked_for(make_world: MakeWorld) -> None:
    world = await make_world(lookahead_s=1.0)
    await world.put(*hosts_of(3))
    assert len(await world.next(10)) == 3
    assert await world.frontier.control.granted() == 3


async def test_nothing_is_spent_when_nothing_is_leased(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1)
    assert (await world.why()).reason == "no-pages"
    await world.put("https://one.example/")
    assert len(await world.next()) == 1


async def test_rate_zero_pauses_and_a_rate_ends_the_pause(world: World) -> None:
    await world.put(*hosts_of(3))
    await world.bandwidth(0)
    world.advance(3600)
    assert (await world.why()).reason == "paused"
    await world.bandwidth(5)
    assert len(await world.next()) == 1


async def test_a_pause_gives_no_slots_back(make_world: MakeWorld) -> None:
    """What was left of the current slot is waited for after the pause, at the new rate."""
    world = await make_world(bandwidth=1)
    await world.put(*hosts_of(3))
    await world.lease()
    world.advance(0.25)
    await world.bandwidth(0)
    world.advance(100)
    await world.bandwidth(10)
    assert await next_slot(world) == pytest.approx(0.075, abs=EXACT)


async def test_what_a_batch_took_ahead_is_paid_for_at_the_new_rate(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=10, lookahead_s=1.0)
    await world.put(*hosts_of(30))
    assert len(await world.next(30)) == 11
    world.advance(0.5)
    await world.bandwidth(1)
    assert await next_slot(world) == pytest.approx(6, abs=1e-3)


@pytest.mark.parametrize("lookahead_s", [0.0, 1.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_grants_stay_within_the_integral_of_the_rate_in_every_window(
    make_world: MakeWorld, seed: int, lookahead_s: float
) -> None:
    generator = random.Random(seed)
    world = await make_world(bandwidth=None, lookahead_s=lookahead_s)
    await world.put(*hosts_of(40))
    pace = Pace()
    for _ in range(400):
        if generator.random() < 0.2:
            rate = generator.choice([0, 0.5, 1, 3, 10, 100, 1000, generator.uniform(0.1, 50)])
            await world.bandwidth(rate)
            pace.turn(world.clock.now_at, rate)
        for lease in await world.next(generator.choice([1, 1, 5])):
            pace.grant(lease.not_before)
            await world.report(lease)
        world.advance(generator.choice([0, 0.001, 0.03, 0.1, 0.7, generator.expovariate(2)]))
    assert pace.granted > 50
    assert pace.worst_excess() <= 2e-3  # crawls: 1,000/s times the precision of instants


async def test_steady_demand_is_served_at_the_rate(make_world: MakeWorld) -> None:
    """No slot is wasted on callers that ask often enough."""
    world = await make_world(bandwidth=7)
    await world.put(*hosts_of(10))
    served = 0
    for _ in range(1000):
        for lease in await world.next():
            served += 1
            await world.report(lease)
        world.advance(0.01)
    assert 69 <= served <= 71


async def test_the_version_moves_only_with_the_rate(world: World) -> None:
    before = await world.frontier.control.bandwidth()
    same = await world.frontier.set_bandwidth(1000.0, None)
    moved = await world.frontier.set_bandwidth(5.0, None)
    assert same.version == before.version
    assert moved.version == before.version + 1
    assert await world.frontier.control.bandwidth() == moved


async def test_an_old_version_changes_nothing(world: World) -> None:
    version = (await world.frontier.control.bandwidth()).version
    await world.frontier.set_bandwidth(5.0, version)
    with pytest.raises(VersionMoved):
        await world.frontier.set_bandwidth(7.0, version)
    assert (await world.frontier.control.bandwidth()).crawls_per_second == 5.0


async def test_the_first_rate_is_set_once(world: World) -> None:
    kept = await world.frontier.control.set_bandwidth(3.0, only_first=True)
    assert kept.crawls_per_second == 1000.0


async def test_repeating_a_rate_opens_no_slot(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1)
    await world.put(*hosts_of(5))
    await world.lease()
    for _ in range(5):
        await world.bandwidth(1)
    assert await next_slot(world) == pytest.approx(1, abs=EXACT)


async def test_turning_the_dial_back_and_forth_opens_no_slot(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1)
    await world.put(*hosts_of(5))
    await world.lease()
    for _ in range(10):
        await world.bandwidth(1000)
        await world.bandwidth(1)
    assert await next_slot(world) == pytest.approx(1, abs=1e-3)
