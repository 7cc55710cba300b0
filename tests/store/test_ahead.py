"""Pages leased before anybody asks for them: only from plenty, and as if nothing had been if nobody came."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from service import telemetry
from service.domain import Lease, Nothing
from service.stock import HOLD_S
from service.store.rows import lease_from
from service.waiting import Leases
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.pace import Pace
from tests.store.world import World, hosts_of, outcome, urls, urls_of

DELAY_S = 30.0
AHEAD = 20
AHEAD_S = 0.05
ONE = [("", 1, False)]


async def plenty(make_world: MakeWorld, **settings: float) -> World:
    """Far more hosts with pages that are due than will be asked for, and many asked for just now."""
    world = await make_world(bandwidth=1e6, lookahead_s=1.0, min_delay_s=DELAY_S, **settings)
    await world.put_due(*(f"https://h{at}.example/{page}" for at in range(1200) for page in range(2)))
    for _ in range(5):  # from when on shards of a cluster take turns
        assert len(await world.next(64)) == 64
    return world


async def serve_ahead(world: World, pages: int = AHEAD) -> tuple[Leases, Leases]:
    """One page for somebody, and so many for others; the rows."""
    (answer,), spare, _ = await world.frontier._serve(ONE, pages)
    return answer, spare


def read(rows: Leases) -> list[Lease]:
    return [lease_from(row) for row in rows]


def handed_out() -> float:
    (metric,) = telemetry.NEXT_PAGES.collect()
    return float(metric.samples[0].value)


async def test_where_there_is_plenty_pages_are_leased_for_who_may_come(make_world: MakeWorld) -> None:
    world = await plenty(make_world)
    answer, spare = await serve_ahead(world)
    assert len(answer) == 1
    assert len(spare) == AHEAD
    assert len({lease.host for lease in read(answer + spare)}) == AHEAD + 1
    await audit(world.settings.redis_url, world.settings.shards)


async def test_nobody_has_to_wait_for_pages_to_be_leased_for_who_may_come(make_world: MakeWorld) -> None:
    world = await plenty(make_world)
    answers, spare, _ = await world.frontier._serve([], AHEAD)
    assert (answers, len(spare)) == ([], AHEAD)


@pytest.mark.parametrize("due", [1, 10, 60])
async def test_the_last_pages_are_left_to_who_asks(make_world: MakeWorld, due: int) -> None:
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    await world.put_due(*hosts_of(due))
    answer, spare = await serve_ahead(world)
    assert (len(answer), spare) == (1, [])
    assert len(await world.next(60)) == due - 1


async def test_new_pages_are_not_leased_ahead(make_world: MakeWorld) -> None:
    """Their order is their worth, and one worth more may be put before anybody comes."""
    world = await make_world(bandwidth=1e6)
    await world.put(*hosts_of(500))
    answer, spare = await serve_ahead(world)
    assert (len(answer), spare) == (1, [])


async def test_pages_ahead_take_only_slots_that_are_free_now(make_world: MakeWorld) -> None:
    world = await plenty(make_world)
    await world.bandwidth(100.0)
    pace = Pace()
    pace.turn(world.clock.now_at, 100.0)
    world.advance(5.0)
    for _ in range(50):
        answer, spare = await serve_ahead(world)
        assert len(answer) + len(spare) <= 2  # one is free, another begins within the grace
        for lease in read(answer + spare):
            pace.grant(lease.not_before)
        world.advance(0.01)
    assert pace.granted >= 49
    assert pace.worst_excess() < 1e-3


async def test_a_host_rests_from_when_its_page_is_handed_out_at_the_latest(make_world: MakeWorld) -> None:
    world = await plenty(make_world)
    _, spare = await serve_ahead(world)
    for lease in read(spare):
        state = await world.state(lease.url)
        assert state.host_rests_until_ms == pytest.approx(
            (world.clock.now_at + HOLD_S + DELAY_S) * 1000, abs=1
        )
        assert lease.lease_expires_at == pytest.approx(world.clock.now_at + HOLD_S + 60, abs=0.001)


async def test_what_is_given_back_waits_as_if_it_had_not_been_leased(make_world: MakeWorld) -> None:
    world = await plenty(make_world)
    _, spare = await serve_ahead(world)
    await world.frontier._give_back(spare)
    await audit(world.settings.redis_url, world.settings.shards)
    world.advance(0.11)  # a process asks the shards of a cluster ten times a second
    rest = {lease.host for lease in await world.next(1000)}
    assert {lease.host for lease in read(spare)} <= rest  # each gives one page, unless it rests


async def test_a_host_that_rests_for_another_reason_goes_on_resting(make_world: MakeWorld) -> None:
    world = await plenty(make_world)
    _, spare = await serve_ahead(world)
    (first, *_) = read(spare)
    paused_until = (world.clock.now_at + 1000.0) * 1000
    await world.host(first.host, paused_until=paused_until)
    await world.frontier._give_back(spare)
    assert (await world.state(first.url)).host_rests_until_ms == pytest.approx(paused_until, abs=1)


async def test_only_pages_that_somebody_got_are_counted(make_world: MakeWorld) -> None:
    world = await plenty(make_world)
    before = handed_out()
    await serve_ahead(world)
    assert handed_out() - before == 1


async def test_after_the_last_page_one_asks_again_soon(make_world: MakeWorld) -> None:
    """Others may give theirs back long before a lease runs out."""
    world = await make_world(lookahead_s=1.0)
    await world.put(*urls_of(2))
    assert len(await world.next(2)) == 2
    assert await world.why() == Nothing("no-pages", 1.0)


class Time:
    """A monotonic clock that stands still until it is moved, or let go on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._since: float | None = None

    def go_on(self) -> None:
        self._since = monotonic()

    def monotonic(self) -> float:
        return self.now + (0.0 if self._since is None else monotonic() - self._since)


async def test_removed_pages_are_not_handed_out_from_the_stock(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    monkeypatch.setattr("service.dispatcher.time", time)
    monkeypatch.setattr("service.stock.time", time)
    world = await plenty(make_world, ahead_s=AHEAD_S)
    stock = world.frontier._dispatcher._stock
    while not len(stock):
        time.now += AHEAD_S  # however long a machine takes over so many requests
        found = await asyncio.gather(*(world.frontier.next("", 1, 0) for _ in range(32)))
        if any(isinstance(leases, Nothing) for leases in found):  # all hosts gave a page meanwhile
            world.advance(DELAY_S + 1)
    held = [lease_from(row).url for _, row in stock._held]
    time.go_on()
    await world.delete(*held)
    assert not set(held) & {url for _ in range(len(held)) for url in urls(await world.next())}


@pytest.mark.parametrize("why", ["pause", "busy"])
async def test_what_nobody_came_for_does_not_end_a_rest_that_has_another_reason(
    make_world: MakeWorld, why: str
) -> None:
    """Also where that ends sooner than the rest that the lease began."""
    world = await make_world(bandwidth=1e6, min_delay_s=DELAY_S, lease_s=300.0)
    await world.put_due(*urls_of(3))
    first = await world.lease()
    world.advance(DELAY_S + 1)
    (rows,), _, _ = await world.frontier._serve(ONE, 0)
    if why == "pause":
        await world.host("one.example", paused_until=(world.clock.now_at + 20) * 1000)
    else:
        await world.frontier.record_outcomes([outcome(first.lease, kind="busy", retry_after_s=20.0)])
    await world.frontier._give_back(rows)
    world.advance(19)
    assert (await world.why()).reason == "politeness"
    await audit(world.settings.redis_url, world.settings.shards)
