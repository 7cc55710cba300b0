"""The door to the store: the library comes back by itself, failures become one kind of error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis.asyncio as redis_asyncio
from redis.crc import key_slot

from service.embedded import EmbeddedServer
from service.errors import InvalidSetting, StoreUnavailable
from service.store.connection import Server
from service.store.keys import shard_prefixes
from service.store.scripts import function_name, library
from tests.deadline import overdue_s
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.world import SHARDS, World, hosts_of

PAGE = "https://one.example/"


async def test_no_call_fails_when_the_library_is_gone(world: World) -> None:
    flush = ("FUNCTION", "FLUSH")
    await world.server.everywhere(*flush)
    assert await world.put(PAGE) == ["added"]
    await world.server.everywhere(*flush)
    lease = await world.lease()
    await world.server.everywhere(*flush)
    assert float(await world.extend(lease, 60)) > 0
    await world.server.everywhere(*flush)
    assert await world.signal(PAGE) == "accepted"
    await world.server.everywhere(*flush)
    assert await world.report(lease) == "accepted"
    await world.server.everywhere(*flush)
    assert await world.state(PAGE)
    await world.server.everywhere(*flush)
    await world.host("one.example", delay_ms=0)
    await world.server.everywhere(*flush)
    await world.bandwidth(5)
    await world.server.everywhere(*flush)
    await world.frontier.ready()
    await world.server.everywhere(*flush)
    assert await world.delete(PAGE) == ["deleted"]


async def test_a_hundred_callers_find_the_library_gone_and_none_fails(
    make_world: MakeWorld,
) -> None:
    worlds = [await make_world(), await make_world(bandwidth=None)]
    await worlds[0].put(*hosts_of(20))
    for flush in range(3):
        await worlds[0].server.everywhere("FUNCTION", "FLUSH")
        calls = [
            worlds[at % 2].signal(f"https://h{at % 20}.example/", id=f"{flush}.{at}") for at in range(100)
        ]
        assert await asyncio.gather(*calls) == ["accepted"] * 100
    await audit(worlds[0].settings.redis_url, SHARDS)


async def test_the_library_loads_twice_without_complaint(world: World) -> None:
    await world.server.load()
    await world.server.load()


async def test_another_release_of_the_library_may_share_the_server(world: World) -> None:
    source = "#!lua name=freshet_other\nredis.register_function('next_other', function() end)"
    await world.server.everywhere("FUNCTION", "LOAD", source)
    await world.put(PAGE)
    assert len(await world.next()) == 1
    await world.server.everywhere("FUNCTION", "DELETE", "freshet_other")


def test_functions_carry_the_version_of_the_library() -> None:
    version, source = library()
    assert function_name("next") == f"next_{version}"
    assert source.startswith(f"#!lua name=freshet_{version}\n")


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    server = Server(f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await server.call("now", ["f:{control}"], [""])
    await server.close()


async def test_a_refusal_of_the_server_is_unavailable_with_its_words(world: World) -> None:
    with pytest.raises(StoreUnavailable, match=r"refused.*unknown command"):
        await world.server.execute("NOSUCHCOMMAND")


async def test_a_server_that_hangs_is_given_up_by_the_deadline(tmp_path: Path) -> None:
    """Real time is the subject: somebody listens and never answers."""

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    listener = await asyncio.start_unix_server(silent, tmp_path / "silent.sock")
    server = Server(f"unix://{tmp_path}/silent.sock")
    (asked,) = asking = [asyncio.create_task(server.execute("PING"))]
    assert await overdue_s(asyncio.wait(asking)) < 0.75
    with pytest.raises(StoreUnavailable):
        await asked
    await server.close()
    for writer in writers:
        writer.close()
    listener.close()
    await listener.wait_closed()


@pytest.mark.parametrize(
    "url", ["redis+cluster://a:1/0", "redis+cluster://", "redis+cluster://a:b", "nonsense://x", "localhost"]
)
async def test_a_url_that_cannot_be_used_is_a_setting_error(url: str) -> None:
    with pytest.raises(InvalidSetting):
        Server(url)


async def test_closing_leaves_no_connection_open(any_server: EmbeddedServer) -> None:
    async with redis_asyncio.Redis.from_url(any_server.url) as client:

        async def connections() -> set[str]:
            return {each["id"] for each in await client.client_list()}

        before = await connections()  # of earlier tests, too, that it is yet to hear the ends of
        server = Server(any_server.url)
        await asyncio.gather(*(server.execute("PING") for _ in range(5)))
        assert await connections() - before
        await server.close()
        while await connections() - before:  # noqa: ASYNC110 - it may hear of the ends after it is asked
            await asyncio.sleep(0.01)


async def test_the_number_of_shards_is_fixed_at_the_first_start(world: World) -> None:
    await world.frontier.control.claim_shards(4)
    await world.frontier.control.claim_shards(4)
    with pytest.raises(InvalidSetting, match="FRESHET_SHARDS=4"):
        await world.frontier.control.claim_shards(8)


async def test_every_key_of_a_shard_shares_its_hash_slot(world: World) -> None:
    await world.put(*hosts_of(8))
    await world.crawl()
    await world.signal("https://h1.example/")
    tags = {prefix: f"{{{prefix[3:-1]}}}" for prefix in shard_prefixes(SHARDS)}
    for key in await world.keys():
        owners = [tag for prefix, tag in tags.items() if key.startswith(prefix + ":")]
        assert len(owners) == 1 or "{control}" in key


@pytest.mark.parametrize("shards", [1, 3, 16, 1000])
def test_shards_spread_evenly_over_a_cluster(shards: int) -> None:
    for shard, prefix in enumerate(shard_prefixes(shards)):
        slot = key_slot(prefix.encode())
        assert shard * 16384 // shards <= slot < (shard + 1) * 16384 // shards


async def test_a_ready_store_runs_a_script_on_every_shard(world: World) -> None:
    await world.frontier.ready()
    assert {f"{prefix}:probe" for prefix in shard_prefixes(SHARDS)} <= await world.keys()
