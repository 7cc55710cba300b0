"""The register: adding, updating and removing pages, colliding hashes, nothing left behind."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from service.address import parse_url
from service.domain import Belief, NewPage
from service.store.records import CRAWLED, FIXED, STARTED
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, colliding, hosts_of, outcome, urls_of

PAGE = "https://one.example/"


async def test_a_new_page_waits_at_once(world: World) -> None:
    assert await world.put(PAGE) == ["added"]
    assert (await world.state(PAGE)).due_score < -1e15
    assert (await world.lease()).url == PAGE


async def test_adding_again_changes_nothing(world: World) -> None:
    await world.put(PAGE, importance=3.0)
    before = await world.record(PAGE)
    assert await world.put(PAGE) == ["updated"]
    after = await world.record(PAGE)
    assert float(after.model.importance[0]) == 3.0
    assert after.model.silent_rate == before.model.silent_rate
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 1


async def test_the_same_page_twice_in_a_batch_is_one_page(world: World) -> None:
    assert await world.put(PAGE, PAGE) == ["added", "updated"]
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 1


async def test_a_known_page_keeps_its_history(world: World) -> None:
    await world.put(PAGE)
    await world.crawl(etag='"kept"')
    await world.signal(PAGE, id="a")
    before, state = await world.record(PAGE), await world.state(PAGE)
    await world.put(PAGE, importance=7, change_rate_per_day=9, precision=0.3, recall=0.2)
    after = await world.record(PAGE)
    assert (after.etag, after.crawled_at_ms, after.signals) == (
        before.etag,
        before.crawled_at_ms,
        before.signals,
    )
    assert after.flags & CRAWLED
    assert (await world.state(PAGE)).anchor_ms == state.anchor_ms
    await audit(world.settings.redis_url, SHARDS)


async def test_an_update_of_one_field_keeps_the_others(world: World) -> None:
    await world.put(PAGE, importance=2, change_rate_per_day=8, precision=0.8, recall=0.6)
    await world.put(PAGE, importance=5)
    await world.put(PAGE, change_rate_per_day=4)
    model = (await world.record(PAGE)).model
    assert float(model.importance[0]) == 5
    assert float(model.change_rate[0]) * 86400 == pytest.approx(4, rel=1e-5)
    assert float(model.precision[0]) == pytest.approx(0.8, rel=1e-5)
    assert float(model.recall[0]) == pytest.approx(0.6, rel=1e-5)


async def test_a_new_importance_moves_a_new_page_in_the_queue(world: World) -> None:
    await world.put(*hosts_of(3), importance=2.0)
    await world.put("https://h1.example/", importance=9.0)
    assert (await world.lease()).url == "https://h1.example/"


async def test_fixed_stays_until_a_whole_model_replaces_it(world: World) -> None:
    await world.put(PAGE, fixed=True)
    await world.put(PAGE, importance=2)
    assert (await world.record(PAGE)).flags & FIXED
    await world.put(PAGE, importance=2, change_rate_per_day=4, precision=0.5, recall=0.5)
    assert not (await world.record(PAGE)).flags & FIXED


async def test_what_was_fixed_becomes_a_starting_belief_when_a_user_says_so(world: World) -> None:
    await world.put(PAGE, fixed=True, change_rate_per_day=4)
    assert await world.put(PAGE, fixed=False) == ["updated"]
    record = await world.record(PAGE)
    assert record.flags & (FIXED | STARTED) == STARTED
    assert float(record.model.change_rate[0]) * 86400 == pytest.approx(4, rel=1e-5)
    await world.put("https://two.example/")
    await world.put("https://two.example/", fixed=False)
    assert not (await world.record("https://two.example/")).flags & (FIXED | STARTED)


async def test_an_update_of_a_leased_page_leaves_the_lease(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    await world.put(PAGE, importance=5, change_rate_per_day=2, precision=0.5, recall=0.5)
    assert (await audit(world.settings.redis_url, SHARDS))["leased"] == 1
    assert await world.report(lease) == "accepted"


async def test_updates_at_the_same_time_are_all_kept(make_world: MakeWorld) -> None:
    """Each changes another field; the version makes the losers read again."""
    worlds = [await make_world(bandwidth=1000 if at == 0 else None) for at in range(3)]
    await worlds[0].put(PAGE)
    await asyncio.gather(
        worlds[0].put(PAGE, importance=5),
        worlds[1].put(PAGE, change_rate_per_day=3),
        worlds[2].put(PAGE, precision=0.9),
    )
    model = (await worlds[0].record(PAGE)).model
    assert float(model.importance[0]) == 5
    assert float(model.change_rate[0]) * 86400 == pytest.approx(3, rel=1e-3)
    assert float(model.precision[0]) == pytest.approx(0.9, rel=1e-3)


async def test_contradictory_beliefs_are_refused_and_the_others_taken(world: World) -> None:
    wrong = Belief(change_rate_per_day=1.0, precision=0.5, recall=0.5, signal_rate_per_day=100.0)
    pages = [
        NewPage(parse_url(PAGE), wrong, False),
        NewPage(parse_url("https://two.example/"), Belief(), False),
    ]
    words = await world.frontier.put_pages(pages)
    assert "must equal" in words[0]
    assert words[1] == "added"


async def test_removing_is_safe_to_repeat(world: World) -> None:
    await world.put(PAGE)
    assert await world.delete(PAGE, PAGE) == ["deleted", "unknown"]
    assert await world.delete(PAGE, "https://never.example/") == ["unknown", "unknown"]


async def test_a_removed_page_is_not_served(world: World) -> None:
    await world.put(PAGE, "https://one.example/other")
    await world.delete(PAGE)
    assert (await world.lease()).url == "https://one.example/other"
    world.advance(1)
    assert await world.next() == []


async def test_after_every_page_is_removed_nothing_of_them_is_left(make_world: MakeWorld) -> None:
    """In every state a page can be in, on small hosts and on a large one."""
    world = await make_world(lookahead_s=1.0, min_delay_s=1.0)
    pages = [*hosts_of(12), *urls_of(150)]
    await world.put(*pages)
    leases = await world.next(8)
    for lease, kind in zip(leases, ("ok", "failed", "gone", "busy"), strict=False):
        await world.report(lease, kind)
    await world.signal(leases[5].url, id="a")
    gone = leases[2].url
    await world.frontier.record_outcomes([outcome(url=gone, kind="gone")])
    counts = await audit(world.settings.redis_url, SHARDS)
    assert all(counts.values()), counts
    assert await world.delete(*pages) == ["deleted"] * len(pages)
    assert await audit(world.settings.redis_url, SHARDS) == dict.fromkeys(counts, 0)
    world.advance(86400)
    assert await world.next() == []  # until their rests are over hosts are remembered
    assert await audit(world.settings.redis_url, SHARDS) == dict.fromkeys(counts, 0)
    left = {key.split(":", 2)[-1].split(":")[0] for key in await world.keys() if "control" not in key}
    assert left <= {"meta", "seen", "counted"}  # how many signals a source has sent is not of a page


async def test_an_empty_host_keeps_only_an_operators_rules(world: World) -> None:
    await world.put(*urls_of(3))
    await world.host("one.example", delay_ms=5000)
    await world.delete(*urls_of(3))
    host = await world.frontier.read_host(parse_url(PAGE))
    assert host is not None
    assert (host.pages, host.min_delay_s) == (0, 5.0)
    await world.delete(*urls_of(3))
    await audit(world.settings.redis_url, SHARDS)


async def test_a_large_host_emptied_under_rules_can_fill_again(world: World) -> None:
    await world.put(*urls_of(200))
    await world.host("one.example", delay_ms=0)
    await world.delete(*urls_of(200))
    assert await world.put(*urls_of(200)) == ["added"] * 200
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 200


async def test_a_host_emptied_and_filled_again_starts_anew(world: World) -> None:
    await world.put(*urls_of(200))
    await world.delete(*urls_of(200))
    await world.put(*urls_of(5))
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 5


async def test_colliding_pages_are_kept_apart(world: World) -> None:
    pages = colliding(*urls_of(4))
    assert await world.put(*pages) == ["added"] * 4
    assert [(await world.record(page)).path for page in pages] == [page.path for page in pages]
    assert await world.put(*pages, importance=2.0) == ["updated"] * 4
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 4


async def test_a_page_that_finds_no_free_place_is_refused(world: World) -> None:
    pages = colliding(*urls_of(5))
    assert (await world.put(*pages))[-1] == "crowded"
    await audit(world.settings.redis_url, SHARDS)


async def test_colliding_pages_wrap_around_the_end_of_the_hash(world: World) -> None:
    pages = [replace(page, page_id=2**31 - 1) for page in colliding(*urls_of(3))]
    assert await world.put(*pages) == ["added"] * 3
    assert await world.delete(pages[0]) == ["deleted"]
    assert (await world.record(pages[2])).path == pages[2].path


@pytest.mark.parametrize("removed", [0, 1, 2])
async def test_pages_behind_a_removed_one_are_still_found(world: World, removed: int) -> None:
    pages = colliding(*urls_of(3))
    await world.put(*pages)
    await world.delete(pages[removed])
    for at, page in enumerate(pages):
        found = await world.frontier.inspect(page)
        assert (found is None) == (at == removed)
    kept = [page for at, page in enumerate(pages) if at != removed]
    assert [await world.signal(page, id="a") for page in kept] == ["accepted"] * 2
    assert await world.signal(pages[removed], id="a") == "unknown"
    await audit(world.settings.redis_url, SHARDS)


async def test_a_page_added_into_a_gap_is_found(world: World) -> None:
    pages = colliding(*urls_of(3))
    await world.put(*pages[:2])
    await world.delete(pages[0])
    assert await world.put(pages[2]) == ["added"]
    assert await world.put(pages[1], importance=3.0) == ["updated"]
    assert (await world.record(pages[2])).path == pages[2].path
    assert (await audit(world.settings.redis_url, SHARDS))["waiting"] == 2


async def test_colliding_pages_are_leased_and_reported_each_by_its_own(world: World) -> None:
    pages = colliding(*urls_of(3))
    await world.put(*pages)
    leases = []
    for _ in pages:
        leases.append(await world.lease())
        world.advance(0.002)
    for at, lease in enumerate(leases):
        assert await world.report(lease, etag=str(at)) == "accepted"
    etags = {page.url: (await world.record(page)).etag for page in pages}
    assert etags == {lease.url: str(at) for at, lease in enumerate(leases)}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_removed_colliding_pages_leave_nothing(world: World, order: tuple[int, int, int]) -> None:
    pages = colliding(*urls_of(3))
    await world.put(*pages)
    for at in order:
        await world.delete(pages[at])
    assert {key for key in await world.keys() if ":r:" in key} == set()


async def test_colliding_pages_survive_the_growth_of_their_host(world: World) -> None:
    pages = colliding(*urls_of(3, "one.example"))
    await world.put(*pages)
    await world.put(*[f"https://one.example/more/{at}" for at in range(300)])
    for page in pages:
        assert (await world.record(page)).path == page.path
    await audit(world.settings.redis_url, SHARDS)


async def test_a_listing_gives_every_page_of_a_host_once(world: World) -> None:
    pages = urls_of(700)
    await world.put(*pages)
    found, cursor = [], 0
    while cursor is not None:
        records, cursor = await world.frontier.list_host(parse_url(PAGE), cursor)
        found += records
    assert len(found) == 700
    assert await world.frontier.list_host(parse_url("https://two.example/"), 0) is None


async def test_http_and_https_are_two_pages_of_one_host(world: World) -> None:
    await world.put("http://one.example/", "https://one.example/")
    host = await world.frontier.read_host(parse_url(PAGE))
    assert host is not None
    assert host.pages == 2
