"""Readers' requests: counted once, fading, kept with their page; and the rate they stand for."""

from __future__ import annotations

import asyncio
import math
import struct

import pytest

from service.store import keys
from service.store.records import request_rate_per_day
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, _address, colliding, hosts_of, urls_of

PAGE = "https://one.example/"
WEEK_S = 604800.0
NOW_MS = 1_700_000_000_000.0
DAY_S = 86400.0


async def kept(world: World, url: str = PAGE) -> tuple[float, float, float]:
    """(discounted count, first, updated) of a page."""
    raw = await world.requests_of(url)
    assert raw is not None
    return struct.unpack("<ddd", raw)


async def is_dirty(world: World, url: str = PAGE) -> bool:
    key = keys.dirty(world.prefix_of(url))
    return bool(await world.server.execute("SISMEMBER", key, _address(url).host_id))


async def test_requests_are_counted_and_the_host_is_looked_at_again(world: World) -> None:
    await world.put(PAGE)
    assert not await is_dirty(world)
    assert await world.request((PAGE, 5), id="a") == ["accepted"]
    now_ms = world.clock.now_at * 1000
    assert await kept(world) == (5.0, now_ms, now_ms)
    assert await is_dirty(world)
    await audit(world.settings.redis_url, SHARDS)


async def test_old_requests_weigh_half_after_the_half_life(make_world: MakeWorld) -> None:
    world = await make_world(requests_half_life_s=3600)
    await world.put(PAGE)
    await world.request((PAGE, 8), id="a")
    first_ms = world.clock.now_at * 1000
    world.advance(3600)
    await world.request((PAGE, 1), id="b")
    world.advance(7200)
    await world.request((PAGE, 0), id="c")
    count, first_at, updated_at = await kept(world)
    assert count == pytest.approx((8 / 2 + 1) / 4)
    assert (first_at, updated_at) == (first_ms, first_ms + 3 * 3_600_000)


async def test_zero_requests_are_an_observation_too(world: World) -> None:
    await world.put(PAGE)
    assert await world.request((PAGE, 0), id="a") == ["accepted"]
    assert (await kept(world))[0] == 0


@pytest.mark.parametrize("later_s", [0, 599, 600])
async def test_a_batch_counts_once(world: World, later_s: float) -> None:
    await world.put(PAGE)
    assert await world.request((PAGE, 5), id="a") == ["accepted"]
    world.advance(later_s)
    assert await world.request((PAGE, 5), id="a") == ["duplicate"]
    assert (await kept(world))[0] == 5


async def test_a_batch_counts_again_after_twenty_minutes(world: World) -> None:
    await world.put(PAGE)
    await world.request((PAGE, 5), id="a")
    world.advance(1200)
    assert await world.request((PAGE, 5), id="a") == ["accepted"]


async def test_a_batch_counts_once_among_a_hundred_callers(make_world: MakeWorld) -> None:
    worlds = [await make_world(bandwidth=None) for _ in range(4)]
    await worlds[0].put(*hosts_of(8))
    batch = [(url, 2) for url in hosts_of(8)]
    answers = await asyncio.gather(*(worlds[at % 4].request(*batch, id="a") for at in range(100)))
    words = [word for answer in answers for word in answer]
    assert words.count("accepted") == 8
    for url in hosts_of(8):
        assert (await kept(worlds[0], url))[0] == 2


async def test_a_batch_of_which_one_shard_was_counted_is_completed_by_the_repeat(world: World) -> None:
    """A sender whose request was cut off sends it again."""
    urls = hosts_of(20)
    await world.put(*urls)
    shard = world.prefix_of(urls[0])
    reached = [url for url in urls if world.prefix_of(url) == shard]
    await world.request(*((url, 1) for url in reached), id="a")
    words = await world.request(*((url, 1) for url in urls), id="a")
    assert words == ["duplicate" if url in reached else "accepted" for url in urls]
    assert [(await kept(world, url))[0] for url in urls] == [1.0] * 20


async def test_a_page_named_twice_in_one_batch_gets_both_counts(world: World) -> None:
    await world.put(PAGE)
    assert await world.request((PAGE, 2), (PAGE, 3), id="a") == ["accepted"] * 2
    assert (await kept(world))[0] == 5


async def test_the_sum_is_clipped(world: World) -> None:
    await world.put(PAGE)
    key = keys.requests(world.prefix_of(PAGE), _address(PAGE).host_id, 0)
    now_ms = world.clock.now_at * 1000
    almost = struct.pack("<ddd", 1e15 - 1, now_ms, now_ms)
    await world.server.execute("HSET", key, _address(PAGE).page_id, almost)
    await world.request((PAGE, 10**9), id="a")
    assert (await kept(world))[0] == 1e15


