"""Politeness: a host is left alone for its rest, whatever else happens."""

from __future__ import annotations

from itertools import pairwise

import pytest

from service.address import parse_url
from service.domain import Lease, Policy
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of, outcome, urls_of
from workers.reprice import Repricer

DAY_S, HOUR_S = 86400.0, 3600.0
EXACT = 1e-5  # seconds; instants are doubles of some 1.7e9 s


async def starts(world: World, seconds: float, step_s: float = 0.05) -> list[float]:
    """When pages may be fetched, for callers that ask all the time; every one is reported at once."""
    found = []
    for _ in range(round(seconds / step_s)):
        for lease in await world.next():
            found.append(max(lease.not_before, world.clock.now_at))
            await world.report(lease)
        world.advance(step_s)
    return found


async def crawl_long_ago(world: World, count: int) -> None:
    """So many pages of one host that rests for a second, all due again."""
    await world.put(*urls_of(count))
    for _ in range(count):
        await world.crawl()
        world.advance(1)
    world.advance(DAY_S * 30)


def closest(instants: list[float]) -> float:
    return min(b - a for a, b in pairwise(instants))


async def test_two_leases_of_a_host_are_its_rest_apart(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=1.0)
    await world.put(*urls_of(10))
    found = await starts(world, 6)
    assert len(found) == 6
    assert closest(found) >= 1.0 - EXACT


async def test_a_batch_takes_one_page_of_a_resting_host(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=1.0, lookahead_s=1.0)
    await world.put(*urls_of(10, "one.example"), *urls_of(10, "two.example"))
    assert sorted(lease.host for lease in await world.next(20)) == ["one.example", "two.example"]
    assert (await world.why()).reason in ("pace", "politeness")


async def test_a_page_added_while_its_host_takes_turns_comes_after_the_rest(make_world: MakeWorld) -> None:
    """Its host had been waiting for the end of the same rest, but for pages that were due already."""
    world = await make_world(min_delay_s=1.0)
    await crawl_long_ago(world, 3)
    await world.lease()
    (added,) = urls_of(1, "one.example/added")
    await world.put(added)
    await audit(world.settings.redis_url, SHARDS)
    assert (await world.why()).reason == "politeness"
    world.advance(1)
    assert (await world.lease()).url == added


async def test_hosts_that_rest_do_not_stand_before_others_whose_pages_are_not_due_yet(
    make_world: MakeWorld,
) -> None:
    """Their next pages are due sooner than any other, but no slot is lost for that."""
    world = await make_world(min_delay_s=60.0)
    hosts = [f"h{number}.example" for number in range(400)]  # more than one look would pass over
    pages = [url for host in hosts for url in urls_of(3, host)]
    await world.put(*pages, change_rate_per_day=1.0)
    begun_at = world.clock.now_at - 10_000
    crawls = [outcome(url=url, fetched_at=begun_at + at) for at, url in enumerate(pages)]
    assert set(await world.frontier.record_outcomes(crawls)) == {"accepted"}
    await world.frontier.control.open_price(40_000.0, Policy().value_name)
    await Repricer(world.server, world.settings, world.clock).sweep_all(world.clock.now_at)
    assert (await world.state(pages[0])).due_score > world.clock.now_at * 1000
    for _ in range(2):
        served = set()
        for _ in hosts:
            world.advance(0.01)
            served.add((await world.lease()).host)
        assert served == set(hosts)
        assert (await world.why()).reason == "politeness"
        await audit(world.settings.redis_url, SHARDS)
        world.advance(60)


async def price_of(world: World, url: str) -> float | None:
    host = await world.frontier.read_host(parse_url(url))
    assert host is not None
    return host.price


async def test_a_host_has_a_price_of_its_own_where_politeness_holds_it_back(
    make_world: MakeWorld,
) -> None:
    """New pages come first whatever they are worth, so what they are worth says nothing of the others."""
    world = await make_world(min_delay_s=1.0)
    await crawl_long_ago(world, 4)
    page = urls_of(1)[0]
    assert await price_of(world, page) is None
    await world.lease()
    assert await price_of(world, page) is None  # it was free before
    for _ in range(2):
        world.advance(1)
        held_back = await world.lease()
    dearest = await price_of(world, page)
    assert dearest == pytest.approx(held_back.value, rel=0.01)
    world.advance(100)
    await world.put(*urls_of(1, "one.example/new"))
    await world.lease()
    assert await price_of(world, page) == dearest


