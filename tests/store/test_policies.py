"""Policies switched while serving: nothing is lost, and pages are ranked by the value of each."""

from __future__ import annotations

import pytest

from service.address import parse_url
from service.domain import Policy
from service.errors import InvalidSetting
from service.policy.valuation import NAMES
from service.store.records import FIXED, STARTED
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of, key_of, outcome, urls_of
from workers.learn import Learner
from workers.reprice import Repricer

DAY_S = 86400.0
OBJECTIVES = [("ncis", "harmonic"), ("ncis", "delay"), ("greedy", "harmonic"), ("greedy", "delay")]
CHOICES = [(policy, "freshness") for policy in (*NAMES, "approx-2")] + OBJECTIVES


async def crawl_all(world: World, pages: list[str]) -> None:
    """Each page is crawled once, a minute after the one before."""
    for url in pages:
        await world.frontier.record_outcomes([outcome(url=url, fetched_at=world.clock.now_at)])
        world.advance(60)


async def sweep(world: World) -> None:
    await Repricer(world.server, world.settings, world.clock).sweep_all(world.clock.now_at)


async def order(world: World, count: int) -> list[str]:
    """The next pages served."""
    served = []
    for _ in range(count):
        world.advance(0.01)
        served.append((await world.lease()).url)
    return served


@pytest.mark.parametrize(("policy", "objective"), CHOICES)
async def test_any_policy_serves_every_page_and_loses_nothing(
    world: World, fresh_url: str, policy: str, objective: str
) -> None:
    pages = hosts_of(12)
    for at, url in enumerate(pages):
        await world.put(url, importance=1.0 + at, change_rate_per_day=1 + at % 3, precision=0.8, recall=0.5)
    await crawl_all(world, pages)
    await sweep(world)
    before = {url: (await world.record(url)).model for url in pages}
    await world.frontier.control.set_policy(policy=policy, objective=objective)
    await sweep(world)
    await world.signal(pages[3])
    world.advance(30 * DAY_S)
    await sweep(world)
    await audit(fresh_url, SHARDS)
    for url, model in before.items():
        assert str((await world.record(url)).model) == str(model)
    assert sorted(await order(world, 12)) == sorted(pages)
    assert (await world.frontier.control.price()).of == f"{policy}/{objective}"
    await audit(fresh_url, SHARDS)


async def test_each_policy_has_its_own_favourite(world: World) -> None:
    """Crawled at about one time: the oldest copy, one that matters, one that changes, one signalled."""
    oldest, dear, fickle, told = pages = hosts_of(4)
    await world.put(oldest, importance=1, change_rate_per_day=0.5, precision=0.6, recall=0.5)
    await world.put(dear, importance=50, change_rate_per_day=0.6, precision=0.6, recall=0.5)
    await world.put(fickle, importance=0.01, change_rate_per_day=90, precision=0.6, recall=0.5)
    await world.put(told, importance=60, change_rate_per_day=0.01, precision=0.6, recall=0.5)
    await crawl_all(world, pages)
    world.advance(3 * DAY_S)
    await world.signal(told)
    favourites = {
        "uniform": oldest,
        "importance": told,
        "change-rate": fickle,
        "cis": told,
        "greedy": dear,
    }
    for policy, favourite in favourites.items():
        await world.frontier.control.set_policy(policy=policy)
        await sweep(world)
        world.advance(1)
        best = await world.lease()
        assert best.url == favourite, policy
        await world.frontier.release([key_of(best)])


async def test_learning_goes_on_under_a_policy_of_solved_rates(world: World, fresh_url: str) -> None:
    (page,) = pages = hosts_of(1)
    await world.put(page)
    await crawl_all(world, pages)
    await world.frontier.control.set_policy(policy="lambdacrawl")
    await sweep(world)
    first = (await world.record(page)).model.change_rate[0]
    for _ in range(10):
        world.advance(DAY_S)
        found = outcome(url=page, fetched_at=world.clock.now_at, changed=False)
        await world.frontier.record_outcomes([found])
    await Learner(world.server, world.settings, world.clock).learn_all(world.clock.now_at)
    assert (await world.record(page)).model.change_rate[0] < first
    await sweep(world)
    await audit(fresh_url, SHARDS)


