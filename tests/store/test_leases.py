"""Leases: one holder, fenced by tokens, taken back when they run out, extended or given back."""

from __future__ import annotations

import pytest

from service.address import parse_url
from service.domain import Lease, LeaseKey
from service.store import keys
from service.store.records import LEASED, read_heads
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of, key_of, urls, urls_of

PAGE = "https://one.example/"


async def test_an_expired_lease_is_offered_again_without_any_worker(world: World) -> None:
    await world.put(PAGE)
    await world.lease()
    world.advance(59.99)
    assert await world.next() == []
    world.advance(0.02)
    assert (await world.lease()).url == PAGE


async def test_a_thousand_expired_leases_are_all_offered_again(make_world: MakeWorld) -> None:
    """More than one call's share of timers: the calls within the next second take the rest."""
    world = await make_world(bandwidth=1e6, lookahead_s=1.0, shards=1)
    await world.put(*urls_of(1000))
    assert len(await world.next(1000)) == 1000
    world.advance(62)
    found = 0
    for _ in range(20):
        found += len(await world.next(1000))
        world.advance(0.05)
    assert found == 1000
    await audit(world.settings.redis_url, 1)


async def test_a_late_outcome_of_a_lease_nobody_took_over_is_accepted(world: World) -> None:
    await world.put(PAGE, "https://two.example/", "https://three.example/")
    leases = [await world.lease() for _ in range(3) if not world.advance(0.002)]
    world.advance(61)
    await world.lease()  # takes the expired leases back, and one of the pages
    late = [await world.report(lease) for lease in leases]
    assert sorted(late) == ["accepted", "accepted", "stale"]
    await audit(world.settings.redis_url, SHARDS)