async def test_what_a_host_was_served_at_is_soon_forgotten_once_it_stands_idle(make_world: MakeWorld) -> None:
    """Else pages that were dear while little was known of them keep it from its turn ever after."""
    world = await make_world(min_delay_s=1.0, lease_s=600.0)
    await crawl_long_ago(world, 6)
    page = urls_of(1)[0]
    for _ in range(4):
        await world.lease()
        world.advance(1)
    dearest = await price_of(world, page)
    assert dearest is not None
    await world.lease()
    world.advance(1.9)
    await world.lease()  # as soon as a host comes to its turn that is held back
    held_back = await price_of(world, page)
    assert held_back == pytest.approx(dearest, rel=0.1)
    plain = "https://one.example/plain"
    await world.put(plain, importance=0.01)
    await world.frontier.record_outcomes([outcome(url=plain, fetched_at=world.clock.now_at - DAY_S * 30)])
    world.advance(60)
    assert (await world.lease()).url == plain
    assert 0 < (await price_of(world, page) or 0) < dearest / 10


async def test_a_host_held_back_is_ranked_by_what_it_serves_as_soon_as_crawlers_go_on_after_a_pause(
    make_world: MakeWorld,
) -> None:
    """It stood idle, but not because it was too dear: many of its pages wait."""
    world = await make_world(min_delay_s=1.0)
    await crawl_long_ago(world, 8)
    page = urls_of(1)[0]
    for _ in range(4):
        before = await world.lease()
        world.advance(1)
    assert await price_of(world, page) == pytest.approx(before.value, rel=0.05)
    world.advance(HOUR_S)
    after = await world.lease()
    assert await price_of(world, page) == pytest.approx(after.value, rel=0.05)


async def test_a_host_that_is_free_is_ranked_by_the_price_of_all(make_world: MakeWorld) -> None:
    """However dear its pages were while it was held back: else nothing would ever make them cheaper."""
    world = await make_world(min_delay_s=1.0)
    await crawl_long_ago(world, 4)
    page = urls_of(1)[0]
    for _ in range(3):
        await world.crawl()
        world.advance(1)
    repricer = Repricer(world.server, world.settings, world.clock)
    await world.frontier.control.open_price((await price_of(world, page) or 0) / 100, Policy().value_name)
    await repricer.sweep_all(world.clock.now_at)
    while_held_back = (await world.record(page)).interval_s
    world.advance(100)
    await repricer.sweep_all(world.clock.now_at)
    assert 0 < (await world.record(page)).interval_s < abs(while_held_back) / 2


async def test_a_resting_host_is_the_reason_and_names_its_end(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=2.0)
    await world.put(*urls_of(3))
    await world.lease()
    world.advance(0.5)
    nothing = await world.why()
    assert nothing.reason == "politeness"
    assert nothing.retry_after_s == pytest.approx(1.5, abs=0.01)


async def test_rest_of_a_page_taken_ahead_starts_at_its_slot(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=2, min_delay_s=1.0, lookahead_s=1.0)
    await world.put("https://a.example/", "https://b.example/", "https://c.example/1")
    await world.put("https://c.example/2")
    batch = await world.next(3)
    last = max(batch, key=lambda lease: lease.not_before)
    rests_until = (await world.state(last.url)).host_rests_until_ms
    assert rests_until == pytest.approx((last.not_before + 1) * 1000, abs=2)


async def test_an_operators_delay_replaces_the_default(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=5.0)
    await world.put(*urls_of(10))
    await world.host("one.example", delay_ms=500)
    found = await starts(world, 5)
    assert len(found) >= 8
    assert closest(found) >= 0.5 - EXACT


async def test_a_delay_of_zero_ends_the_rest(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=5.0)
    await world.host("one.example", delay_ms=0)
    await world.put(*urls_of(10))
    assert len(await starts(world, 1)) == 20


async def test_a_limit_of_crawls_per_second_spaces_them(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=0.1)
    await world.put(*urls_of(10))
    await world.host("one.example", gap_ms=2000)
    found = await starts(world, 10)
    assert 4 <= len(found) <= 5
    assert closest(found) >= 2 - EXACT


async def test_a_delay_raised_between_leases_holds_from_the_answer_on(
    make_world: MakeWorld,
) -> None:
    world = await make_world(min_delay_s=1.0)
    await world.put(*urls_of(10))
    first = await world.lease()
    world.advance(0.9)
    await world.host("one.example", delay_ms=10_000)
    (second,) = await starts(world, 12)
    assert second - first.not_before >= 10