async def test_a_page_put_under_another_policy_is_ranked_by_it(world: World) -> None:
    await world.frontier.control.set_policy(policy="uniform")
    old, new = hosts_of(2)
    await world.put(old)
    await crawl_all(world, [old])
    await sweep(world)
    await world.put(new)
    await crawl_all(world, [new])
    world.advance(DAY_S)
    assert await order(world, 2) == [old, new]
    assert (await world.frontier.control.policy()).value_name == Policy(policy="uniform").value_name


async def test_a_whole_model_replaces_a_fixed_one_also_before_the_first_sweep_of_a_policy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.register.TERMS_AGE_S", -1.0)
    (page,) = hosts_of(1)
    await sweep(world)
    await world.put(page, fixed=True, change_rate_per_day=4.0)
    await world.frontier.control.set_policy(policy="uniform")
    await world.put(page, importance=2.0)
    assert (await world.record(page)).flags & FIXED
    await world.put(page, importance=2.0, change_rate_per_day=1.0, precision=0.5, recall=0.5)
    assert (await world.record(page)).flags & (FIXED | STARTED) == STARTED


async def test_what_a_host_was_served_at_is_forgotten_with_the_value(make_world: MakeWorld) -> None:
    """A price in the old value's terms would keep a host that must rest from ever being due."""
    world = await make_world(min_delay_s=1.0)
    page, *_ = pages = urls_of(3)
    await world.put(*pages, change_rate_per_day=1, precision=0.0, recall=0.0, fixed=True)
    await crawl_all(world, pages)
    world.advance(DAY_S)
    await sweep(world)
    for _ in pages:
        world.advance(1)
        await world.crawl()
    assert (await world.frontier.read_host(parse_url(page))).price > 1000  # type: ignore[union-attr]
    await world.frontier.control.set_policy(policy="change-rate")
    await sweep(world)
    assert (await world.record(page)).interval_s < 30 * DAY_S


async def test_pages_put_while_rates_are_solved_for_keep_their_ranking(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.register.TERMS_AGE_S", -1.0)
    (page,) = pages = hosts_of(1)
    await world.put(page, change_rate_per_day=1, precision=0.0, recall=0.0)
    await crawl_all(world, pages)
    await world.frontier.control.set_policy(policy="lambdacrawl")
    await sweep(world)
    before = (await world.record(page)).interval_s
    await world.put(page, importance=7.0)
    await world.put(page, importance=8.0, change_rate_per_day=2, precision=0.0, recall=0.0)
    after = await world.record(page)
    assert after.interval_s == before
    assert float(after.model.importance[0]) == 8.0
    await world.put("https://new.example/")
    await crawl_all(world, ["https://new.example/"])
    assert (await world.record("https://new.example/")).interval_s > 0.1 * DAY_S


async def test_serving_between_a_choice_and_its_sweep_does_not_move_the_new_price(world: World) -> None:
    pages = hosts_of(6)
    await world.put(*pages, change_rate_per_day=1, precision=0.0, recall=0.0)
    await crawl_all(world, pages)
    world.advance(DAY_S)
    await sweep(world)
    await world.frontier.control.set_policy(policy="change-rate")
    await order(world, 3)
    assert (await world.frontier.control.price()).served == 0
    await sweep(world)
    assert 0 < (await world.frontier.control.price()).served < 3


async def test_anchors_of_pages_never_crawled_that_an_earlier_release_kept_do_no_harm(world: World) -> None:
    await world.frontier.prepare()
    pages = urls_of(3)
    await world.put(*pages)
    await world.server.execute("HSET", "f:{control}", "layout", 5)
    (key,) = [name for name in await world.keys() if ":r:" in name]
    for page_id in await world.server.execute("HKEYS", key):
        await world.server.execute("ZADD", key.replace(":r:", ":a:"), 1000, page_id)
    await world.frontier.prepare()
    assert await world.server.execute("HGET", "f:{control}", "layout") == b"7"
    await sweep(world)
    assert await world.put(*pages, importance=2.0) == ["updated"] * 3
    assert await world.delete(pages[0]) == ["deleted"]
    await crawl_all(world, pages[1:])
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 2


async def test_records_of_another_release_are_not_touched(world: World) -> None:
    """Whether it packed them in a numbered layout or in none."""
    await world.frontier.prepare()
    await world.frontier.prepare()
    for change in (("HSET", "f:{control}", "layout", 99), ("HDEL", "f:{control}", "layout")):
        await world.server.execute(*change)
        with pytest.raises(InvalidSetting, match="another release"):
            await world.frontier.prepare()
