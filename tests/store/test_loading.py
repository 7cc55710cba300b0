"""Loading many pages: hosts of one shard and one large host, again and again, exact in every index."""

from __future__ import annotations

import random

import pytest
import redis.asyncio as redis_asyncio

from service.address import parse_url
from service.domain import Belief, NewPage
from service.store.hosts import read_stored_host
from service.store.keys import hosts as hosts_key
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, colliding, hosts_of, urls_of

MOST_COMMANDS = 500  # for 96 pages, nearly each in another bin; a time would measure the machine


async def test_scattered_pages_are_all_there_and_known_the_second_time(world: World) -> None:
    rng = random.Random(3)
    urls = [f"https://h{int(200 * rng.random() ** 3)}.example/{at}" for at in range(5000)]
    assert await world.put(*urls) == ["added"] * 5000
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 5000
    rng.shuffle(urls)
    assert await world.put(*urls) == ["updated"] * 5000
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 5000


async def commands_run(url: str) -> int:
    """How many commands the servers have run, those of functions included."""
    nodes = [node if "://" in node else f"redis://{node}" for node in url.replace("+cluster", "").split(",")]
    total = 0
    for node in nodes:
        async with redis_asyncio.Redis.from_url(node) as client:
            total += sum(int(stats["calls"]) for stats in (await client.info("commandstats")).values())
    return total


async def test_a_large_host_grows_bin_by_bin_in_short_calls(world: World) -> None:
    """Its pages come with different importances, so that every bin has a best page of its own."""
    pages = [
        NewPage(parse_url(url), Belief(importance=1.0 + at % 97), False)
        for at, url in enumerate(urls_of(20_000))
    ]
    url = world.settings.redis_url
    most, before = 0, await commands_run(url)
    for at in range(0, len(pages), 96):
        part = pages[at : at + 96]
        assert await world.frontier.put_pages(part) == ["added"] * len(part)
        after = await commands_run(url)
        most, before = max(most, after - before), after
    assert 96 < most <= MOST_COMMANDS
    assert (await audit(url, SHARDS))["waiting"] == 20_000
    assert (await world.lease()).url in {page.address.url for page in pages[96::97]}


async def test_hosts_that_outgrow_their_bins_together_are_split_a_few_per_call(world: World) -> None:
    """The rest grow when more of their pages come."""
    hosts = [f"https://h{at}.example" for at in range(60)]
    await world.put(*(f"{host}/{at}" for host in hosts for at in range(64)))
    url = world.settings.redis_url
    before = await commands_run(url)
    assert await world.put(*(f"{host}/64" for host in hosts)) == ["added"] * 60
    assert await commands_run(url) - before < MOST_COMMANDS
    for at in range(65, 80):
        assert await world.put(*(f"{host}/{at}" for host in hosts)) == ["added"] * 60
    stored = [
        raw for prefix in world.prefixes for raw in await world.server.execute("HVALS", hosts_key(prefix))
    ]
    assert [read_stored_host(raw).bins for raw in stored] == [2] * 60
    assert (await audit(url, SHARDS))["waiting"] == 60 * 80


async def test_one_batch_may_add_and_then_change_a_page(world: World) -> None:
    page = parse_url("https://one.example/")
    said = [Belief(), Belief(importance=5.0), Belief(importance=3.0, change_rate_per_day=2.0)]
    words = await world.frontier.put_pages([NewPage(page, belief, False) for belief in said])
    assert words == ["added", "updated", "updated"]
    record = await world.record(page)
    assert float(record.model.importance[0]) == 3.0
    assert float(record.model.change_rate[0]) * 86400 == pytest.approx(2.0)
    await audit(world.settings.redis_url, SHARDS)


