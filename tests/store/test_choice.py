"""Which page is served: new pages by importance, then the pages worth most, from hosts of any size."""

from __future__ import annotations

import random

import pytest

from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of, urls, urls_of


async def test_pages_never_crawled_are_served_in_order_of_importance(world: World) -> None:
    weights = [3.0, 1e-6, 700.0, 1.0, 1e9, 0.5]
    random.Random(1).shuffle(weights)
    for at, weight in enumerate(weights):
        await world.put(f"https://h{at % 3}.example/{weight}", importance=weight)
    served = []
    for _ in weights:
        served.append(float((await world.lease()).url.rsplit("/", 1)[1]))
        world.advance(0.002)
    assert served == sorted(weights, reverse=True)


async def test_a_batch_of_new_pages_is_served_in_order_of_importance(
    make_world: MakeWorld,
) -> None:
    world = await make_world(lookahead_s=1.0)
    for at, url in enumerate(hosts_of(40)):
        await world.put(url, importance=1.0 + (at * 7) % 40)
    weights = {url: 1.0 + (at * 7) % 40 for at, url in enumerate(hosts_of(40))}
    served = [weights[url] for url in urls(await world.next(20))]
    assert served == sorted(weights.values(), reverse=True)[:20]


async def test_a_new_page_goes_before_every_page_that_is_due(world: World) -> None:
    await world.put("https://one.example/known", importance=1e6)
    await world.crawl()
    world.advance(86400 * 365)
    await world.put("https://one.example/new", importance=1e-6)
    assert (await world.lease()).url == "https://one.example/new"


async def test_the_page_worth_more_is_served_first(world: World) -> None:
    """Crawled at one moment, they differ in importance only."""
    await world.put("https://one.example/less", importance=1.0)
    await world.put("https://two.example/more", importance=5.0)
    for _ in range(2):
        await world.crawl()
        world.advance(0.002)
    world.advance(3600)
    first = await world.lease()
    world.advance(0.002)
    second = await world.lease()
    assert first.url == "https://two.example/more"
    assert first.value > second.value > 0


async def test_a_lease_carries_what_is_known_of_the_page(world: World) -> None:
    await world.put("https://one.example/")
    new = await world.lease()
    assert (new.effective_elapsed_s, new.last_crawled_at, new.freshness) == (None, None, 0.0)
    crawled_at = world.clock.now_at
    await world.report(new, etag='"v1"', modified=1_600_000_000)
    world.advance(100)
    known = await world.lease()
    assert known.last_crawled_at == pytest.approx(crawled_at, abs=0.002)
    assert known.effective_elapsed_s == pytest.approx(100, abs=0.002)
    assert (known.etag, known.last_modified) == ('"v1"', 1_600_000_000.0)
    assert 0 < known.freshness < 1


async def test_a_leased_page_is_not_served_again(world: World) -> None:
    await world.put("https://one.example/")
    await world.lease()
    world.advance(1)
    assert (await world.why()).reason == "no-pages"


@pytest.mark.parametrize("count", [64, 65, 200, 1000])
async def test_every_page_of_a_growing_host_is_found_and_served_once(
    make_world: MakeWorld, count: int
) -> None:
    world = await make_world(bandwidth=1e6, lookahead_s=1.0)
    pages = urls_of(count)
    assert await world.put(*pages) == ["added"] * count
    served = urls(await world.next(1000))
    assert sorted(served) == sorted(pages)
    assert (await audit(world.settings.redis_url, SHARDS))["leased"] == count


async def test_a_host_of_a_thousand_pages_stays_compact(world: World) -> None:
    """Every bin is a listpack: an eighth of the memory of a hash table."""
    await world.put(*urls_of(1000))
    world.advance(1)
    lease = await world.crawl(etag='"an etag of usual length"', digest=b"123")
    await world.signal(lease.url)
    names = [k for k in await world.keys() if ":r:" in k or ":a:" in k or ":d:" in k]
    encodings = {(await world.server.execute("OBJECT", "ENCODING", name)) for name in names}
    assert len(names) > 2 * 1000 / 64  # anchors are only of what was crawled
    assert encodings == {b"listpack"}


async def test_pages_of_a_large_host_keep_their_history_while_it_grows(world: World) -> None:
    await world.put("https://one.example/first", importance=9.0)
    await world.crawl(etag='"kept"')
    before = await world.record("https://one.example/first")
    await world.put(*urls_of(300))
    after = await world.record("https://one.example/first")
    assert (after.etag, after.crawled_at_ms, after.signals) == ('"kept"', before.crawled_at_ms, 0)
    await audit(world.settings.redis_url, SHARDS)


