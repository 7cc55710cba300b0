"""Many callers at once, in several processes: one lease per page, no slot too many."""

from __future__ import annotations

import asyncio
from collections import Counter

from service.domain import Lease
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.pace import Pace
from tests.store.world import SHARDS, World, hosts_of, outcome, urls_of

CALLERS = 100


async def processes(make_world: MakeWorld, count: int = 4, **settings: float) -> list[World]:
    """Several processes over one store and one clock."""
    bandwidth = settings.pop("bandwidth", 1000.0)
    first = await make_world(bandwidth=bandwidth, **settings)
    rest = [await make_world(bandwidth=None, **settings) for _ in range(count - 1)]
    return [first, *rest]


async def patient_lease(world: World) -> Lease:
    """Ask until there is a page; time moves on for everybody while nobody gets one."""
    while not (leases := await world.next()):
        world.advance(0.01)
    return leases[0]


async def test_a_hundred_callers_get_a_hundred_pages(make_world: MakeWorld) -> None:
    worlds = await processes(make_world, bandwidth=1000.0)
    await worlds[0].put(*hosts_of(CALLERS // 2), *urls_of(CALLERS // 2))
    leases = await asyncio.gather(*(patient_lease(worlds[at % 4]) for at in range(CALLERS)))
    assert len({lease.url for lease in leases}) == CALLERS
    assert len({lease.lease for lease in leases}) == CALLERS
    assert len({lease.not_before for lease in leases}) == CALLERS
    assert (await audit(worlds[0].settings.redis_url, SHARDS))["leased"] == CALLERS


async def test_a_hundred_callers_share_one_slot(make_world: MakeWorld) -> None:
    worlds = await processes(make_world, bandwidth=1.0)
    await worlds[0].put(*hosts_of(CALLERS))
    answers = await asyncio.gather(*(worlds[at % 4].next() for at in range(CALLERS)))
    assert sorted(map(len, answers)) == [0] * (CALLERS - 1) + [1]
    assert (await audit(worlds[0].settings.redis_url, SHARDS))["leased"] == 1


async def test_a_hundred_callers_in_one_process_share_the_lookahead(make_world: MakeWorld) -> None:
    """First come, first served: those within the lookahead get a page each."""
    (world,) = await processes(make_world, 1, bandwidth=20.0, lookahead_s=1.0)
    await world.put(*hosts_of(CALLERS))
    answers = await asyncio.gather(*(world.next() for _ in range(CALLERS)))
    leases = [lease for answer in answers for lease in answer]
    assert len(leases) <= 21 + 1
    assert len({lease.url for lease in leases}) == len(leases)
    pace = Pace()
    pace.turn(world.clock.now_at, 20)
    for lease in leases:
        pace.grant(lease.not_before)
    assert pace.worst_excess() <= 1e-3


async def test_a_hundred_callers_are_polite_to_one_host(make_world: MakeWorld) -> None:
    worlds = await processes(make_world, bandwidth=1000.0, min_delay_s=1.0)
    await worlds[0].put(*urls_of(CALLERS))
    answers = await asyncio.gather(*(worlds[at % 4].next() for at in range(CALLERS)))
    assert sum(map(len, answers)) == 1


async def test_slots_hold_under_callers_of_many_processes_while_the_dial_turns(
    make_world: MakeWorld,
) -> None:
    worlds = await processes(make_world, bandwidth=50.0)
    await worlds[0].put(*hosts_of(30))
    pace = Pace()
    pace.turn(worlds[0].clock.now_at, 50)

    async def call(world: World) -> None:
        for lease in await world.next(3):
            pace.grant(lease.not_before)
            await world.report(lease)

    for at in range(60):
        await asyncio.gather(*(call(world) for world in worlds * 3))
        if at % 10 == 5:
            rate = [400.0, 0.0, 7.0][at // 10 % 3]
            await asyncio.gather(*(world.bandwidth(rate) for world in worlds))
            pace.turn(worlds[0].clock.now_at, rate)
        worlds[0].advance(0.016)
    assert pace.granted > 30
    assert pace.worst_excess() <= 2e-3
    await audit(worlds[0].settings.redis_url, SHARDS)


async def test_one_outcome_sent_a_hundred_times_at_once_counts_once(make_world: MakeWorld) -> None:
    worlds = await processes(make_world)
    await worlds[0].put(*hosts_of(3))
    lease = await worlds[0].lease()
    words = await asyncio.gather(*(worlds[at % 4].report(lease) for at in range(CALLERS)))
    assert Counter(words) == {"accepted": 1, "duplicate": CALLERS - 1}


async def test_of_a_hundred_different_outcomes_one_is_taken(make_world: MakeWorld) -> None:
    worlds = await processes(make_world)
    await worlds[0].put(*hosts_of(3))
    lease = await worlds[0].lease()
    words = await asyncio.gather(
        *(worlds[at % 4].report(lease, "ok", changed=bool(at % 2)) for at in range(CALLERS))
    )
    assert Counter(words) == {"accepted": 1, "duplicate": 49, "conflict": 50}


async def test_one_signal_sent_a_hundred_times_at_once_counts_once(make_world: MakeWorld) -> None:
    worlds = await processes(make_world)
    await worlds[0].put("https://one.example/")
    words = await asyncio.gather(
        *(worlds[at % 4].signal("https://one.example/", id="a") for at in range(CALLERS))
    )
    assert Counter(words) == {"accepted": 1, "duplicate": CALLERS - 1}
    assert (await worlds[0].record("https://one.example/")).signals == 1


async def test_one_page_added_a_hundred_times_at_once_is_one_page(make_world: MakeWorld) -> None:
    """Nothing is changed by a repeat, so none has to give way to another."""
    worlds = await processes(make_world)
    words = await asyncio.gather(*(worlds[at % 4].put("https://one.example/") for at in range(CALLERS)))
    assert (await audit(worlds[0].settings.redis_url, SHARDS))["waiting"] == 1
    assert Counter(word for (word,) in words) == {"added": 1, "updated": CALLERS - 1}


async def test_one_lease_released_a_hundred_times_at_once_is_released_once(
    make_world: MakeWorld,
) -> None:
    worlds = await processes(make_world)
    await worlds[0].put(*hosts_of(3))
    lease = await worlds[0].lease()
    words = await asyncio.gather(*(worlds[at % 4].release(lease) for at in range(CALLERS)))
    assert Counter(words) == {"released": 1, "stale": CALLERS - 1}
    await audit(worlds[0].settings.redis_url, SHARDS)


async def test_of_a_hundred_operators_with_one_version_one_turns_the_dial(
    make_world: MakeWorld,
) -> None:
    worlds = await processes(make_world)
    version = (await worlds[0].frontier.control.bandwidth()).version
    answers = await asyncio.gather(
        *(worlds[at % 4].frontier.set_bandwidth(at + 1.0, version) for at in range(CALLERS)),
        return_exceptions=True,
    )
    taken = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(taken) == 1
    assert await worlds[0].frontier.control.bandwidth() == taken[0]


async def test_the_same_request_id_in_two_processes_gets_the_same_leases(
    make_world: MakeWorld,
) -> None:
    worlds = await processes(make_world, lookahead_s=1.0)
    await worlds[0].put(*hosts_of(20))
    answers = await asyncio.gather(*(world.next(2, "same") for world in worlds))
    assert all(answer == answers[0] for answer in answers)


async def test_a_fleet_with_lost_crawlers_loses_no_page(make_world: MakeWorld) -> None:
    """A third of the leases are never answered, a third are answered late; all pages are served again."""
    worlds = await processes(make_world, bandwidth=1000.0, lease_s=5.0)
    await worlds[0].put(*hosts_of(20), *urls_of(80))
    served: Counter[str] = Counter()
    late: list[Lease] = []

    async def crawl(world: World, at: int) -> None:
        for lease in await world.next():
            served[lease.url] += 1
            if at % 3 == 1:
                late.append(lease)
            elif at % 3 == 2:
                await world.report(lease, "ok" if at % 2 else "failed")

    for _ in range(12):
        for step in range(10):
            await asyncio.gather(*(crawl(worlds[at % 4], at + step) for at in range(24)))
            worlds[0].advance(0.1)
        found = [outcome(lease.lease) for lease in late]
        late.clear()
        assert set(await worlds[0].frontier.record_outcomes(found)) <= {"accepted", "stale"}
        worlds[0].advance(5)
    assert len(served) == 100
    await audit(worlds[0].settings.redis_url, SHARDS)
