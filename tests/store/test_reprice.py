"""Repricing: due times follow the price; models, leases and history are left alone."""

from __future__ import annotations

import pytest

from service.address import parse_url, shard_of
from service.beliefs import ranking_rows
from service.domain import Price
from service.store import bins as store_bins
from service.store.bins import Bin, Bins
from service.store.pages import PageState
from service.store.records import DORMANT_ABOVE, model_of, read_heads
from tests.store.audit import audit
from tests.store.world import SHARDS, World, hosts_of, urls_of
from workers.reprice import Repricer

PAGE = "https://one.example/"
LOW, HIGH = 1e-3, 1e12


async def bins_of(world: World, url: str = PAGE) -> list[Bin]:
    shard = shard_of(parse_url(url).host_id, SHARDS)
    return [page_bin async for group, _ in Bins(world.server, SHARDS).walk(shard) for page_bin in group]


async def reprice(world: World, bins: list[Bin], price: float, url: str = PAGE) -> int:
    """Write rankings at this price from what was read before."""
    items = []
    for page_bin in bins:
        heads = read_heads(page_bin.records)
        rows = ranking_rows(model_of(heads), Price(price, 0.1))
        items.append((page_bin, (page_bin.names, heads["version"].tobytes(), rows.tobytes())))
    return await Bins(world.server, SHARDS).reprice(shard_of(parse_url(url).host_id, SHARDS), items)


async def crawled(world: World) -> PageState:
    await world.put(PAGE)
    await world.crawl()
    world.advance(60)
    return await world.state(PAGE)


async def test_a_dearer_price_makes_a_page_dormant_and_a_falling_one_brings_it_back(
    world: World,
) -> None:
    before = await crawled(world)
    await reprice(world, await bins_of(world), HIGH)
    assert (await world.state(PAGE)).due_score >= DORMANT_ABOVE
    await audit(world.settings.redis_url, SHARDS)
    await reprice(world, await bins_of(world), LOW)
    after = await world.state(PAGE)
    assert after.due_score < DORMANT_ABOVE
    assert after.anchor_ms == before.anchor_ms
    await audit(world.settings.redis_url, SHARDS)


async def test_a_higher_price_makes_a_page_due_later(world: World) -> None:
    await crawled(world)
    await reprice(world, await bins_of(world), LOW)
    early = (await world.state(PAGE)).due_score
    await reprice(world, await bins_of(world), 1000 * LOW)
    assert (await world.state(PAGE)).due_score > early


async def test_a_dormant_page_is_served_when_nothing_else_is(world: World) -> None:
    await crawled(world)
    await reprice(world, await bins_of(world), HIGH)
    assert (await world.lease()).url == PAGE


async def test_a_page_whose_model_moved_meanwhile_is_left_as_it_is(world: World) -> None:
    await crawled(world)
    read = await bins_of(world)
    await world.put(PAGE, importance=50.0)
    before = await world.state(PAGE)
    assert await reprice(world, read, HIGH) == 0
    assert await world.state(PAGE) == before


async def test_the_due_time_follows_the_anchor_of_the_moment_of_writing(world: World) -> None:
    """A crawl between reading and writing is not undone."""
    await crawled(world)
    read = await bins_of(world)
    lease = await world.lease()
    await world.report(lease, etag='"new"')
    await reprice(world, read, LOW)
    state, record = await world.state(PAGE), await world.record(PAGE)
    assert record.etag == '"new"'
    assert state.due_score == pytest.approx(state.anchor_ms + record.interval_s * 1000, abs=1)
    await audit(world.settings.redis_url, SHARDS)


async def test_a_leased_page_stays_leased(world: World) -> None:
    await crawled(world)
    lease = await world.lease()
    before = await world.state(PAGE)
    await reprice(world, await bins_of(world), HIGH)
    after = await world.state(PAGE)
    assert after.lease_expires_ms == before.lease_expires_ms
    assert after.due_score is None
    assert await world.report(lease) == "accepted"
    assert (await world.state(PAGE)).due_score >= DORMANT_ABOVE
    await audit(world.settings.redis_url, SHARDS)


async def test_held_and_parked_pages_stay_where_they_are(world: World) -> None:
    await crawled(world)
    await world.report(await world.lease(), "gone")
    await reprice(world, await bins_of(world), HIGH)
    assert (await audit(world.settings.redis_url, SHARDS))["held"] == 1
    world.advance(31)
    await world.report(await world.lease(), "gone")
    await reprice(world, await bins_of(world), LOW)
    assert (await audit(world.settings.redis_url, SHARDS))["parked"] == 1


async def test_a_page_removed_meanwhile_stays_removed(world: World) -> None:
    await crawled(world)
    read = await bins_of(world)
    await world.delete(PAGE)
    assert await reprice(world, read, LOW) == 0
    await audit(world.settings.redis_url, SHARDS)