async def test_a_delay_lowered_again_holds_at_once(make_world: MakeWorld) -> None:
    """A slip of the pen must not keep a host away for hours."""
    world = await make_world(min_delay_s=1.0)
    await world.put(*urls_of(3))
    await world.lease()
    await world.host("one.example", delay_ms=4_000_000)
    world.advance(2)
    assert (await world.why()).reason == "politeness"
    await world.host("one.example", delay_ms=1000)
    await audit(world.settings.redis_url, SHARDS)
    assert (await world.lease()).host == "one.example"


async def test_a_delay_for_a_host_never_crawled_begins_with_its_first_crawl(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=1.0)
    await world.put(*urls_of(3))
    await world.host("one.example", delay_ms=4_000_000)
    assert (await world.lease()).host == "one.example"
    assert (await world.why()).reason == "politeness"


async def test_a_delay_where_there_was_none_begins_now(make_world: MakeWorld) -> None:
    """When the last page was leased is not known: it may have been a moment ago."""
    world = await make_world(min_delay_s=0.0, lookahead_s=0.0)
    await world.put(*urls_of(3))
    await world.lease()
    await world.host("one.example", delay_ms=5000)
    assert (await world.why()).retry_after_s == pytest.approx(5, abs=0.1)


async def closest_after(world: World, *leases: Lease) -> float:
    """How long after the latest of these leases its host's next page may be fetched."""
    last = leases[-1]
    for _ in range(1800):
        for lease in await world.next():
            if lease.host == last.host:
                return lease.not_before - last.not_before
        world.advance(0.05)
    raise AssertionError("the host does not come back")


async def test_a_delay_where_there_was_none_holds_for_pages_taken_ahead(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=10.0, min_delay_s=0.0, lookahead_s=1.0)
    await world.put(*urls_of(20))
    leases = await world.next(10)
    await world.host("one.example", delay_ms=2000)
    assert await closest_after(world, *leases) >= 2 - EXACT


async def test_a_delay_raised_in_a_pause_holds_for_a_page_taken_ahead(make_world: MakeWorld) -> None:
    world = await make_world(bandwidth=1.0, min_delay_s=1.0, lookahead_s=10.0)
    await world.put(*hosts_of(5), *(f"{url}more" for url in hosts_of(5)))
    leases = await world.next(5)
    assert leases[-1].not_before > world.clock.now_at + 3
    await world.host(leases[-1].host, paused_until=(world.clock.now_at + 1) * 1000)
    await world.host(leases[-1].host, delay_ms=5000)
    assert await closest_after(world, *leases) >= 5 - EXACT


async def test_a_lower_delay_does_not_end_the_rest_of_a_busy_host(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=1.0)
    await world.put(*urls_of(3))
    lease = await world.lease()
    await world.frontier.record_outcomes([outcome(lease.lease, kind="busy", retry_after_s=600.0)])
    await world.host("one.example", delay_ms=0)
    assert (await world.why()).retry_after_s > 500


async def test_an_operator_may_end_a_rest_that_an_outcome_asked_for(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=2.0)
    await world.put(*urls_of(3))
    lease = await world.lease()
    await world.frontier.record_outcomes([outcome(lease.lease, kind="busy", retry_after_s=600.0)])
    await world.host("one.example", delay_ms=1000, gap_ms=0)
    assert (await world.why()).retry_after_s > 500
    await world.host("one.example", busy_until=0)
    assert (await world.why()).retry_after_s < 10
    assert closest([lease.not_before, *await starts(world, 4)]) >= 1 - EXACT
    await audit(world.settings.redis_url, SHARDS)


async def test_an_operators_delay_can_be_taken_back(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=2.0)
    await world.put(*urls_of(10))
    await world.host("one.example", delay_ms=500)
    await world.host("one.example", delay_ms=-1)
    found = await starts(world, 5)
    assert closest(found) >= 2 - EXACT


async def test_no_page_of_a_paused_host_is_leased_until_the_pause_ends(world: World) -> None:
    await world.put(*urls_of(3))
    until = world.clock.now_at + 60
    await world.host("one.example", paused_until=until * 1000)
    assert (await world.why()).reason == "politeness"
    world.advance(59.9)
    assert await world.next() == []
    world.advance(0.2)
    assert len(await world.next()) == 1