async def test_what_is_said_last_of_a_page_holds_however_many_calls_a_batch_takes(world: World) -> None:
    hosts = [[parse_url(f"https://{host}.example/{at}") for at in range(150)] for host in "abcdefgh"]
    pages = [page for places in zip(*hosts, strict=True) for page in places]
    said = {"change_rate_per_day": 2.0, "precision": 0.5, "recall": 0.5}
    batch = [
        NewPage(page, Belief(importance=importance, **said), False)
        for importance in (1.0, 2.0, 3.0)
        for page in pages
    ]
    assert await world.frontier.put_pages(batch) == ["added"] * 1200 + ["updated"] * 2400
    for page in pages[::37]:
        assert float((await world.record(page)).model.importance[0]) == 3.0
    await audit(world.settings.redis_url, SHARDS)


async def test_saying_nothing_of_a_known_page_changes_nothing(world: World) -> None:
    await world.put("https://one.example/", importance=4.0, change_rate_per_day=3.0, fixed=True)
    before = await world.record("https://one.example/")
    assert await world.put("https://one.example/") == ["updated"]
    assert await world.record("https://one.example/") == before


async def test_pages_that_collide_in_one_batch_grow_with_their_host(world: World) -> None:
    pages = [*colliding(*urls_of(4)), *(parse_url(f"https://one.example/more/{at}") for at in range(500))]
    assert await world.put(*pages) == ["added"] * 504
    assert await world.put(*pages, importance=2.0) == ["updated"] * 504
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 504


async def test_pages_added_to_a_host_at_rest_wait_for_the_end_of_it(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=10.0)
    await world.put(*hosts_of(1))
    await world.lease()
    world.advance(1)
    await world.put("https://h0.example/second")
    await audit(world.settings.redis_url, SHARDS)
    assert await world.next() == []
    world.advance(10)
    assert (await world.lease()).url == "https://h0.example/second"


async def test_a_page_removed_while_it_is_updated_is_refused(world: World) -> None:
    """What was read of it is no longer true of anything."""
    page = NewPage(parse_url("https://one.example/"), Belief(importance=2.0), False)
    await world.frontier.put_pages([page])
    put, removed = world.frontier._pages.put, False

    async def remove_first(*args: object) -> list[list[str | bytes]]:
        nonlocal removed
        answer = await put(*args)  # type: ignore[arg-type]
        if not removed:
            removed = True
            await world.delete(page.address)
        return answer

    world.frontier._pages.put = remove_first  # type: ignore[method-assign,assignment]
    changed = NewPage(page.address, Belief(importance=3.0), False)
    assert await world.frontier.put_pages([changed]) == ["unknown"]


async def test_a_few_pages_of_a_host_of_many_bins_are_answered_in_their_order(world: World) -> None:
    """New, known and colliding ones, each likely in a bin of its own."""
    said = {"importance": 2.0, "change_rate_per_day": 1.0, "precision": 0.5, "recall": 0.5}
    known = [parse_url(url) for url in urls_of(1000)]
    await world.put(*known)
    new = colliding(*(f"https://one.example/new/{at}" for at in range(3)))
    words = await world.put(known[7], new[0], known[500], new[1], new[2], known[7], **said)
    assert words == ["updated", "added", "updated", "added", "added", "updated"]
    assert float((await world.record(known[500])).model.importance[0]) == 2.0
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 1003


async def test_a_refused_page_keeps_its_place_in_a_batch_ranked_in_parts(world: World) -> None:
    untrue = Belief(change_rate_per_day=1.0, precision=1.0, recall=0.1, signal_rate_per_day=5.0)
    pages = [
        NewPage(parse_url(url), Belief(importance=1.0 + at), False) for at, url in enumerate(urls_of(1500))
    ]
    pages[1200] = NewPage(parse_url("https://two.example/"), untrue, False)
    words = await world.frontier.put_pages(pages)
    assert words[1200].startswith("precision x signal_rate_per_day must equal")
    assert words[:1200] + words[1201:] == ["added"] * 1499
    assert await world.frontier.inspect(pages[1200].address) is None
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 1499
