"""Pages that are given up: after crawlers that never report, by an import, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from service.address import parse_url
from service.parked import list_parked
from service.store import keys
from service.store.records import HEAD
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of, urls

PAGE = "https://one.example/"
OTHER = "https://one.example/other"
FREE, MOST = 4, 20  # leases that run out in a row: a page comes back at once, and is given up


async def expire(world: World, times: int) -> None:
    """So many crawlers take the page and are not heard of again."""
    for _ in range(times):
        assert (await world.lease()).url == PAGE
        world.advance(61)


async def give_up(world: World, *pages: str) -> list[str]:
    return await world.frontier.park([parse_url(url) for url in pages], parks=True)


async def take_back(world: World, *pages: str) -> list[str]:
    return await world.frontier.park([parse_url(url) for url in pages], parks=False)


async def listings(world: World) -> AsyncIterator[list[str]]:
    """The lists of pages given up, to the last one."""
    cursor: int | None = 0
    while cursor is not None:
        found = await list_parked(world.frontier, cursor)
        yield [name for name, _ in found.pages]
        cursor = found.following


async def test_a_page_whose_crawlers_vanish_comes_back_at_once_a_few_times_only(world: World) -> None:
    await world.put(PAGE, importance=9)
    await world.put(OTHER)
    await expire(world, FREE + 1)
    for hold_s in (30, 60, 120):
        other = await world.lease()
        assert other.url == OTHER
        await world.release(other)
        world.advance(hold_s - 1)
        other = await world.lease()
        assert other.url == OTHER
        await world.release(other)
        await audit(world.settings.redis_url, SHARDS)
        world.advance(1.01)
        await expire(world, 1)


@pytest.mark.parametrize("kind", ["ok", "failed", "busy"])
async def test_a_crawler_that_reports_lets_the_count_begin_anew(world: World, kind: str) -> None:
    await world.put(PAGE)
    await expire(world, FREE)
    assert await world.report(await world.lease(), kind) == "accepted"
    assert (await world.record(PAGE)).expiries == 0


async def test_a_page_no_crawler_survives_is_given_up_and_may_be_taken_back(world: World) -> None:
    await world.put(PAGE)
    await expire(world, FREE)
    for _ in range(MOST - FREE):
        assert await world.next() or await world.next()  # the first may find that a hold is over
        world.advance(61)
        await world.next()
        world.advance(3600)
    state = await world.state(PAGE)
    assert state.parked_ms is not None
    assert await world.next() == []
    assert (await audit(world.settings.redis_url, SHARDS))["parked"] == 1
    assert await take_back(world, PAGE, OTHER, "https://two.example/") == ["released", "unknown", "unknown"]
    assert await take_back(world, PAGE) == ["unmoved"]
    await audit(world.settings.redis_url, SHARDS)
    record = await world.record(PAGE)
    assert (record.gone, record.failures, record.expiries) == (0, 0, 0)
    await expire(world, FREE)
    assert (await world.lease()).url == PAGE


async def test_an_outcome_that_comes_while_its_page_is_held_for_it_is_taken(world: World) -> None:
    await world.put(PAGE)
    await expire(world, FREE)
    lease = await world.lease()
    world.advance(61)
    assert await world.next() == []
    assert (await world.state(PAGE)).held_until_ms is not None
    assert await world.report(lease) == "accepted"
    assert (await world.state(PAGE)).held_until_ms is None
    await audit(world.settings.redis_url, SHARDS)


async def test_a_page_that_was_gone_keeps_what_is_known_of_it_when_it_is_taken_back(world: World) -> None:
    await world.put(PAGE, change_rate_per_day=1.0)
    await world.crawl()
    before = await world.record(PAGE)
    for _ in range(2):
        world.advance(86400 * 30)
        await world.crawl(kind="gone")
    assert (await world.record(PAGE)).gone == 2
    assert await world.next() == []
    assert await take_back(world, PAGE) == ["released"]
    after = await world.record(PAGE)
    assert (after.crawled_at_ms, float(after.model.change_rate[0])) == (
        before.crawled_at_ms,
        float(before.model.change_rate[0]),
    )
    assert urls(await world.next()) == [PAGE]


async def test_a_page_is_given_up_wherever_it_is(world: World) -> None:
    held, leased, waiting = (f"https://{name}.example/" for name in ("held", "leased", "waiting"))
    await world.put(held, importance=3)
    await world.crawl(kind="failed")
    await world.put(leased)
    lease = await world.lease()
    await world.put(waiting)
    assert await give_up(world, held, leased, waiting, waiting) == ["parked"] * 3 + ["unmoved"]
    assert await world.report(lease) == "stale"
    assert (await audit(world.settings.redis_url, SHARDS))["parked"] == 3
    world.advance(7200)
    assert await world.next() == []
    await world.delete(held, leased, waiting)
    await audit(world.settings.redis_url, SHARDS)


async def test_a_signal_after_a_page_is_taken_back_is_not_taken_for_one_of_its_last_lease(
    world: World,
) -> None:
    await world.put(PAGE, change_rate_per_day=1.0)
    await world.crawl()
    world.advance(86400 * 30)
    lease = await world.lease()
    fetched_at = world.clock.now_at
    world.advance(61)
    await give_up(world, PAGE)
    assert await take_back(world, PAGE) == ["released"]
    assert await world.signal(PAGE) == "accepted"
    assert await world.report(lease, fetched_at=fetched_at) == "stale"
    assert (await world.record(PAGE)).signals == 1


async def test_counts_of_an_earlier_release_do_not_give_a_page_up(world: World) -> None:
    """It went on counting when crawlers reported failures."""
    await world.put(PAGE)
    await expire(world, 1)
    address, prefix = parse_url(PAGE), world.prefix_of(PAGE)
    key = keys.records(prefix, address.host_id, 0)
    (name,) = await world.server.execute("HKEYS", key)
    raw = bytearray(await world.server.execute("HGET", key, name))
    offset = HEAD.fields["expiries"][1]  # type: ignore[index]
    raw[offset] = 200
    await world.server.execute("HSET", key, name, bytes(raw))
    await expire(world, 1)
    assert (await world.lease()).url == PAGE
    assert (await world.record(PAGE)).expiries == 2


async def test_the_lists_name_every_page_given_up(make_world: MakeWorld) -> None:
    world = await make_world()
    pages = hosts_of(1500)
    await world.put(*pages, *[f"{url}kept" for url in pages])
    assert [names async for names in listings(world)] == [[]]
    assert set(await give_up(world, *pages)) == {"parked"}
    found = [names async for names in listings(world)]
    assert len(found) > SHARDS
    assert {name for names in found for name in names} == {parse_url(url).host for url in pages}
    assert (await list_parked(world.frontier, 0)).total == len(pages)


async def test_pages_taken_back_while_they_are_listed_hide_no_others(world: World) -> None:
    pages = hosts_of(900)
    await world.put(*pages)
    await give_up(world, *pages)
    seen: set[str] = set()
    async for names in listings(world):
        seen.update(names)
        await take_back(world, *[f"https://{name}/" for name in names])
    assert seen == {parse_url(url).host for url in pages}
    await audit(world.settings.redis_url, SHARDS)