async def test_an_outcome_of_a_paused_host_is_accepted_and_the_pause_stays(world: World) -> None:
    await world.put(*urls_of(3))
    lease = await world.lease()
    await world.host("one.example", paused_until=(world.clock.now_at + 60) * 1000)
    assert await world.report(lease) == "accepted"
    world.advance(1)
    assert await world.next() == []


async def test_a_page_added_to_a_paused_host_waits(world: World) -> None:
    await world.host("one.example", paused_until=(world.clock.now_at + 60) * 1000)
    await world.put(*urls_of(3))
    assert (await world.why()).reason == "politeness"
    await audit(world.settings.redis_url, SHARDS)


async def test_a_pause_that_is_lifted_serves_again(world: World) -> None:
    await world.put(*urls_of(3))
    await world.host("one.example", paused_until=(world.clock.now_at + DAY_S) * 1000)
    await world.host("one.example", paused_until=0)
    assert len(await world.next()) == 1


async def test_lifting_a_pause_keeps_the_operators_delay(world: World) -> None:
    await world.put(*urls_of(3))
    await world.host("one.example", delay_ms=5000)
    world.advance(10)
    first = await world.lease()
    await world.host("one.example", paused_until=(world.clock.now_at + DAY_S) * 1000)
    await world.host("one.example", paused_until=0)
    assert closest([first.not_before, *await starts(world, 6)]) >= 5


async def test_lifting_a_pause_keeps_the_default_rest(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=5.0)
    await world.put(*urls_of(3))
    first = await world.lease()
    world.advance(0.1)
    await world.host("one.example", paused_until=(world.clock.now_at + DAY_S) * 1000)
    await world.host("one.example", paused_until=0)
    assert closest([first.not_before, *await starts(world, 6)]) >= 5


async def test_a_pause_made_shorter_ends_at_the_new_instant(world: World) -> None:
    await world.put(*urls_of(3))
    await world.host("one.example", paused_until=(world.clock.now_at + 3600) * 1000)
    await world.host("one.example", paused_until=(world.clock.now_at + 60) * 1000)
    world.advance(61)
    assert len(await world.next()) == 1


async def test_rules_of_a_host_are_read_back(world: World) -> None:
    until = world.clock.now_at + 60
    await world.host("one.example", delay_ms=1500, gap_ms=4000, paused_until=until * 1000)
    host = await world.frontier.read_host(parse_url("https://one.example/"))
    assert host is not None
    assert (host.pages, host.min_delay_s, host.max_crawls_per_second) == (0, 1.5, 0.25)
    assert host.paused_until == pytest.approx(until)
    assert host.rests_until == pytest.approx(until, abs=0.01)


async def test_a_host_nobody_knows_has_no_rules(world: World) -> None:
    assert await world.frontier.read_host(parse_url("https://one.example/")) is None


async def test_setting_the_same_rules_twice_changes_nothing_more(world: World) -> None:
    await world.put(*urls_of(3))
    await world.host("one.example", delay_ms=1000)
    world.advance(1)
    before = await world.state(urls_of(1)[0])
    await world.host("one.example", delay_ms=1000)
    after = await world.state(urls_of(1)[0])
    assert after.host_rests_until_ms == before.host_rests_until_ms


@pytest.mark.parametrize(("retry_after_s", "rest_s"), [(0, 30), (120, 120), (1e9, DAY_S)])
async def test_a_busy_host_rests(world: World, retry_after_s: float, rest_s: float) -> None:
    """As long as it asked for, at least the first backoff, at most a day."""
    await world.put(*urls_of(3))
    lease = await world.lease()
    await world.report(lease, "busy", retry_after_s=retry_after_s)
    rests_until = (await world.state(lease.url)).host_rests_until_ms
    assert rests_until == pytest.approx((world.clock.now_at + rest_s) * 1000, abs=2)
    world.advance(rest_s - 0.1)
    assert await world.next() == []
    world.advance(0.2)
    assert len(await world.next()) == 1


async def test_a_host_that_stays_busy_rests_longer_each_time_and_one_success_forgives(
    world: World,
) -> None:
    await world.put(*urls_of(3))
    rests = []
    for kind in ("busy", "busy", "busy", "ok", "busy"):
        lease = await world.lease()
        await world.report(lease, kind)
        until_ms = (await world.state(lease.url)).host_rests_until_ms
        rests.append(round(until_ms / 1000 - world.clock.now_at) if until_ms else 0)
        world.advance(rests[-1] + 1)
    assert rests == [30, 60, 120, 0, 30]