async def test_a_late_outcome_before_anybody_noticed_the_expiry_is_accepted(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    world.advance(1000)
    assert await world.report(lease) == "accepted"
    await audit(world.settings.redis_url, SHARDS)


async def test_an_outcome_after_the_page_was_leased_again_is_stale(world: World) -> None:
    await world.put(PAGE)
    zombie = await world.lease()
    world.advance(61)
    owner = await world.lease()
    before = await world.state(PAGE)
    assert await world.report(zombie, etag='"old"') == "stale"
    assert (await world.state(PAGE)).record == before.record
    assert await world.report(owner) == "accepted"


async def test_a_zombie_can_neither_extend_nor_release(world: World) -> None:
    await world.put(PAGE)
    zombie = await world.lease()
    world.advance(61)
    await world.lease()
    before = await world.state(PAGE)
    assert await world.extend(zombie, 600) == "stale"
    assert await world.release(zombie) == "stale"
    assert await world.state(PAGE) == before


async def test_a_lease_leaves_the_record_as_it_is(world: World) -> None:
    """Its token stands beside until the lease ends, which writes it into the record."""
    await world.put(*hosts_of(2))
    before = await _records(world)
    leases = [await world.lease() for _ in range(2) if not world.advance(0.002)]
    assert await _records(world) == before
    assert {len(tokens) for tokens in await _tokens(world)} == {1}
    await world.report(leases[0])
    await world.release(leases[1])
    assert await _tokens(world) == []
    assert not set(await _records(world)) & set(before)
    await audit(world.settings.redis_url, SHARDS)


async def test_leases_that_an_earlier_release_kept_in_records_are_good(world: World) -> None:
    await world.frontier.prepare()
    await world.put(*hosts_of(6))
    leases = [await world.lease() for _ in range(6) if not world.advance(0.002)]
    await _move_leases_into_records(world, leases)
    await world.server.execute("HSET", "f:{control}", "layout", 6)
    await world.frontier.prepare()
    reported, released, removed, parked, extended, expired = leases
    assert await world.signal(reported.url) == "accepted"
    assert await world.report(reported) == "accepted"
    assert await world.release(released) == "released"
    assert await world.delete(removed.url) == ["deleted"]
    assert await world.frontier.park([parse_url(parked.url)], parks=True) == ["parked"]
    assert float(await world.extend(extended, 600)) > 0
    world.advance(61)
    assert expired.url in urls([await world.lease() for _ in range(3) if not world.advance(0.002)])
    assert await world.report(extended) == "accepted"
    await audit(world.settings.redis_url, SHARDS)


async def test_tokens_of_a_page_increase(world: World) -> None:
    """By sequence; the low sixteen bits are salt."""
    await world.put(PAGE)
    tokens = []
    for at in range(30):
        lease = await world.lease()
        tokens.append(key_of(lease).token >> 16)
        if at % 3 == 0:
            await world.report(lease)
        elif at % 3 == 1:
            await world.release(lease)
        world.advance(61)
    assert tokens == sorted(set(tokens))


async def test_tokens_go_on_increasing_after_the_page_was_removed_and_added(world: World) -> None:
    await world.put(PAGE, "https://two.example/")
    old = await world.lease()
    await world.delete(old.url)
    await world.put(old.url, importance=5)
    new = await world.next() or (world.advance(0.002) or await world.next())
    assert key_of(new[0]).token >> 16 > key_of(old).token >> 16
    assert await world.report(old) == "stale"


async def test_a_released_page_waits_again_as_if_it_had_not_been_leased(world: World) -> None:
    await world.put(PAGE)
    await world.crawl()
    world.advance(100)
    before = await world.state(PAGE)
    assert await world.release(await world.lease()) == "released"
    after = await world.state(PAGE)
    assert (after.anchor_ms, after.due_score) == (before.anchor_ms, before.due_score)
    assert after.lease_expires_ms is None
    world.advance(0.002)
    assert (await world.lease()).url == PAGE


async def test_a_release_is_no_expiry(world: World) -> None:
    await world.put(PAGE)
    for _ in range(3):
        await world.release(await world.lease())
        world.advance(0.002)
    assert int(read_heads([(await world.state(PAGE)).record])[0]["expiries"]) == 0


async def test_expiries_are_counted_until_a_crawl_succeeds(world: World) -> None:
    async def expiries() -> int:
        return int(read_heads([(await world.state(PAGE)).record])[0]["expiries"])

    await world.put(PAGE)
    await world.lease()
    world.advance(61)
    lease = await world.lease()
    assert await expiries() == 1
    await world.report(lease)
    assert await expiries() == 0


async def test_an_outcome_after_the_release_is_stale(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    await world.release(lease)
    assert await world.report(lease) == "stale"
    assert await world.release(lease) == "stale"


async def test_a_release_keeps_the_hosts_rest(make_world: MakeWorld) -> None:
    world = await make_world(min_delay_s=10.0)
    await world.put(*urls_of(3))
    await world.release(await world.lease())
    world.advance(9)
    assert await world.next() == []


async def test_an_extended_lease_runs_out_later(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    world.advance(50)
    assert float(await world.extend(lease, 60)) == pytest.approx((world.clock.now_at + 60) * 1000, abs=2)
    world.advance(59)
    assert await world.next() == []
    world.advance(2)
    assert (await world.lease()).url == PAGE


async def test_a_lease_is_never_moved_earlier(world: World) -> None:
    await world.put(PAGE)
    lease = await world.lease()
    assert float(await world.extend(lease, 1)) == pytest.approx(lease.lease_expires_at * 1000, abs=1)


async def test_an_expired_lease_cannot_be_extended(world: World) -> None:
    await world.put(PAGE, "https://two.example/")
    lease = await world.lease()
    world.advance(61)
    await world.lease()
    word = await world.extend(lease, 60)
    assert word == "stale"


async def test_a_second_outcome_cannot_revive_a_lease(world: World) -> None:
    await world.put(PAGE)
    lease = await world.crawl()
    assert await world.extend(lease, 60) == "stale"
    assert await world.release(lease) == "stale"


@pytest.mark.parametrize("verb", ["report", "extend", "release"])
async def test_a_forged_lease_changes_nothing(world: World, verb: str) -> None:
    await world.put(PAGE, "https://two.example/")
    lease = await world.lease()
    key = key_of(lease)
    forged = [
        LeaseKey(key.host_id, key.page_id, key.token + 1),
        LeaseKey(key.host_id, key.page_id, key.token + 65536),
        LeaseKey(key.host_id, key.page_id ^ 1, key.token),
        LeaseKey("AAAAAAAAAAA", key.page_id, key.token),
        LeaseKey(key.host_id, key.page_id, 2**48 - 1),
    ]
    await world.frontier.close()  # so that nothing is left to be counted
    before = await snapshot(world)
    for fake in forged:
        if verb == "report":
            word = await world.report(str(fake), "gone")
        elif verb == "extend":
            (word,) = await world.frontier.extend([fake], 600)
        else:
            (word,) = await world.frontier.release([fake])
        assert word in ("stale", "unknown")
    assert await snapshot(world) == before


async def test_a_lease_of_another_page_changes_nothing(world: World) -> None:
    await world.put(*hosts_of(2))
    first = await world.lease()
    world.advance(0.002)
    second = await world.lease()
    mixed = LeaseKey(key_of(first).host_id, key_of(first).page_id, key_of(second).token)
    if mixed == key_of(first):
        pytest.skip("both tokens are equal")
    before = await world.state(first.url)
    assert await world.report(str(mixed)) == "stale"
    assert await world.state(first.url) == before


async def snapshot(world: World) -> dict[str, bytes]:
    """Every key but the clocks."""
    keys = sorted(key for key in await world.keys() if not key.endswith(":meta"))
    return {key: await world.server.execute("DUMP", key) for key in keys}


async def test_an_id_that_comes_again_with_fewer_pages_gets_no_more_than_those(
    make_world: MakeWorld,
) -> None:
    world = await make_world(lookahead_s=1.0)
    await world.put(*hosts_of(8))
    first = await world.next(5, "name")
    assert len(first) == 5
    assert urls(await world.next(2, "name")) == urls(first)[:2]
    assert urls(await world.next(5, "name")) == urls(first)


async def _records(world: World) -> list[bytes]:
    found = [await world.server.execute("HVALS", key) for key in await world.keys() if ":r:" in key]
    return sorted(record for records in found for record in records)


async def _tokens(world: World) -> list[list[bytes]]:
    """Of each shard that has leases."""
    return [await world.server.execute("HVALS", key) for key in await world.keys() if key.endswith(":tokens")]


async def _move_leases_into_records(world: World, leases: list[Lease]) -> None:
    """As the layout before this one had them."""
    for lease in leases:
        key, prefix = key_of(lease), world.prefix_of(lease.url)
        records = keys.records(prefix, key.host_id, 0)
        record = await world.server.execute("HGET", records, key.page_id)
        leased = bytes([record[0] | LEASED]) + record[1:62] + key.token.to_bytes(6, "little") + record[68:]
        await world.server.execute("HSET", records, key.page_id, leased)
        await world.server.execute("HDEL", keys.tokens(prefix), f"{key.host_id}:{key.page_id}")