async def test_a_host_that_grew_meanwhile_is_repriced_where_its_pages_still_are(
    world: World,
) -> None:
    await crawled(world)
    await world.put(*urls_of(60))
    read = await bins_of(world)
    await world.put(*urls_of(300))
    await reprice(world, read, LOW)
    await audit(world.settings.redis_url, SHARDS)


async def test_bins_tell_the_anchors_that_signals_moved(world: World) -> None:
    """The others are where the last crawl was."""
    quiet, heard, new = urls_of(3)
    await world.put(quiet, heard)
    await world.crawl()
    await world.crawl()
    await world.put(new)
    world.advance(60)
    await world.signal(heard)
    await world.signal(new)
    (page_bin,) = await bins_of(world, quiet)
    states = {url: await world.state(url) for url in (quiet, heard, new)}
    at = page_bin.ids.index(states[heard].page_id)
    assert page_bin.anchors_ms == [(at, states[heard].anchor_ms)]
    assert states[heard].anchor_ms < (await world.record(heard)).crawled_at_ms
    assert states[quiet].anchor_ms == (await world.record(quiet)).crawled_at_ms


async def test_a_bin_may_take_several_calls(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = urls_of(50)
    await world.put(*urls)
    for _ in urls:
        world.advance(2)
        await world.crawl()
    monkeypatch.setattr(store_bins, "PAGES_PER_WRITE", 7)
    assert await reprice(world, await bins_of(world, urls[0]), LOW, urls[0]) == 50
    await audit(world.settings.redis_url, SHARDS)
    assert await reprice(world, await bins_of(world, urls[0]), 1000 * LOW, urls[0]) == 50
    await audit(world.settings.redis_url, SHARDS)


async def test_a_dormant_page_that_was_crawled_meanwhile_comes_back_by_that_crawl(world: World) -> None:
    """Its due time told nothing of its anchor."""
    await crawled(world)
    await reprice(world, await bins_of(world), HIGH)
    read = await bins_of(world)
    world.advance(60)
    await world.report(await world.lease())
    await reprice(world, read, LOW)
    state, record = await world.state(PAGE), await world.record(PAGE)
    assert state.anchor_ms == record.crawled_at_ms == world.clock.now_at * 1000
    assert state.due_score == pytest.approx(state.anchor_ms + record.interval_s * 1000, abs=1)


async def test_a_page_never_crawled_keeps_its_place(world: World) -> None:
    await world.put(PAGE)
    before = await world.state(PAGE)
    await reprice(world, await bins_of(world), HIGH)
    assert (await world.state(PAGE)).due_score == before.due_score


async def test_a_promoted_page_keeps_its_place_and_those_beside_it_are_keyed_anew(world: World) -> None:
    urls = urls_of(3)
    await world.put(*urls)
    for _ in urls:
        world.advance(2)
        await world.crawl()
    address, promoted = parse_url(urls[0]), await world.state(urls[0])
    shard = shard_of(address.host_id, SHARDS)
    await world.frontier.shards.promote(shard, [(address.host_id, promoted.page_id)])
    first = (await world.state(urls[0])).due_score
    await reprice(world, await bins_of(world, urls[0]), HIGH, urls[0])
    assert (await world.state(urls[0])).due_score == first
    for url in urls[1:]:
        assert (await world.state(url)).due_score >= DORMANT_ABOVE
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == len(urls)


async def test_the_due_time_of_a_page_with_signals_follows_the_anchor_they_moved(world: World) -> None:
    await crawled(world)
    await world.signal(PAGE)
    await reprice(world, await bins_of(world), LOW)
    state, record = await world.state(PAGE), await world.record(PAGE)
    assert state.anchor_ms < record.crawled_at_ms
    assert state.due_score == pytest.approx(state.anchor_ms + record.interval_s * 1000, abs=1)


async def test_repricing_twice_is_repricing_once(world: World) -> None:
    await crawled(world)
    read = await bins_of(world)
    await reprice(world, read, LOW)
    before = await world.state(PAGE)
    await reprice(world, read, LOW)
    assert await world.state(PAGE) == before


async def test_the_worker_sweeps_every_page_and_notes_when(world: World) -> None:
    await world.put(*hosts_of(20), *urls_of(100))
    repricer = Repricer(world.server, world.settings, world.clock)
    assert await repricer.sweep_all(world.clock.now_at) == 120
    status = await world.frontier.shards.status()
    assert [shard.priced_at for shard in status] == [world.clock.now_at] * SHARDS
    assert sum(shard.weight for shard in status) == pytest.approx(120)
    assert sum(shard.fresh_weight for shard in status) == 0
    await audit(world.settings.redis_url, SHARDS)
