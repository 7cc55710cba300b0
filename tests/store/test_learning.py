"""From outcomes to models: once each, whoever dies in between; and pages seen though nobody asks for them."""

from __future__ import annotations

import numpy as np
import pytest

from service.address import parse_url, shard_of
from service.store import keys
from service.store.learned import Learned
from service.store.observations import Observations
from service.store.records import read_record
from service.store.wire import unpack
from tests.store.world import SHARDS, World, outcome, urls_of
from workers import learn
from workers.learn import Learner
from workers.ownership import Ownership
from workers.reprice import Repricer

PAGE = "https://one.example/"
HOUR_S = 3600.0


def learner(world: World) -> Learner:
    return Learner(world.server, world.settings, world.clock)


async def settle(world: World) -> None:
    """Learn until what hosts and pages believe of each other agrees."""
    for _ in range(8):
        await learner(world).learn_all(world.clock.now_at)


async def crawl_often(world: World, times: int, *, changed: bool, signals: int = 0) -> None:
    for _ in range(times):
        world.advance(HOUR_S)
        for number in range(signals):
            await world.signal(PAGE, id=f"{world.clock.now_at}-{number}")
        await world.crawl(changed=changed)


def shard() -> int:
    return shard_of(parse_url(PAGE).host_id, SHARDS)


async def rate_per_hour(world: World) -> float:
    return float((await world.record(PAGE)).model.change_rate[0]) * HOUR_S


async def test_a_page_that_always_changes_is_learned_to_and_one_that_never_does_not(world: World) -> None:
    await world.put(PAGE)
    await crawl_often(world, 12, changed=True)
    await settle(world)
    often = await rate_per_hour(world)
    await crawl_often(world, 60, changed=False)
    await settle(world)
    seldom = await rate_per_hour(world)
    assert often > 0.5
    assert seldom < 0.2 * often


