"""Pipelined connections: every caller gets its own replies, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis.asyncio as redis_asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.embedded import EmbeddedServer
from service.errors import StoreUnavailable
from service.store.connection import Server
from service.store.pipe import Pipe, Pipes
from tests.conftest import emptied
from tests.store.conftest import MakeWorld
from tests.store.world import hosts_of


@pytest.fixture(params=["redis_server", "redis7_server"], ids=["valkey", "redis7"])
def fresh_url(request: pytest.FixtureRequest) -> str:
    """A pipe leads to one server."""
    return emptied(request.getfixturevalue(request.param))


LONG_S = 60.0  # a deadline that no machine is too slow for


def a_pipe(url: str) -> Pipe:
    return Pipe(redis_asyncio.ConnectionPool.from_url(url).make_connection, LONG_S)


@pytest.fixture
async def pipe(fresh_url: str) -> AsyncIterator[Pipe]:
    opened = a_pipe(fresh_url)
    yield opened
    await opened.close()


async def test_a_hundred_callers_get_their_own_replies(pipe: Pipe) -> None:
    calls = [pipe.send([("ECHO", f"{at}.{part}") for part in range(3)]) for at in range(100)]
    found = await asyncio.gather(*calls)
    assert found == [[f"{at}.{part}".encode() for part in range(3)] for at in range(100)]


async def test_a_large_reply_comes_whole(pipe: Pipe) -> None:
    text = b"x" * 5_000_000
    assert await pipe.send([("ECHO", text), ("ECHO", "after")]) == [text, b"after"]


async def test_a_refusal_is_one_of_the_replies(pipe: Pipe) -> None:
    first, refusal, last = await pipe.send([("ECHO", "a"), ("NOSUCHCOMMAND",), ("ECHO", "b")])
    assert (first, last) == (b"a", b"b")
    assert isinstance(refusal, ResponseError)


async def test_a_caller_that_hangs_up_takes_nobody_elses_reply(pipe: Pipe) -> None:
    await pipe.send([("PING",)])
    gone = asyncio.create_task(pipe.send([("ECHO", "gone")]))
    await asyncio.sleep(0)
    here = asyncio.create_task(pipe.send([("ECHO", "here")]))
    gone.cancel()
    assert await here == [b"here"]


async def test_who_waits_when_the_connection_is_lost_is_told_and_the_next_call_works(
    pipe: Pipe, fresh_url: str
) -> None:
    (number,) = await pipe.send([("CLIENT", "ID")])
    waiting = [asyncio.create_task(pipe.send([("BLPOP", "nothing", 30)])) for _ in range(3)]
    async with redis_asyncio.Redis.from_url(fresh_url) as client:
        await client.execute_command("CLIENT", "KILL", "ID", number)
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [RedisConnectionError] * 3
    assert await pipe.send([("ECHO", "again")]) == [b"again"]


async def test_a_server_that_answers_nobody_is_given_up_by_the_deadline(fresh_url: str) -> None:
    """Real time is the subject; the next call finds another connection."""
    pipe = a_pipe(fresh_url)
    pipe._deadline_s = 0.3
    started = time.monotonic()
    calls = [pipe.send([("BLPOP", "nothing", 0)]) for _ in range(5)]
    answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)
    assert [type(answer) for answer in answers] == [RedisTimeoutError] * 5
    assert time.monotonic() - started >= 0.25
    pipe._deadline_s = LONG_S
    assert await pipe.send([("ECHO", "again")]) == [b"again"]
    await pipe.close()


async def test_many_who_find_nobody_there_share_one_attempt(tmp_path: Path) -> None:
    pipe = a_pipe(f"unix://{tmp_path}/nobody.sock")
    answers = await asyncio.gather(*(pipe.send([("PING",)]) for _ in range(20)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {RedisConnectionError}
    assert len({id(answer) for answer in answers}) == 1
    await pipe.close()


async def test_a_call_is_not_held_up_by_another(fresh_url: str) -> None:
    pool = redis_asyncio.ConnectionPool.from_url(fresh_url)
    pipes = Pipes(pool.make_connection, count=2, deadline_s=LONG_S)
    await pipes.send([("PING",)])
    slow = asyncio.create_task(pipes.send([("BLPOP", "nothing", 0)]))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(pipes.send([("ECHO", "fast")]), 20) == [b"fast"]
    await pipes.close()
    with pytest.raises(RedisConnectionError):
        await slow


async def test_a_batch_over_all_shards_is_one_round_trip(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await make_world()
    sent: list[int] = []
    send = Pipe.send

    async def counted(self: Pipe, commands: list[tuple[str, ...]]) -> list[object]:
        sent.append(len(commands))
        return await send(self, commands)  # type: ignore[arg-type]

    monkeypatch.setattr(Pipe, "send", counted)
    assert await world.server.call_shards("probe", []) == []
    await world.delete(*hosts_of(24))
    assert sent == [4]


async def test_only_calls_that_found_no_library_are_made_again(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran must not run twice: its second answer would be another."""
    server = Server(fresh_url)
    sent: list[int] = []
    send = Pipes.send

    async def half_missing(self: Pipes, commands: list[tuple[str, ...]]) -> list[object]:
        sent.append(len(commands))
        replies = await send(self, commands)  # type: ignore[arg-type]
        return [ResponseError("Function not found"), *replies[1:]] if len(sent) == 1 else replies

    await server.load()
    monkeypatch.setattr(Pipes, "send", half_missing)
    replies = await server.call_shards("now", [(["f:{control}"], [str(at)]) for at in (1, 2, 3)])
    assert sent == [3, 1]
    assert len(replies) == 3
    await server.close()


async def test_a_server_that_was_demoted_is_left_for_who_has_its_address_now(tmp_path: Path) -> None:
    """Connections outlive a failover behind one address; what answers READONLY must not be asked for ever."""
    with EmbeddedServer(tmp_path / "old") as old, EmbeddedServer(tmp_path / "new") as new:
        primary = old

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    writer.write(data)
            writer.close()

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_unix_connection(urlsplit(primary.url).path)
            pumps.update(
                {asyncio.create_task(pump(*way)) for way in ((reader, there[1]), (there[0], writer))}
            )

        pumps: set[asyncio.Task[None]] = set()
        address = await asyncio.start_server(forward, "127.0.0.1", 0)
        server = Server(f"redis://127.0.0.1:{address.sockets[0].getsockname()[1]}")
        turn = ("set_bandwidth", ["f:{control}"], ["", "5.0", "", "", ""])
        await server.call(*turn)
        await server.execute("SET", "a", "b")
        async with redis_asyncio.Redis.from_url(old.url) as client:
            await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        primary = new
        found: list[object] = []
        for attempt in (lambda: server.execute("SET", "a", "b"), lambda: server.call(*turn)) * 2:
            try:
                found.append(await attempt())
            except StoreUnavailable:
                await asyncio.sleep(0.05)
        await server.close()
        address.close()
        await asyncio.gather(*pumps)
        assert len(found) == 2
