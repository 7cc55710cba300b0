"""Sweeps: only what moved is written, and an interrupted sweep is gone on with."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import workers.reprice
from service.address import parse_url, shard_of
from service.domain import Price
from service.store import bins as store_bins
from service.store import keys
from service.store.bins import Bin, Bins, Place, Rankings
from service.store.sweeps import Sweeps
from tests.store.audit import audit
from tests.store.world import SHARDS, World, hosts_of, urls_of
from workers.appraise import Seen
from workers.reprice import Repricer
from workers.sweep import Sweep

PRICE = 10_000.0  # a quarter of what a page of `filled` can be worth at most


async def set_price(world: World, served: float) -> None:
    """The price, and the slack as it was before sweeps aimed it."""
    await world.server.execute("HSET", keys.CONTROL, "price", repr(served), "slack", "0.1", "lift", "1")


async def filled(world: World) -> int:
    """Several hundred pages of one shard, a price at which they are ranked; the shard."""
    await world.put(*urls_of(300), change_rate_per_day=2.0, precision=0.5, recall=0.5)
    shard = shard_of(parse_url(urls_of(1)[0]).host_id, SHARDS)
    for _ in range(60):
        world.advance(60)
        await world.crawl()
    await world.frontier.control.set_policy(explore=0.0)  # no page is promoted
    await set_price(world, PRICE)
    await Repricer(world.server, world.settings, world.clock).sweep(shard, world.clock.now_at)
    return shard


class Patience:
    """Lets so many steps pass."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    async def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_bins, "PAGES_AT_ONCE", 50)
    monkeypatch.setattr(store_bins, "BINS_AT_ONCE", 1)


async def test_a_sweep_at_nearly_the_same_price_writes_nothing(world: World) -> None:
    shard = await filled(world)
    repricer = Repricer(world.server, world.settings, world.clock)
    for price, renewed in ((1.01 * PRICE, 0), (1.5 * PRICE, 300)):
        world.advance(60)
        await set_price(world, price)
        assert await repricer.sweep(shard, world.clock.now_at) == renewed
    await audit(world.settings.redis_url, SHARDS)


@pytest.mark.usefixtures("small_steps")
async def test_the_next_pages_are_asked_for_before_some_are_ranked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await filled(world)
    await set_price(world, 1.5 * PRICE)
    world.advance(60)
    asked, walk, rerank = threading.Semaphore(0), Bins.walk, workers.reprice.rerank

    async def noted_walk(bins: Bins, shard: int, place: Place) -> AsyncIterator[tuple[list[Bin], Place]]:
        async for piece in walk(bins, shard, place):
            yield piece
            asked.release()

    def waiting_rerank(*args: Any, **options: Any) -> list[tuple[Bin, Rankings]]:
        assert asked.acquire(timeout=10), "it reads nothing while it ranks"
        return rerank(*args, **options)

    monkeypatch.setattr(Bins, "walk", noted_walk)
    monkeypatch.setattr(workers.reprice, "rerank", waiting_rerank)
    repricer = Repricer(world.server, world.settings, world.clock)
    assert await repricer.sweep(shard, world.clock.now_at) == 300


@pytest.mark.usefixtures("small_steps")
async def test_an_interrupted_sweep_is_gone_on_with_by_the_next_owner(world: World) -> None:
    shard = await filled(world)
    await set_price(world, 1.5 * PRICE)
    begun_at = world.clock.now_at + 60
    world.advance(60)
    one = Repricer(world.server, world.settings, world.clock)
    first = await one.sweep(shard, world.clock.now_at, Patience(2))
    assert 0 < first < 300
    assert (await world.frontier.shards.status())[shard].priced_at != begun_at
    world.advance(20)
    heir = Repricer(world.server, world.settings, world.clock)
    assert await heir.sweep(shard, world.clock.now_at) == 300, "counted on from where it stopped"
    status = (await world.frontier.shards.status())[shard]
    assert status.priced_at == begun_at, "the oldest price pages are ranked by is that of its beginning"
    assert status.weight == pytest.approx(300)
    assert await Sweeps(world.server, SHARDS).begun(shard) is None
    await audit(world.settings.redis_url, SHARDS)


@pytest.mark.usefixtures("small_steps")
async def test_a_sweep_begun_at_another_price_is_begun_again(world: World) -> None:
    shard = await filled(world)
    await set_price(world, 1.5 * PRICE)
    world.advance(60)
    one = Repricer(world.server, world.settings, world.clock)
    assert 0 < await one.sweep(shard, world.clock.now_at, Patience(2)) < 300
    await set_price(world, 3 * PRICE)
    world.advance(20)
    heir = Repricer(world.server, world.settings, world.clock)
    assert await heir.sweep(shard, world.clock.now_at) == 300
    assert (await world.frontier.shards.status())[shard].priced_at == world.clock.now_at


async def test_what_another_server_process_kept_is_not_gone_on_with(world: World) -> None:
    """A scan finds hosts in an order of its process."""
    sweeps = Sweeps(world.server, SHARDS)
    kept = Sweep(Price(1.0, 0.1), world.clock.now_at, Seen(pages=7), Place(5, "abc", 3)).pack()
    await sweeps.keep(0, kept)
    assert await sweeps.begun(0) == kept
    meta = keys.meta(keys.shard_prefixes(SHARDS)[0])
    stored = await world.server.execute("HGET", meta, "sweeping")
    await world.server.execute("HSET", meta, "sweeping", b"0" * 40 + stored[40:])
    assert await sweeps.begun(0) is None


def test_a_kept_sweep_comes_back_whole() -> None:
    place = Place(5, "abc", 3)
    kept = Sweep(Price(1.0, 0.1, 0.9), 17.0, Seen(pages=7, renewed=3, fresh=0.5, weight=2.0), place).pack()
    taken = Sweep(Price(1.01, 0.1, 0.9), 99.0, Seen())
    taken.take_up(kept)
    assert (taken.price, taken.begun_at, taken.place) == (Price(1.0, 0.1, 0.9), 17.0, place)
    assert (taken.seen.pages, taken.seen.renewed, taken.seen.fresh, taken.seen.weight) == (7, 3, 0.5, 2.0)
    moved = Sweep(Price(1.1, 0.1, 0.9), 99.0, Seen())
    moved.take_up(kept)
    assert (moved.begun_at, moved.place) == (99.0, Place())


@pytest.mark.usefixtures("small_steps")
async def test_a_walk_from_any_place_meets_every_page_left_once(world: World) -> None:
    await world.put(*hosts_of(30), *urls_of(400))
    bins = Bins(world.server, SHARDS)
    for shard in range(SHARDS):
        groups, places = [], []
        async for group, place in bins.walk(shard):
            groups.append([(b.host_id, page_id) for b in group for page_id in b.ids])
            places.append(place)
        pages = [page for group in groups for page in group]
        assert len(set(pages)) == len(pages) == (await world.frontier.shards.status())[shard].pages
        for done, begin in enumerate(places[:-1], 1):
            rest = [
                (b.host_id, page_id) async for g, _ in bins.walk(shard, begin) for b in g for page_id in b.ids
            ]
            assert rest == [page for group in groups[done:] for page in group]
