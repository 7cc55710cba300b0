"""An answer leaves in one piece, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from service.transport import UVICORN, OnePacket, _Gathering


class App:
    """Answers in the ways an application can."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/together":
            self.waiting += 1
            await self.go_on.wait()
            self.waiting -= 1
        if scope["path"] == "/read":
            await receive()
        length = [] if scope["path"] == "/stream" else [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
            await send({"type": "http.response.body", "body": b"two", "more_body": True})
            await self.go_on.wait()
        if scope["path"] != "/broken":
            await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written to connections."""
    written: list[bytes] = []
    made = OnePacket.connection_made

    class Recording:
        def __init__(self, transport: asyncio.Transport) -> None:
            self._transport = transport

        def write(self, data: bytes) -> None:
            written.append(data)
            self._transport.write(data)

        def __getattr__(self, name: str) -> object:
            return getattr(self._transport, name)

    monkeypatch.setattr(OnePacket, "connection_made", lambda self, t: made(self, Recording(t)))  # type: ignore[arg-type]
    return written


@pytest.fixture
async def app() -> App:
    return App()


@pytest.fixture
async def port(app: App) -> AsyncIterator[int]:
    # No end of an idle connection comes soon enough to send what was left behind.
    config = Config(app, timeout_keep_alive=60, **UVICORN)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: OnePacket(config, state, {}), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    app.go_on.set()
    await asyncio.gather(*state.tasks)
    server.close()
    await server.wait_closed()


async def ask(port: int, *requests: bytes, until: bytes) -> bytes:
    """What comes back on one connection, up to the awaited end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"".join(requests))
        async with asyncio.timeout(10):
            return await reader.readuntil(until)
    finally:
        writer.close()


def request(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


async def test_head_and_body_are_one_piece(port: int, pieces: list[bytes]) -> None:
    answer = await ask(port, request("GET", "/"), until=b"ok")
    assert pieces == [answer]


async def test_answers_ready_together_are_all_made_before_one_is_sent(
    app: App, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmade: list[int] = []
    send = _Gathering._send
    monkeypatch.setattr(_Gathering, "_send", lambda self: (unmade.append(app.waiting), send(self)))
    asked = [asyncio.create_task(ask(port, request("GET", "/together"), until=b"ok")) for _ in range(5)]
    async with asyncio.timeout(10):
        while app.waiting < 5:  # noqa: ASYNC110 - turn by turn until all have arrived
            await asyncio.sleep(0.001)
    app.go_on.set()
    await asyncio.gather(*asked)
    assert unmade[:5] == [0] * 5


async def test_an_answer_without_a_body_is_sent(port: int) -> None:
    assert await ask(port, request("HEAD", "/"), until=b"\r\n\r\n")


async def test_requests_sent_together_are_answered_one_by_one(port: int, pieces: list[bytes]) -> None:
    last = request("GET", "/", "Connection: close")
    answers = await ask(port, request("GET", "/"), request("HEAD", "/"), last, until=b"close\r\n\r\nok")
    assert [piece.count(b"200 OK") for piece in pieces] == [1, 1, 1]
    assert b"".join(pieces) == answers


async def test_a_stream_is_not_held_back(port: int) -> None:
    """Its end is still to come when its parts are here."""
    assert b"one" in await ask(port, request("GET", "/stream"), until=b"two")


async def test_a_body_that_waits_to_be_asked_for_is(port: int) -> None:
    headers = ("Content-Length: 5", "Expect: 100-continue")
    assert await ask(port, request("POST", "/read", *headers), until=b"100 Continue\r\n\r\n")


async def test_what_is_no_request_is_answered(port: int) -> None:
    assert b"400" in await ask(port, b"nonsense\r\n\r\n", until=b"received.")


async def test_a_head_whose_body_never_came_is_sent_before_the_end(port: int) -> None:
    assert b"200 OK" in await ask(port, request("GET", "/broken"), until=b"\r\n\r\n")


def test_nothing_is_sent_to_a_caller_that_hung_up_meanwhile() -> None:
    """The loop of the service refuses to write to a connection that is gone."""
    loop = uvloop.new_event_loop()
    errors: list[dict[str, object]] = []

    async def hang_up() -> None:
        here, there = socket.socketpair()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=here)
        gathering = _Gathering(transport)
        transport.abort()
        await asyncio.sleep(0.01)
        gathering.write(b"an answer")
        await asyncio.sleep(0)
        there.close()

    loop.set_exception_handler(lambda _, context: errors.append(context))
    loop.run_until_complete(hang_up())
    loop.close()
    assert errors == []