async def test_the_first_crawl_and_failed_fetches_say_nothing_of_changes(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    world.advance(HOUR_S)
    await world.report(await world.lease(), "failed")
    assert await Observations(world.server, SHARDS).backlog() == 0


async def test_a_worker_that_dies_before_it_commits_loses_nothing(world: World) -> None:
    await world.put(PAGE)
    await crawl_often(world, 6, changed=True)
    observations = Observations(world.server, SHARDS)
    begun = await observations.read(shard(), 100, begun=False)
    assert len(begun) == 5
    await settle(world)
    assert await observations.backlog() == 0
    assert await rate_per_hour(world) > 0.3


async def test_a_worker_that_wakes_too_late_changes_nothing(world: World) -> None:
    await world.put(PAGE)
    await crawl_often(world, 6, changed=True)
    zombie = Observations(world.server, SHARDS)
    begun = await zombie.read(shard(), 100, begun=False)
    await settle(world)
    before = await zombie.evidence(shard(), [begun[0].page])
    items = [(*begun[0].page, b"nonsense")]
    assert not await zombie.fold(shard(), [o.entry for o in begun], items, trusts=[], checked=b"")
    assert await zombie.evidence(shard(), [begun[0].page]) == before


async def test_what_a_user_fixed_is_not_learned_over(world: World) -> None:
    await world.put(PAGE, fixed=True, change_rate_per_day=2.0, precision=0.5, recall=0.5)
    await crawl_often(world, 10, changed=True)
    await settle(world)
    assert await rate_per_hour(world) == pytest.approx(2 / 24, rel=1e-5)


async def test_a_starting_belief_holds_until_the_page_itself_was_seen(world: World) -> None:
    await world.put(PAGE, change_rate_per_day=2.0, precision=0.5, recall=0.5)
    await crawl_often(world, 3, changed=True)
    await settle(world)
    assert await rate_per_hour(world) == pytest.approx(2 / 24, rel=1e-5)
    await crawl_often(world, 6, changed=True)
    await settle(world)
    assert await rate_per_hour(world) > 0.3


async def test_a_new_page_of_a_known_host_starts_from_the_hosts_beliefs(world: World) -> None:
    await world.put(PAGE)
    await crawl_often(world, 30, changed=True)
    await settle(world)
    sibling = "https://one.example/new"
    await world.put(sibling)
    await crawl_often(world, 1, changed=True)
    await settle(world)
    rate = float((await world.record(sibling)).model.change_rate[0]) * HOUR_S
    assert rate > 0.3


async def test_false_signals_lose_their_weight_and_true_ones_keep_it(world: World) -> None:
    await world.put(PAGE)
    await crawl_often(world, 40, changed=False, signals=2)
    await settle(world)
    assert float((await world.record(PAGE)).model.precision[0]) < 0.1


async def test_requests_make_a_page_important(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    await world.request((PAGE, 2400), id="batch")
    world.advance(24 * HOUR_S)
    await settle(world)
    assert float((await world.record(PAGE)).model.importance[0]) == pytest.approx(2400, rel=0.2)


async def test_a_promoted_page_is_served_next_whatever_it_is_worth(world: World) -> None:
    await world.put(PAGE, importance=1e-6)
    await world.put(*(f"https://two.example/{n}" for n in range(5)), importance=1e6)
    for _ in range(6):
        world.advance(1)
        await world.crawl()
    world.advance(60)
    address = parse_url(PAGE)
    promoted = await world.frontier.shards.promote(shard(), [(address.host_id, address.page_id)])
    assert promoted == 1
    world.advance(1)
    assert (await world.lease()).url == PAGE


async def models(world: World, urls: list[str]) -> list[tuple[float, ...]]:
    found = [(await world.record(url)).model for url in urls]
    return [(float(m.silent_rate[0]), float(m.signal_weight[0]), float(m.signal_rate[0])) for m in found]


async def test_a_host_refitted_in_parts_is_believed_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of one host that change in every second crawl, some of them after a signal."""
    urls = urls_of(300)
    await world.put(*urls)
    for turn in range(6):
        world.advance(HOUR_S)
        for at, url in enumerate(urls):
            if at % 3 == 0:
                await world.signal(url, source=f"s{at % 2}", id=f"{turn}")
        now = world.clock.now_at
        found = [outcome(url=url, fetched_at=now, changed=(turn + n) % 2 == 0) for n, url in enumerate(urls)]
        await world.frontier.record_outcomes(found)
    address, prefix = parse_url(urls[0]), world.prefix_of(urls[0])
    shard, learned = shard_of(address.host_id, SHARDS), Learned(world.server, SHARDS)
    await learner(world).drain_all(shard)
    assert await learner(world).refit(shard, world.clock.now_at) == 300
    whole, (said,) = await models(world, urls), await learned.all_sums(shard)
    await world.server.execute("HDEL", keys.host(prefix, address.host_id), "sums", "weights")
    await world.server.execute("HDEL", keys.meta(prefix), "said")
    await world.server.execute("SADD", keys.dirty(prefix), address.host_id)
    monkeypatch.setattr(learn, "BINS_AT_ONCE", 2)
    assert await learner(world).refit(shard, world.clock.now_at) == 300
    assert np.array(await models(world, urls)) == pytest.approx(np.array(whole), rel=1e-6)
    (in_parts,) = await learned.all_sums(shard)
    for one, other in zip(unpack(said), unpack(in_parts), strict=True):
        assert np.array(other) == pytest.approx(np.array(one), rel=1e-9)


async def test_two_workers_share_the_shards_and_none_is_owned_twice(world: World) -> None:
    one = Ownership(world.server, world.clock, SHARDS)
    two = Ownership(world.server, world.clock, SHARDS)
    assert await one.renew() == set(range(SHARDS))
    await two.renew()
    await one.renew()
    await two.renew()
    assert len(one.owned) == len(two.owned) == SHARDS // 2
    assert one.owned | two.owned == set(range(SHARDS))


async def test_a_dead_workers_shards_are_taken_over(world: World) -> None:
    dead = Ownership(world.server, world.clock, SHARDS)
    await dead.renew()
    world.advance(16)
    heir = Ownership(world.server, world.clock, SHARDS)
    assert await heir.renew() == set(range(SHARDS))
    assert not await dead.keep(0)


async def test_the_record_shows_what_was_learned(world: World) -> None:
    await world.put(PAGE)
    await crawl_often(world, 8, changed=True)
    await settle(world)
    state = await world.frontier.inspect(parse_url(PAGE))
    assert state is not None
    estimate, _ = await world.frontier.estimate(parse_url(PAGE), state)
    model = read_record(state.record).model
    assert estimate.change_rate_low[0] < model.change_rate[0] < estimate.change_rate_high[0]


async def test_dates_of_change_tell_fast_pages_apart_that_always_have_changed(world: World) -> None:
    """Each crawl finds a change; dated ten minutes before the fetch, it says more than "within the hour"."""
    await world.put(PAGE)
    await crawl_often(world, 8, changed=True)
    await settle(world)
    undated = await rate_per_hour(world)
    for _ in range(20):
        world.advance(HOUR_S)
        await world.crawl(changed=True, modified=int(world.clock.now_at - 600))
    await settle(world)
    assert await rate_per_hour(world) > 1.3 * undated


async def precision_of(world: World, origin: str) -> float:
    """What all hosts say of a sender's signals, of those that were checked."""
    number = (await world.frontier.control.source_numbers({origin}))[origin]
    rate, true, *_ = (await world.frontier.shards.source_figures())[number]
    return rate and true / rate


async def test_what_others_send_in_its_name_does_not_hurt_an_authenticated_sender(world: World) -> None:
    """The sender tells of every change; then strangers flood the same source at hosts of theirs."""
    await world.bandwidth(1000)
    hosts = [f"https://host-{number}.example/" for number in range(8)]
    await world.put(*hosts)
    mine, theirs = set(hosts[:2]), set(hosts[2:])
    world.advance(1)
    for url in hosts:
        await world.frontier.record_outcomes([outcome(url=url, fetched_at=world.clock.now_at)])

    async def rounds(count: int, flood: bool) -> None:
        for number in range(count):
            world.advance(HOUR_S)
            told = number % 2 == 0
            for url in mine if told else ():
                await world.signal(url, source="cdn", sender="acme", id=f"{world.clock.now_at}")
            for url in theirs if flood else ():
                await world.signal(url, source="cdn", id=f"{world.clock.now_at}")
            for url in hosts:
                found = outcome(url=url, fetched_at=world.clock.now_at, changed=url in mine and told)
                await world.frontier.record_outcomes([found])
        await settle(world)

    await rounds(24, flood=False)
    before = await precision_of(world, "cdn@acme")
    await rounds(24, flood=True)
    assert await precision_of(world, "cdn@acme") > 0.95 * before > 0.5
    assert await precision_of(world, "cdn") < 0.2


async def test_a_page_has_a_floor_of_its_own(world: World) -> None:
    """Two pages too dull for their price; the one with a floor is seen again."""
    await world.bandwidth(1.0)
    dull, dear = "https://dull.example/", "https://dear.example/"
    truth = {"change_rate_per_day": 100.0, "precision": 0.0, "recall": 0.0}
    await world.put(dull, importance=1e-9, fixed=True, floor=24, **truth)
    await world.put(dear, importance=1e9, fixed=True, **truth)
    for _ in range(2):
        await world.crawl()
        world.advance(5)
    assert (await world.record(dull)).min_crawls_per_day == 24
    served, repricer = [], Repricer(world.server, world.settings, world.clock)
    for _ in range(80):
        world.advance(60)
        await repricer.sweep_all(world.clock.now_at)
        served.append((await world.crawl()).url)
    assert 1 <= served.count(dull) <= 3
    await world.put(dull, importance=2e-9)
    assert (await world.record(dull)).min_crawls_per_day == 24
    await world.put(dull, floor=0)
    assert (await world.record(dull)).min_crawls_per_day == 0