async def test_a_shorter_rest_does_not_cut_a_longer_one(world: World) -> None:
    await world.put(*urls_of(3))
    first, second = await world.lease(), None
    world.advance(0.002)
    second = await world.lease()
    await world.report(first, "busy", retry_after_s=600)
    await world.report(second, "ok", retry_after_s=10)
    world.advance(599)
    assert await world.next() == []


async def test_retry_after_of_a_success_makes_the_host_rest_too(world: World) -> None:
    await world.put(*urls_of(3))
    await world.report(await world.lease(), "ok", retry_after_s=90)
    world.advance(89)
    assert await world.next() == []


async def test_other_hosts_are_served_while_one_rests(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=1.0)
    await world.put(*urls_of(2, "one.example"), *urls_of(2, "two.example"))
    await world.host("one.example", paused_until=(world.clock.now_at + DAY_S) * 1000)
    found = set()
    for _ in range(100):
        for lease in await world.next():
            found.add(lease.host)
            await world.report(lease)
        world.advance(0.1)
    assert found == {"two.example"}


async def test_a_resting_host_is_named_behind_many_leases(world: World) -> None:
    """The reason is politeness however many leases run out before the rest does."""
    await world.put(*urls_of(12, "one.example"), "https://two.example/")
    await world.host("two.example", paused_until=(world.clock.now_at + DAY_S) * 1000)
    for _ in range(12):
        await world.lease()
        world.advance(0.002)
    assert (await world.why()).reason == "politeness"


async def test_a_host_takes_turns_while_its_pages_are_due(make_world: MakeWorld) -> None:
    """Between its leases it stays where its rest ends, and no timer has to bring it back."""
    world = await make_world(min_delay_s=1.0)
    await crawl_long_ago(world, 3)
    found = [await world.lease()]
    for _ in range(2):
        assert (await world.why()).reason == "politeness"
        await audit(world.settings.redis_url, SHARDS)
        world.advance(1)
        found.append(await world.lease())
    assert sorted(lease.url for lease in found) == sorted(urls_of(3))
    await audit(world.settings.redis_url, SHARDS)


async def test_a_host_at_rest_as_an_earlier_release_kept_it_is_served_after_it(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=1.0)
    await crawl_long_ago(world, 2)
    first = await world.lease()
    prefix, host_id = world.prefix_of(first.url), parse_url(first.url).host_id
    until_ms = await world.server.execute("ZSCORE", f"{prefix}:turns", host_id)
    await world.server.execute("ZREM", f"{prefix}:turns", host_id)
    await world.server.execute("ZADD", f"{prefix}:resting", until_ms, host_id)
    world.advance(1.1)
    second = await world.lease()
    assert {first.url, second.url} == set(urls_of(2))
    await audit(world.settings.redis_url, SHARDS)


async def test_signals_beyond_the_beginning_of_time_do_not_move_a_host_that_never_rested(
    world: World,
) -> None:
    """Their page is due at a negative instant, which comes before the end of no rest."""
    (url,) = urls_of(1)
    await world.put(url, change_rate_per_day=1.0, precision=0.9999999, recall=0.9999999)
    await world.crawl()
    world.advance(1)
    for at in range(250):
        await world.signal(url, id=str(at))
    assert (await world.state(url)).due_score < 0
    await audit(world.settings.redis_url, SHARDS)
    await world.crawl()
    await audit(world.settings.redis_url, SHARDS)


@pytest.mark.parametrize("seconds", [0.0, 30.0])
async def test_a_host_whose_pages_are_removed_and_added_again_rests_on(
    make_world: MakeWorld, seconds: float
) -> None:
    """After a lease, and after an answer that asked for more."""
    world = await make_world(min_delay_s=10.0)
    await world.put(*urls_of(2))
    lease = await world.lease()
    if seconds:
        await world.report(lease, "busy", retry_after_s=seconds)
    await world.delete(*urls_of(2))
    assert (await world.why()).reason == "politeness"
    await world.put(*urls_of(2))
    await audit(world.settings.redis_url, SHARDS)
    assert await closest_after(world, lease) >= max(10, seconds) - EXACT


async def test_an_empty_host_is_forgotten_when_it_has_rested(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=10.0)
    await world.put(*urls_of(2))
    await world.lease()
    await world.delete(*urls_of(2))
    address = parse_url(urls_of(1)[0])
    assert await world.frontier.read_host(address) is not None
    world.advance(10)
    assert await world.next() == []
    assert await world.frontier.read_host(address) is None