async def test_unknown_pages_leave_no_trace_and_the_batch_counts_when_they_are_known(world: World) -> None:
    await world.put("https://two.example/")
    before = await world.keys()
    assert await world.request((PAGE, 5), id="a") == ["unknown"]
    assert await world.request(("https://two.example/other", 5), id="b") == ["unknown"]
    assert {key for key in await world.keys() if not key.endswith(":meta")} <= before
    await world.put(PAGE)
    assert await world.request((PAGE, 5), id="a") == ["accepted"]


async def test_a_removed_page_takes_its_requests_with_it(world: World) -> None:
    await world.put(*urls_of(2))
    await world.request(*((url, 1) for url in urls_of(2)), id="a")
    await world.delete(urls_of(2)[0])
    assert await world.requests_of(urls_of(2)[0]) is None
    assert await world.requests_of(urls_of(2)[1]) is not None
    await world.delete(urls_of(2)[1])
    assert not [key for key in await world.keys() if ":q:" in key or key.endswith(":dirty")]
    await audit(world.settings.redis_url, SHARDS)


async def test_requests_move_with_their_pages_when_a_host_grows(world: World) -> None:
    urls = urls_of(300)
    await world.put(*urls[:60])
    await world.request(*((url, at + 1) for at, url in enumerate(urls[:60])), id="a")
    await world.put(*urls[60:])
    assert [(await kept(world, url))[0] for url in urls[:60]] == [at + 1.0 for at in range(60)]
    await world.request(*((url, 100) for url in urls[:60]), id="b")
    assert [(await kept(world, url))[0] for url in urls[:60]] == [at + 101.0 for at in range(60)]
    await audit(world.settings.redis_url, SHARDS)


async def test_pages_of_one_hash_are_counted_apart(world: World) -> None:
    first, second = colliding("https://one.example/a", "https://one.example/b")
    await world.put(first, second)
    assert await world.request((second, 7), id="a") == ["accepted"]
    assert await world.requests_of(first) is None
    await world.delete(first, second)
    await audit(world.settings.redis_url, SHARDS)


async def test_requests_change_no_ranking_by_themselves(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    before = await world.state(PAGE)
    await world.request((PAGE, 1000), id="a")
    assert await world.state(PAGE) == before


def rate(count: float, age_s: float, half_life_s: float = WEEK_S, silent_s: float = 0.0) -> float:
    """Requests per day of a page watched for so long, last heard of some time ago."""
    first_ms = NOW_MS - age_s * 1000
    return request_rate_per_day(
        struct.pack("<ddd", count, first_ms, NOW_MS - silent_s * 1000), NOW_MS, half_life_s
    )


def test_with_a_long_half_life_the_rate_is_count_over_time() -> None:
    assert rate(100, 2 * DAY_S, half_life_s=1e12) == pytest.approx(50, rel=1e-6)


@pytest.mark.parametrize("age_s", [3600.0, DAY_S, WEEK_S, 40 * WEEK_S])
def test_a_steady_rate_is_found_however_long_it_was_watched(age_s: float) -> None:
    """The discounted count of a steady 24 requests a day, however many half-lives it has lasted."""
    decay_s = WEEK_S / math.log(2)
    count = 24 / DAY_S * decay_s * (1 - 2 ** (-age_s / WEEK_S))
    assert rate(count, age_s) == pytest.approx(24, rel=1e-9)


def test_what_was_watched_for_minutes_counts_as_an_hour() -> None:
    assert rate(1, 0) == rate(1, 60) == rate(1, 3600) == pytest.approx(24, rel=1e-2)
    assert rate(1, 7200) == pytest.approx(12, rel=1e-2)


def test_a_page_nobody_asks_for_any_more_loses_half_its_requests_each_half_life() -> None:
    count = 1000.0
    old = 60 * WEEK_S
    assert rate(count, old, silent_s=WEEK_S) == pytest.approx(rate(count, old) / 2)
    assert rate(0.0, old) == 0


async def test_the_rate_of_requests_sent_evenly_is_theirs(world: World) -> None:
    await world.put(PAGE)
    for hour in range(48):
        await world.request((PAGE, 10), id=str(hour))
        world.advance(3600)
    raw = await world.requests_of(PAGE)
    assert raw is not None
    assert request_rate_per_day(raw, world.clock.now_at * 1000, WEEK_S) == pytest.approx(240, rel=0.01)
