"""Outcomes: each counts once; success moves the anchor, failure only the schedule."""

from __future__ import annotations

import pytest

from service.address import parse_url
from service.store.records import FIXED, PARKED
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of, outcome, urls_of

PAGE = "https://one.example/"
HOUR_S = 3600.0


async def test_a_success_moves_the_anchor_to_the_fetch(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    world.advance(10)
    fetched_at = world.clock.now_at - 4
    await world.report(lease, fetched_at=fetched_at)
    state, record = await world.state(PAGE), await world.record(PAGE)
    assert state.anchor_ms == pytest.approx(fetched_at * 1000, abs=1)
    assert record.crawled_at_ms == pytest.approx(fetched_at * 1000, abs=1)
    assert state.lease_expires_ms is None


async def test_a_fetch_in_the_future_counts_as_now(world: World) -> None:
    await world.put(PAGE)
    await world.report(await world.lease(), fetched_at=world.clock.now_at + 1e6)
    record = await world.record(PAGE)
    assert record.crawled_at_ms == pytest.approx(world.clock.now_at * 1000, abs=1)


async def test_a_fetch_before_the_last_crawl_moves_nothing_back(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    before = (await world.record(PAGE)).crawled_at_ms
    world.advance(100)
    await world.report(await world.lease(), fetched_at=1.0)
    assert (await world.record(PAGE)).crawled_at_ms == before


@pytest.mark.parametrize(
    ("changed", "digests", "expected"),
    [
        (True, (b"aaa", b"aaa"), "changed"),
        (False, (b"aaa", b"bbb"), "unchanged"),
        (None, (b"aaa", b"bbb"), "changed"),
        (None, (b"aaa", b"aaa"), "unchanged"),
        (None, (b"", b"aaa"), "crawled"),
        (None, (b"aaa", b""), "crawled"),
    ],
)
async def test_what_was_found_is_told_by_the_crawler_or_by_the_digest(
    world: World, changed: bool | None, digests: tuple[bytes, bytes], expected: str
) -> None:
    await world.put(PAGE)
    await world.crawl(changed=True, digest=digests[0])
    world.advance(1)
    await world.crawl(changed=changed, digest=digests[1])
    assert (await world.record(PAGE)).result == expected


async def test_etag_and_last_modified_are_kept_until_replaced(world: World) -> None:
    await world.put(PAGE)
    await world.crawl(etag='"a"', modified=1000)
    world.advance(1)
    await world.crawl()
    kept = await world.record(PAGE)
    world.advance(1)
    await world.crawl(etag='"b"', modified=2000)
    replaced = await world.record(PAGE)
    assert (kept.etag, kept.modified) == ('"a"', 1000)
    assert (replaced.etag, replaced.modified) == ('"b"', 2000)


@pytest.mark.parametrize("kind", ["ok", "failed", "gone", "busy"])
async def test_a_repeated_outcome_counts_once(world: World, kind: str) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    words = [await world.report(lease, kind) for _ in range(5)]
    world.advance(3600)
    words.append(await world.report(lease, kind))
    assert words == ["accepted"] + ["duplicate"] * 5
    assert not (await world.record(PAGE)).flags & PARKED
    await audit(world.settings.redis_url, SHARDS)


async def test_a_repeat_within_one_batch_counts_once(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    words = await world.frontier.record_outcomes([outcome(lease.lease)] * 3)
    assert words == ["accepted", "duplicate", "duplicate"]


@pytest.mark.parametrize("other", [("ok", False), ("failed", None), ("gone", None), ("busy", None)])
async def test_a_second_outcome_that_says_otherwise_is_a_conflict(
    world: World, other: tuple[str, bool | None]
) -> None:
    await world.put(PAGE)
    lease = await world.crawl(changed=True)
    before = await world.state(PAGE)
    assert await world.report(lease, other[0], changed=other[1]) == "conflict"
    assert await world.state(PAGE) == before


@pytest.mark.parametrize("kind", ["failed", "gone"])
async def test_a_failed_fetch_holds_the_page_and_says_nothing_of_its_content(world: World, kind: str) -> None:
    await world.put(PAGE)
    await world.crawl(etag='"kept"')
    world.advance(100)
    before = await world.state(PAGE)
    await world.report(await world.lease(), kind)
    after, record = await world.state(PAGE), await world.record(PAGE)
    assert after.anchor_ms == before.anchor_ms
    assert (record.etag, record.crawled_at_ms) == ('"kept"', round(before.anchor_ms))
    assert after.held_until_ms == pytest.approx((world.clock.now_at + 30) * 1000, abs=2)
    world.advance(29.9)
    assert await world.next() == []
    world.advance(0.2)
    assert (await world.lease()).url == PAGE


async def test_a_page_that_keeps_failing_is_held_ever_longer_up_to_some_six_days(world: World) -> None:
    await world.put(PAGE)
    held = []
    for _ in range(17):
        await world.report(await world.lease(), "failed")
        held.append(round((await world.state(PAGE)).held_until_ms / 1000 - world.clock.now_at))
        world.advance(held[-1] + 1)
    assert held == [30 * 2**tries for tries in range(15)] + [30 * 2**14] * 2


@pytest.mark.parametrize("before", ["never-crawled", "crawled"])
async def test_pages_that_always_fail_do_not_take_all_crawls(make_world: MakeWorld, before: str) -> None:
    """Though they come before all others each time, as new or ever older ones; an hour has five slots."""
    world = await make_world(bandwidth=5 / HOUR_S)
    good, bad = urls_of(5, "good.example"), urls_of(5, "bad.example")
    if before == "crawled":
        await world.put_due(*good, *bad)
    else:
        await world.put_due(*good)
        await world.put(*bad)
    served: list[str] = []
    for _ in range(4 * 24 * 5):
        world.advance(HOUR_S / 5)
        lease = await world.lease()
        served.append(lease.host)
        await world.report(lease, "failed" if lease.host == "bad.example" else "ok")
    assert served[-2 * 24 * 5 :].count("good.example") > 0.9 * 2 * 24 * 5


async def test_a_success_ends_the_growing_backoff(world: World) -> None:
    await world.put(PAGE)
    for kind in ("failed", "failed", "ok", "failed"):
        await world.report(await world.lease(), kind)
        world.advance(3601)
    assert (await world.record(PAGE)).failures == 1


async def test_gone_twice_in_a_row_parks_the_page(world: World) -> None:
    await world.put(PAGE)
    for _ in range(2):
        await world.report(await world.lease(), "gone")
        world.advance(3601)
    assert (await world.state(PAGE)).parked_ms is not None
    assert (await world.why()).reason == "no-pages"
    assert (await audit(world.settings.redis_url, SHARDS))["parked"] == 1


async def test_gone_with_a_success_between_does_not_park(world: World) -> None:
    await world.put(PAGE)
    for kind in ("gone", "ok", "gone"):
        await world.report(await world.lease(), kind)
        world.advance(3601)
    assert (await world.state(PAGE)).parked_ms is None


async def test_a_parked_page_returns_when_a_crawl_finds_it(world: World) -> None:
    await world.put(PAGE)
    for _ in range(2):
        await world.report(await world.lease(), "gone")
        world.advance(3601)
    (word,) = await world.frontier.record_outcomes([outcome(url=PAGE)])
    assert word == "accepted"
    assert (await world.state(PAGE)).parked_ms is None
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 1


async def test_a_busy_host_puts_no_blame_on_the_page(world: World) -> None:
    await world.put(PAGE)
    await world.report(await world.lease(), "busy")
    state, record = await world.state(PAGE), await world.record(PAGE)
    assert state.held_until_ms is None
    assert state.due_score is not None
    assert record.failures == 0


async def test_an_outcome_without_a_lease_is_taken_by_address(world: World) -> None:
    await world.put(PAGE)
    fetched_at = world.clock.now_at - 5
    found = [outcome(url=PAGE, fetched_at=fetched_at)]
    assert await world.frontier.record_outcomes(found) == ["accepted"]
    assert await world.frontier.record_outcomes(found) == ["duplicate"]
    assert (await world.state(PAGE)).anchor_ms == pytest.approx(fetched_at * 1000, abs=1)


@pytest.mark.parametrize("kind", ["failed", "gone", "busy"])
async def test_a_repeated_failure_without_a_lease_counts_once(world: World, kind: str) -> None:
    """Otherwise a batch sent twice parks the page or doubles the backoff."""
    await world.put(PAGE)
    found = [outcome(url=PAGE, kind=kind, fetched_at=world.clock.now_at - 5)]
    assert await world.frontier.record_outcomes(found) == ["accepted"]
    before = await world.state(PAGE)
    assert await world.frontier.record_outcomes(found) == ["duplicate"]
    assert await world.state(PAGE) == before


async def test_an_outcome_without_a_lease_ends_a_lease(world: World) -> None:
    await world.put(PAGE)
    await world.lease()
    await world.frontier.record_outcomes([outcome(url=PAGE)])
    assert (await audit(world.settings.redis_url, SHARDS)) == {
        "waiting": 1,
        "leased": 0,
        "held": 0,
        "parked": 0,
    }


async def test_outcomes_of_unknown_pages_and_hosts_are_unknown(world: World) -> None:
    await world.put(PAGE)
    found = [outcome(url="https://one.example/other"), outcome(url="https://two.example/")]
    assert await world.frontier.record_outcomes(found) == ["unknown", "unknown"]


async def test_an_outcome_of_a_page_removed_while_leased_is_unknown(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    await world.delete(PAGE)
    assert await world.report(lease) == "unknown"
    assert await world.extend(lease, 60) == "unknown"
    assert await world.release(lease) == "unknown"
    assert await world.frontier.inspect(parse_url(PAGE)) is None


async def test_answers_of_a_batch_over_all_shards_come_in_the_order_of_the_items(
    make_world: MakeWorld,
) -> None:
    world = await make_world(lookahead_s=1.0)
    await world.put(*hosts_of(20))
    leases = await world.next(20)
    mixed = [outcome(lease.lease) for lease in leases]
    mixed[3:3] = [outcome(url="https://nowhere.example/")]
    words = await world.frontier.record_outcomes(mixed)
    assert words == ["accepted"] * 3 + ["unknown"] + ["accepted"] * 17


async def test_a_fixed_model_stays_fixed_through_outcomes(world: World) -> None:
    await world.put(PAGE, fixed=True, change_rate_per_day=4.0)
    await world.crawl()
    assert (await world.record(PAGE)).flags & FIXED
