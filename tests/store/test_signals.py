"""Signals: counted once, ageing their pages, kept over a crawl they speak after."""

from __future__ import annotations

import pytest

from service.domain import NewSignal
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, _address, hosts_of

PAGE = "https://one.example/"


async def counted(world: World, url: str = PAGE) -> int:
    return (await world.record(url)).signals


async def test_a_signal_with_an_id_counts_once(world: World) -> None:
    await world.put(PAGE)
    words = [await world.signal(PAGE, id="a"), await world.signal(PAGE, id="a")]
    world.advance(599)
    words.append(await world.signal(PAGE, id="a"))
    assert words == ["accepted", "duplicate", "duplicate"]
    assert await counted(world) == 1


async def test_signals_of_different_ids_all_count(world: World) -> None:
    await world.put(PAGE)
    for id_ in "abc":
        assert await world.signal(PAGE, id=id_) == "accepted"
    assert await counted(world) == 3


@pytest.mark.parametrize("apart_s", [0.0, 1.0, 30.0, 59.0])
@pytest.mark.parametrize("phase_s", [0.0, 19.0, 31.0])
async def test_signals_without_id_count_once_per_window(world: World, apart_s: float, phase_s: float) -> None:
    await world.put(PAGE)
    world.advance(phase_s)
    await world.signal(PAGE)
    world.advance(apart_s)
    assert await world.signal(PAGE) == "duplicate"
    assert await counted(world) == 1


async def test_a_window_straddling_two_generations_still_counts_once(world: World) -> None:
    await world.put(PAGE)
    world.advance(600 - world.clock.now_at % 600 - 1)
    await world.signal(PAGE)
    world.advance(2)
    assert await world.signal(PAGE) == "duplicate"


async def test_a_signal_without_id_two_windows_later_counts_again(world: World) -> None:
    await world.put(PAGE)
    await world.signal(PAGE)
    world.advance(120)
    assert await world.signal(PAGE) == "accepted"
    assert await counted(world) == 2


async def test_sources_are_counted_apart(world: World) -> None:
    await world.put(PAGE)
    await world.signal(PAGE, source="cdn")
    await world.signal(PAGE, source="sitemap")
    await world.signal(PAGE, source="cdn", id="x")
    names = await world.frontier.control.source_names()
    counts = {names[number]: count for number, count in (await world.record(PAGE)).sources.items()}
    assert counts == {"cdn": 2, "sitemap": 1}


async def test_a_source_keeps_its_number(make_world: MakeWorld) -> None:
    world, other = await make_world(), await make_world(bandwidth=None)
    first = await world.frontier.control.source_numbers({"a", "b"})
    second = await other.frontier.control.source_numbers({"b", "c", "a"})
    assert second["a"] == first["a"]
    assert second["b"] == first["b"]
    assert len(set(second.values())) == 3


async def test_sources_beyond_two_hundred_share_a_number(world: World) -> None:
    numbers = await world.frontier.control.source_numbers({f"s{at}" for at in range(210)})
    assert sorted(numbers.values()) == [*range(200), *[255] * 10]


