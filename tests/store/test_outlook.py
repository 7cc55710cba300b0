"""What other bandwidths would bring, as far as a sample of the pages tells."""

from __future__ import annotations

import numpy as np
import pytest

from service.address import parse_url
from service.domain import Belief, Model, NewPage
from service.outlook import outlook
from service.policy.forecast import optimum
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, urls_of
from workers.reprice import Repricer
from workers.sample import SAMPLED

DAY_S = 86400.0
RATES = (0.001, 0.01, 0.1)


async def put_many(world: World, count: int) -> Model:
    """Pages of all kinds on hosts of different sizes; their models."""
    generator = np.random.default_rng(3)
    importance, changes = generator.lognormal(size=(2, count))
    pages = [
        NewPage(
            parse_url(f"https://h{int(np.sqrt(at))}.example/{at}"),
            Belief(float(importance[at]), float(changes[at]), 0.0, 0.0),
            None,
        )
        for at in range(count)
    ]
    assert set(await world.frontier.put_pages(pages)) == {"added"}
    none = np.zeros(count)
    return Model(importance, changes / DAY_S, none, none)


async def sweep(world: World) -> None:
    await Repricer(world.server, world.settings, world.clock).sweep_all(world.clock.now_at)


async def test_nothing_is_foretold_before_the_first_sweep(world: World) -> None:
    await world.put("https://one.example/")
    assert await outlook(world.frontier, RATES) == (0, [])


async def test_an_empty_register_foretells_nothing(world: World) -> None:
    await sweep(world)
    assert await outlook(world.frontier, RATES) == (0, [])


@pytest.mark.parametrize("count", [300, 5000])
async def test_the_sample_tells_what_all_pages_would(make_world: MakeWorld, count: int) -> None:
    world = await make_world(bandwidth=0.01)
    model = await put_many(world, count)
    await sweep(world)
    sampled, found = await outlook(world.frontier, RATES)
    assert sampled == min(count, SAMPLED * SHARDS)
    for rate, one in zip(RATES, found, strict=True):
        exact = optimum(model, rate)
        near = 1e-4 if sampled == count else 0.3  # more than four standard errors
        assert one.crawls_per_second == rate
        assert one.freshness == pytest.approx(exact.freshness, rel=near)
        assert one.price == pytest.approx(exact.price, rel=near)
        assert one.never_crawled == pytest.approx(np.mean(exact.frequency == 0), abs=near)
    await audit(world.settings.redis_url, SHARDS)


async def test_shards_without_pages_take_nothing_of_the_sample(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else of many shards with few hosts only a few pages would be asked."""
    monkeypatch.setattr("service.outlook.MOST_MODELS", 60)
    await world.put(*urls_of(60), change_rate_per_day=1.0)
    await sweep(world)
    sampled, found = await outlook(world.frontier, RATES)
    assert (sampled, len(found)) == (60, len(RATES))


async def test_pages_that_never_change_are_never_crawled(world: World) -> None:
    await world.put("https://one.example/a", change_rate_per_day=1.0)
    await world.put("https://one.example/b", change_rate_per_day=0.0)
    await sweep(world)
    _, found = await outlook(world.frontier, (0.0, 1.0))
    assert [at_rate.never_crawled for at_rate in found] == [1.0, 0.5]