async def test_a_lease_given_before_the_host_grew_is_still_good(world: World) -> None:
    await world.put(*urls_of(10))
    lease = await world.lease()
    await world.put(*urls_of(400))
    assert await world.report(lease) == "accepted"
    await audit(world.settings.redis_url, SHARDS)


async def test_a_lease_that_expires_after_the_host_grew_comes_back(world: World) -> None:
    await world.put(*urls_of(10))
    lease = await world.lease()
    await world.put(*urls_of(400))
    world.advance(61)
    await world.lease()
    assert (await world.state(lease.url)).lease_expires_ms is None
    await audit(world.settings.redis_url, SHARDS)


async def test_the_same_request_id_gets_the_same_leases(make_world: MakeWorld) -> None:
    world = await make_world(lookahead_s=1.0)
    await world.put(*hosts_of(10))
    first = await world.next(3, "retry-me")
    world.advance(0.5)
    again = await world.next(3, "retry-me")
    assert again == first
    assert (await audit(world.settings.redis_url, SHARDS))["leased"] == 3


async def test_a_repeated_request_spends_no_slot(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1)
    await world.put(*hosts_of(10))
    await world.next(1, "retry-me")
    world.advance(1)
    await world.next(1, "retry-me")
    assert len(await world.next(1, "another")) == 1


async def test_a_request_for_more_than_one_call_gives_is_kept_whole(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=20.0, lookahead_s=8.0)
    await world.put(*hosts_of(200))
    first = await world.next(150, "again")
    assert len({lease.url for lease in first}) == 150
    starts = [lease.not_before for lease in first]
    assert starts == sorted(starts)
    assert starts[-1] - starts[0] == pytest.approx(149 / 20.0)
    assert [lease.lease for lease in await world.next(150, "again")] == [lease.lease for lease in first]
    assert (await world.why()).reason == "pace"
    await audit(world.settings.redis_url, SHARDS)


async def test_a_request_id_that_got_nothing_is_not_remembered(make_world: MakeWorld) -> None:
    world = await make_world()
    assert await world.next(1, "early") == []
    await world.put("https://one.example/")
    assert len(await world.next(1, "early")) == 1


@pytest.mark.parametrize("start_s", [0, 15, 29.9])
async def test_a_request_id_is_remembered_for_a_minute(make_world: MakeWorld, start_s: float) -> None:
    """Wherever in a generation of answers the first try falls; not for ever."""
    world = await make_world()
    await world.put(*hosts_of(10))
    world.advance(start_s)
    first = await world.next(1, "id")
    world.advance(59.9)
    assert [lease.lease for lease in await world.next(1, "id")] == [lease.lease for lease in first]
    world.advance(31)
    assert [lease.lease for lease in await world.next(1, "id")] != [lease.lease for lease in first]


async def test_few_generations_of_answers_are_kept(make_world: MakeWorld) -> None:
    world = await make_world()
    await world.put(*hosts_of(20))
    for number in range(8):
        assert await world.next(1, f"id-{number}")
        world.advance(30)
    names = await world.server.execute("KEYS", "f:{control}:answers:*")
    assert len(names) == 3
    for name in names:
        assert 0 < await world.server.execute("PTTL", name) <= 90_000


async def test_answers_expire_also_after_the_store_was_emptied(make_world: MakeWorld) -> None:
    world = await make_world()
    await world.put(*hosts_of(2))
    await world.next(1, "before")
    await world.server.execute("FLUSHALL")
    await world.frontier.set_bandwidth(1000.0, None)
    await world.put(*hosts_of(2))
    assert await world.next(1, "after")
    (name,) = await world.server.execute("KEYS", "f:{control}:answers:*")
    assert await world.server.execute("PTTL", name) > 0


async def test_a_repeat_that_waits_beside_its_original_gets_the_same_leases(
    make_world: MakeWorld,
) -> None:
    """A client that gave up waiting repeats itself while its first request is still in the queue."""
    world = await make_world(lookahead_s=1.0)
    await world.put(*hosts_of(10))
    answers = await world.frontier._serve([("same", 2, False), ("same", 2, False)])
    first, second = answers[0]
    assert first == second
    assert (await audit(world.settings.redis_url, SHARDS))["leased"] == 2