async def test_a_signal_from_before_the_last_crawl_is_not_counted(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    world.advance(10)
    crawled_at = (await world.record(PAGE)).crawled_at_ms / 1000
    assert await world.signal(PAGE, at=crawled_at - 1, id="early") == "stale"
    assert await world.signal(PAGE, at=crawled_at + 1, id="late") == "accepted"
    assert await counted(world) == 1


async def test_signals_within_the_delay_after_a_crawl_are_not_counted(
    make_world: MakeWorld,
) -> None:
    world = await make_world(signal_delay_s=60)
    await world.put(PAGE)
    await world.crawl()
    world.advance(59)
    assert await world.signal(PAGE, id="a") == "stale"
    world.advance(2)
    assert await world.signal(PAGE, id="b") == "accepted"


async def test_a_signal_ages_its_page_by_its_credit(world: World) -> None:
    """One signal is worth κ/α seconds."""
    await world.put(PAGE, change_rate_per_day=1.0, precision=0.5, recall=0.5)
    await world.crawl()
    world.advance(1)
    before = await world.state(PAGE)
    await world.signal(PAGE, id="a")
    after = await world.state(PAGE)
    credit_s = 0.6931471805599453 / (0.5 / 86400)
    assert before.anchor_ms - after.anchor_ms == pytest.approx(credit_s * 1000, rel=1e-5)
    assert after.due_score - before.due_score == pytest.approx(-credit_s * 1000, rel=1e-5)
    await audit(world.settings.redis_url, SHARDS)


async def test_a_page_that_was_signalled_is_served_before_its_equals(world: World) -> None:
    await world.put(*hosts_of(5))
    for _ in range(5):
        await world.crawl()
        world.advance(0.002)
    world.advance(60)
    await world.signal("https://h3.example/", id="a")
    lease = await world.lease()
    assert lease.url == "https://h3.example/"
    assert lease.signals == 1


async def test_a_signal_on_a_page_never_crawled_leaves_it_in_its_place(world: World) -> None:
    await world.put(PAGE)
    before = await world.state(PAGE)
    assert await world.signal(PAGE) == "accepted"
    after = await world.state(PAGE)
    assert (after.anchor_ms, after.due_score) == (before.anchor_ms, before.due_score)


async def test_a_crawl_clears_the_signals_before_it(world: World) -> None:
    await world.put(PAGE)
    await world.signal(PAGE, id="a")
    world.advance(1)
    await world.crawl()
    record = await world.record(PAGE)
    assert (record.signals, record.sources) == (0, {})


async def test_a_signal_during_the_lease_stays_counted_if_it_speaks_after_the_fetch(
    world: World,
) -> None:
    await world.put(PAGE, change_rate_per_day=1.0, precision=0.5, recall=0.5)
    await world.crawl()
    world.advance(100)
    lease = await world.lease()
    fetched_at = world.clock.now_at + 1
    world.advance(5)
    await world.signal(PAGE, at=fetched_at - 0.5, id="before", source="cdn")
    await world.signal(PAGE, at=fetched_at + 0.5, id="after", source="sitemap")
    await world.report(lease, fetched_at=fetched_at)
    record, state = await world.record(PAGE), await world.state(PAGE)
    numbers = await world.frontier.control.source_numbers({"sitemap"})
    assert (record.signals, record.sources) == (1, {numbers["sitemap"]: 1})
    credit_s = 0.6931471805599453 / (0.5 / 86400)
    assert state.anchor_ms == pytest.approx((fetched_at - credit_s) * 1000, rel=1e-9)


async def test_a_signal_during_a_failed_lease_stays_counted(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    world.advance(1)
    lease = await world.lease()
    await world.signal(PAGE, id="a")
    await world.report(lease, "failed")
    assert await counted(world) == 1
    await audit(world.settings.redis_url, SHARDS)


async def test_a_signal_during_an_expired_lease_stays_counted(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    world.advance(1)
    await world.lease()
    await world.signal(PAGE, id="a")
    world.advance(61)
    assert (await world.lease()).signals == 1
    await audit(world.settings.redis_url, SHARDS)


async def test_a_signal_on_a_held_or_parked_page_does_not_make_it_wait(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    world.advance(1)
    await world.report(await world.lease(), "gone")
    assert await world.signal(PAGE, id="a") == "accepted"
    assert (await audit(world.settings.redis_url, SHARDS))["held"] == 1
    world.advance(31)
    await world.report(await world.lease(), "gone")
    assert await world.signal(PAGE, id="b") == "accepted"
    assert (await audit(world.settings.redis_url, SHARDS))["parked"] == 1


async def test_signals_of_unknown_pages_leave_no_trace(world: World) -> None:
    await world.put(PAGE)
    before = {key for key in await world.keys() if ":sources" not in key}
    assert await world.signal("https://one.example/other", id="a") == "unknown"
    assert await world.signal("https://two.example/", id="a") == "unknown"
    assert {key for key in await world.keys() if ":sources" not in key} == before


async def test_a_signal_seen_before_the_page_was_known_counts_when_it_is(world: World) -> None:
    await world.signal(PAGE, id="a")
    await world.put(PAGE)
    assert await world.signal(PAGE, id="a") == "accepted"


async def test_memory_of_seen_signals_expires(world: World) -> None:
    await world.put(PAGE)
    await world.signal(PAGE, id="a")
    (seen,) = [key for key in await world.keys() if ":seen:" in key]
    assert 0 < await world.server.execute("PTTL", seen) <= 1_800_000


async def test_a_repeat_within_one_batch_counts_once(world: World) -> None:
    await world.put(PAGE)
    signal = NewSignal(_address(PAGE), "api", None, b"12345678")
    words = await world.frontier.record_signals([signal] * 3)
    assert words == ["accepted", "duplicate", "duplicate"]


async def test_a_hundred_signals_of_certain_worth_do_not_make_a_page_new(world: World) -> None:
    """Credit is bounded: a page whose every change is signalled stays a page once crawled."""
    await world.put(PAGE, change_rate_per_day=1.0, precision=1.0, recall=1.0)
    await world.crawl()
    world.advance(1)
    for at in range(100):
        await world.signal(PAGE, id=str(at))
    assert await counted(world) == 100
    assert (await world.state(PAGE)).due_score > -1e15
    await audit(world.settings.redis_url, SHARDS)


async def test_signals_beyond_what_a_record_can_count_are_harmless(world: World) -> None:
    await world.put(PAGE)
    for source in range(40):
        await world.signal(PAGE, source=f"s{source}")
    record = await world.record(PAGE)
    assert record.signals == 40
    assert len(record.sources) == 16
    assert record.path == "s/"
    await audit(world.settings.redis_url, SHARDS)
