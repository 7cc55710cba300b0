"""Many pages asked for while few or none are due: the nearest are served, some of them ahead of who asks."""

from __future__ import annotations

import pytest

from service.domain import Policy
from service.store.keys import shard_prefixes
from service.store.rows import lease_from
from service.waiting import Leases
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import World, hosts_of, outcome
from workers.reprice import Repricer

PAGES = hosts_of(1500)
DEAR = 40_000.0  # a price that a page of this importance and rate reaches hours after its crawl
ONE = [("", 1, False)]
AHEAD = 40
MOST_NEAR = 32  # leased ahead by a call where they are not due


async def not_due(make_world: MakeWorld, pages: list[str] = PAGES, **settings: float) -> World:
    """Pages crawled within the last seconds, none of which is due for hours."""
    world = await make_world(bandwidth=1e6, lookahead_s=1.0, **settings)
    await world.put(*pages, change_rate_per_day=1.0)
    now_at = world.clock.now_at
    crawls = [outcome(url=url, fetched_at=now_at - at * 701 % 1000) for at, url in enumerate(pages)]
    assert set(await world.frontier.record_outcomes(crawls)) == {"accepted"}
    await world.frontier.control.open_price(DEAR, Policy().value_name)
    await Repricer(world.server, world.settings, world.clock).sweep_all(now_at)
    due = (await world.state(pages[0])).due_score
    assert due is not None
    assert due > (now_at + 3600) * 1000
    return world


async def hurry(world: World) -> None:
    """More looks within the last tenth of a second than there are while few ask."""
    for _ in range(8):
        assert len(await world.next(16)) == 16
        world.advance(0.005)
    world.advance(0.1)


async def serve_ahead(world: World) -> tuple[Leases, Leases]:
    (answer,), spare, _ = await world.frontier._serve(ONE, AHEAD)
    return answer, spare


async def test_while_few_ask_nothing_is_leased_ahead(make_world: MakeWorld) -> None:
    world = await not_due(make_world)
    answer, spare = await serve_ahead(world)
    assert (len(answer), spare) == (1, [])


async def test_while_many_ask_some_of_the_nearest_are_leased_ahead(make_world: MakeWorld) -> None:
    world = await not_due(make_world)
    if world.server.is_cluster:
        return  # where only plenty is leased ahead
    await hurry(world)
    answer, spare = await serve_ahead(world)
    assert len(answer) == 1
    assert len(spare) == MOST_NEAR
    await audit(world.settings.redis_url, world.settings.shards)


@pytest.mark.parametrize("many", [False, True])
async def test_the_nearest_go_first(make_world: MakeWorld, many: bool) -> None:
    """Whether or not looks take more than is asked for; all of them are alike but for their last crawl."""
    world = await not_due(make_world)
    if world.server.is_cluster:
        return  # where shards are compared by what their pages are worth
    if many:
        await hurry(world)
    before = {url: (await world.state(url)).due_score for url in PAGES}
    waiting = sorted(due for due in before.values() if due is not None)
    served = []
    for _ in range(4):
        served += [before[lease.url] for lease in await world.next(16)]
        world.advance(0.001)
    assert sorted(due for due in served if due is not None) == waiting[: len(served)]


async def test_the_last_pages_are_left_to_who_asks(make_world: MakeWorld) -> None:
    few = PAGES[:150]
    world = await not_due(make_world, few)
    for _ in range(8):
        assert len(await world.next(16)) == 16
        world.advance(0.005)
    world.advance(0.1)
    answer, spare = await serve_ahead(world)
    assert (len(answer), spare) == (1, [])
    assert len(await world.next(60)) == len(few) - 8 * 16 - 1


async def test_every_page_is_handed_out_once(make_world: MakeWorld) -> None:
    world = await not_due(make_world, min_delay_s=30.0)
    served: list[str] = []
    while True:
        (answer,), spare, _ = await world.frontier._serve([("", 16, False)], AHEAD)
        if not answer:
            break
        served += [lease_from(row).url for row in (*answer, *spare)]
        world.advance(0.004)
    assert sorted(served) == sorted(PAGES)
    await audit(world.settings.redis_url, world.settings.shards)


async def test_leases_that_run_out_come_back_in_time_however_few_the_shards(make_world: MakeWorld) -> None:
    """A look that finds many pages to spare makes looks rare, and the clock's work is done by looks."""
    world = await not_due(make_world, hosts_of(6000), shards=1, lease_s=0.5, min_delay_s=1.0)
    (prefix,) = shard_prefixes(1)
    await hurry(world)
    for _ in range(350):
        await world.frontier._serve(ONE, 30)
        world.advance(0.01)
    late_ms = (world.clock.now_at - 1) * 1000
    assert await world.server.execute("ZCOUNT", f"{prefix}:leases", "-inf", late_ms) == 0


async def test_a_host_whose_pages_are_worth_most_is_not_passed_over_for_what_others_have_to_spare(
    make_world: MakeWorld,
) -> None:
    """It needs no rest, and each look finds one of its pages that are not due."""
    world = await make_world(bandwidth=1e6, shards=1)
    big, small = [f"https://big.example/{at}" for at in range(800)], hosts_of(800)
    await world.put(*big, *small, change_rate_per_day=1.0)
    now_at = world.clock.now_at
    crawls = [outcome(url=url, fetched_at=now_at - 12 * 3600 + at / 10) for at, url in enumerate(big)]
    crawls += [outcome(url=url, fetched_at=now_at - 3600 + at / 10) for at, url in enumerate(small)]
    assert set(await world.frontier.record_outcomes(crawls)) == {"accepted"}
    await world.frontier.control.open_price(60_000.0, Policy().value_name)
    await Repricer(world.server, world.settings, world.clock).sweep_all(now_at)
    served = []
    for _ in range(1000):
        served += [lease.host for lease in await world.next()]
        world.advance(0.0004)
    assert served[300:800].count("big.example") >= 100
