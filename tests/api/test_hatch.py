"""Plain requests that come whole are answered as the server's own way answers them, byte for byte."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from service import telemetry
from service.api.hatch import Hatch, refuse
from service.errors import StoreUnavailable
from service.transport import REFUSE, TAKE, UVICORN, OnePacket, Reply
from service.waiting import Waiting
from tests.api.calls import key_of, put, somebody_waits
from tests.api.test_front import QUERIES

DATE = (b"date", b"Thu, 01 Jan 1970 00:00:00 GMT")
PLAIN = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"


class Listener:
    """The application on a port, as the service has it, or without what takes plain requests."""

    def __init__(self, app: Any, *, keep_alive_s: float = 60, is_ordinary: bool = False) -> None:
        self.taken: list[bytes] = []
        self.received = 0
        self._hatch = Hatch(app.state.frontier, app.state.gate)
        self._config = Config(app, **{**UVICORN, "timeout_keep_alive": keep_alive_s})
        self._app_state = {REFUSE: refuse} if is_ordinary else {REFUSE: refuse, TAKE: self._take}
        self.state = ServerState()
        self.state.default_headers = [DATE]

    def _take(self, data: bytes, reply: Reply) -> Waiting | None:
        waiting = self._hatch.take(data, reply)
        if waiting is not None:
            self.taken.append(data)
        return waiting

    def _make(self) -> OnePacket:
        protocol = OnePacket(self._config, self.state, self._app_state)
        receive = protocol.data_received

        def data_received(data: bytes) -> None:
            receive(data)
            self.received += 1

        protocol.data_received = data_received  # type: ignore[method-assign]
        return protocol

    async def __aenter__(self) -> Listener:
        self._config.load()
        self._server = await asyncio.get_running_loop().create_server(self._make, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        await asyncio.gather(*self.state.tasks, return_exceptions=True)

    async def pieces_have_come(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.received < count:  # noqa: ASYNC110 - turn by turn until it is so
                await asyncio.sleep(0.001)


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, listener: Listener) -> Caller:
        return cls(*await asyncio.open_connection("127.0.0.1", listener.port))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> bytes:
        """The next answer, whole; b'' where the connection ended instead."""
        async with asyncio.timeout(10):
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as error:
                return error.partial
            lengths = [line[15:] for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            return head + await self._reader.readexactly(int(lengths[0]) if lengths else 0)

    async def is_ended(self) -> bool:
        async with asyncio.timeout(10):
            left = await self._reader.read()
        self.hang_up()
        return left == b""

    def hang_up(self) -> None:
        self._writer.close()


async def ask(listener: Listener, data: bytes) -> bytes:
    caller = await Caller.of(listener)
    caller.send(data)
    try:
        return await caller.answer()
    finally:
        caller.hang_up()


@pytest.fixture(autouse=True)
def keys_stay_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr("service.api.auth.FRESH_S", 1e6)


async def keys_are_read(client: httpx.AsyncClient) -> None:
    await client.app.state.gate.check("", frozenset())  # type: ignore[attr-defined]


@pytest.fixture
async def listener(client: httpx.AsyncClient) -> AsyncIterator[Listener]:
    await keys_are_read(client)
    async with Listener(client.app) as listener:  # type: ignore[attr-defined]
        yield listener


@pytest.fixture
async def ordinary(client: httpx.AsyncClient) -> AsyncIterator[Listener]:
    async with Listener(client.app, is_ordinary=True) as listener:  # type: ignore[attr-defined]
        yield listener


def get(target: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def known(answer: bytes) -> bytes:
    """But for the id that is made up where nonsense came before the one given was read."""
    return re.sub(rb"x-request-id: [0-9a-f]{16}\r\n", b"", answer) if b" 400 Bad" in answer else answer


@pytest.mark.parametrize("query", QUERIES)
async def test_parameters_are_read_alike(
    client: httpx.AsyncClient, listener: Listener, ordinary: Listener, query: str
) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(6)))
    request = get(f"/next?{query}", "X-Request-Id: same")
    assert known(await ask(listener, request)) == known(await ask(ordinary, request)) != b""


ID = "X-Request-Id: same"
REQUESTS = {
    "plain": (get("/next", ID), True),
    "small letters": (get("/next", ID.lower()), True),
    "no space": (get("/next", "X-Request-Id:same"), True),
    "kept alive": (get("/next", ID, "Connection: keep-alive"), True),
    "a key nobody asks for": (get("/next", ID, "Authorization: Bearer x"), True),
    "what clients say": (get("/next", ID, "Accept: */*", "User-Agent: a/1 (b; c)", "X-Empty:"), True),
    "nothing found": (get("/next?wait=0", "X-Request-Id: other"), True),
    "to be closed": (get("/next", ID, "Connection: close"), False),
    "to be closed, by another name": (get("/next", ID, "Proxy-Connection: close"), False),
    "an upgrade": (get("/next", ID, "Connection: upgrade", "Upgrade: other"), False),
    "an empty body": (get("/next", ID, "Content-Length: 0"), False),
    "a body": (get("/next", ID, "content-length: 5") + b"GET /", False),
    "a body in chunks": (get("/next", ID, "Transfer-Encoding: chunked") + b"0\r\n\r\n", False),
    "an expectation": (get("/next", ID, "Expect: 200-ok"), False),
    "two ids": (get("/next", ID, "X-Request-Id: second"), False),
    "an id with a space": (get("/next", "X-Request-Id: a b", ID), False),
    "an id too long": (get("/next", "X-Request-Id: " + "x" * 129, ID), False),
    "other letters": (get("/next", ID, "X-Other: \u00e9"), False),
    "a control character": (get("/next", ID, "X-Other: \x01"), False),
    "no colon": (get("/next", ID, "nonsense"), False),
    "a space before the colon": (get("/next", "X-Request-Id : same"), False),
    "a folded line": (get("/next", ID, "X-Other: a", " b: c"), False),
    "bare line ends": (get("/next", ID).replace(b"\r\n", b"\n"), False),
    "a line end before": (b"\r\n" + get("/next", ID), False),
    "an older version": (get("/next", ID).replace(b"1.1", b"1.0"), False),
    "a whole URL": (get("http://x/next", ID), False),
    "a fragment": (get("/next?n=1#n=2", ID), False),
    "another path": (get("/next/", ID), False),
    "an escaped path": (get("/%6eext", ID), False),
    "another method": (get("/next", ID).replace(b"GET", b"HEAD"), False),
    "small letters for a method": (get("/next", ID).replace(b"GET", b"get"), False),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_requests_are_told_apart_and_answered_alike(
    client: httpx.AsyncClient, listener: Listener, ordinary: Listener, name: str
) -> None:
    await put(client, "https://one.example/")
    assert b"200 OK" in await ask(ordinary, get("/next", ID))
    request, is_plain = REQUESTS[name]
    answer = await ask(listener, request)
    if b"X-Request-Id" in request or is_plain:  # else the id, made up each time, differs
        assert known(answer) == known(await ask(ordinary, request))
    assert answer.startswith(b"HTTP/1.1 ")
    assert listener.taken == ([request] if is_plain else [])


async def test_an_id_of_its_own_is_made_for_each(client: httpx.AsyncClient, listener: Listener) -> None:
    await put(client, "https://one.example/")
    answers = [await ask(listener, PLAIN) for _ in range(2)]
    ids = {line for answer in answers for line in answer.split(b"\r\n") if line.startswith(b"x-request-id")}
    assert len(ids) == len(listener.taken) == 2
    assert [answer[9:12] for answer in answers] == [b"200", b"204"]


@pytest.mark.parametrize("role", ["crawler", "sender", "operator", "none"])
async def test_keys_open_the_same_doors(client: httpx.AsyncClient, role: str) -> None:
    header = await key_of(client, role if role != "none" else "operator")
    given = [f"Authorization: {header['Authorization']}"] if role != "none" else []
    app = client.app  # type: ignore[attr-defined]
    async with Listener(app) as listener, Listener(app, is_ordinary=True) as ordinary:
        request = get("/next", ID, *given)
        first = await ask(listener, request)  # reads the keys
        assert await ask(listener, request) == await ask(ordinary, request) == first
    assert len(listener.taken) == (1 if role in ("crawler", "operator") else 0)


async def test_who_asks_when_the_keys_have_aged_has_them_read(
    client: httpx.AsyncClient, listener: Listener
) -> None:
    client.app.state.gate._read_at = -1e9  # type: ignore[attr-defined]
    for _ in range(2):
        assert b"204 No Content" in await ask(listener, PLAIN)
    assert len(listener.taken) == 1


async def test_a_request_in_two_pieces_is_answered(listener: Listener) -> None:
    caller = await Caller.of(listener)
    caller.send(PLAIN[:20])
    await listener.pieces_have_come(1)
    caller.send(PLAIN[20:])
    assert b"204 No Content" in await caller.answer()
    caller.send(PLAIN)
    assert b"204 No Content" in await caller.answer()
    assert listener.taken == [PLAIN]
    caller.hang_up()


async def test_a_body_that_looks_like_a_request_is_a_body(listener: Listener) -> None:
    caller = await Caller.of(listener)
    caller.send(b"POST /outcomes HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(PLAIN))
    await listener.pieces_have_come(1)
    caller.send(PLAIN)
    assert b"400 Bad Request" in await caller.answer()
    assert listener.taken == []
    caller.hang_up()


async def test_a_body_that_was_answered_before_it_came_is_still_a_body(listener: Listener) -> None:
    caller = await Caller.of(listener)
    caller.send(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(PLAIN))
    assert b"404 Not Found" in await caller.answer()
    caller.send(PLAIN)
    caller.send(get("/healthz"))
    assert b'"alive"' in await caller.answer()
    assert listener.taken == []
    caller.hang_up()


async def test_answers_come_in_the_order_of_the_requests(
    client: httpx.AsyncClient, listener: Listener
) -> None:
    caller = await Caller.of(listener)
    caller.send(get("/next?wait=20"))
    await listener.pieces_have_come(1)
    await somebody_waits(client)
    caller.send(get("/healthz") + get("/next", ID))
    await listener.pieces_have_come(2)
    await put(client, "https://one.example/")
    assert b"https://one.example/" in await caller.answer()
    assert b'"alive"' in await caller.answer()
    assert b"x-request-id: same" in await caller.answer()
    caller.send(PLAIN)
    assert b"204 No Content" in await caller.answer()
    assert listener.taken == [get("/next?wait=20"), PLAIN]
    caller.hang_up()


async def test_behind_an_ordinary_request_none_is_taken(
    client: httpx.AsyncClient, listener: Listener
) -> None:
    caller = await Caller.of(listener)
    waits = get("/next?wait=20", "Content-Length: 0")
    caller.send(waits)
    await listener.pieces_have_come(1)
    await somebody_waits(client)
    caller.send(PLAIN)
    await listener.pieces_have_come(2)
    await put(client, "https://one.example/")
    assert b"https://one.example/" in await caller.answer()
    assert b"204 No Content" in await caller.answer()
    assert listener.taken == []
    caller.hang_up()


async def test_nothing_is_leased_for_a_caller_that_hung_up(
    client: httpx.AsyncClient, listener: Listener
) -> None:
    caller = await Caller.of(listener)
    caller.send(get("/next?wait=20"))
    await somebody_waits(client)
    caller.hang_up()
    async with asyncio.timeout(10):
        while listener.state.connections:  # noqa: ASYNC110 - until the end has been noticed
            await asyncio.sleep(0.001)
    await put(client, "https://one.example/")
    assert b"https://one.example/" in await ask(listener, PLAIN)


async def test_a_request_under_way_is_answered_before_the_service_stops(
    client: httpx.AsyncClient, listener: Listener
) -> None:
    idle, waits = await Caller.of(listener), await Caller.of(listener)
    idle.send(PLAIN)
    assert b"204 No Content" in await idle.answer()
    waits.send(get("/next?wait=20"))
    await somebody_waits(client)
    for connection in list(listener.state.connections):
        connection.shutdown()
    assert await idle.is_ended()
    await put(client, "https://one.example/")
    answer = await waits.answer()
    assert b"https://one.example/" in answer
    assert b"\r\nconnection: close\r\n" in answer
    assert await waits.is_ended()


async def test_an_idle_connection_ends_in_time(client: httpx.AsyncClient) -> None:
    await keys_are_read(client)
    async with Listener(client.app, keep_alive_s=0.05) as listener:  # type: ignore[attr-defined]
        caller = await Caller.of(listener)
        caller.send(PLAIN)
        assert b"204 No Content" in await caller.answer()
        assert await caller.is_ended()
    assert len(listener.taken) == 1


async def test_a_connection_that_is_not_idle_for_long_enough_stays(
    client: httpx.AsyncClient, listener: Listener
) -> None:
    caller = await Caller.of(listener)
    caller.send(PLAIN)
    await caller.answer()
    (connection,) = listener.state.connections
    connection.timeout_keep_alive_handler()  # answered a moment ago
    caller.send(get("/next?wait=20"))
    await somebody_waits(client)
    connection._idle_since -= 1000
    connection.timeout_keep_alive_handler()  # and now it waits
    await put(client, "https://one.example/")
    assert b"https://one.example/" in await caller.answer()
    connection._idle_since -= 1000
    connection.timeout_keep_alive_handler()
    assert await caller.is_ended()


async def test_a_caller_that_does_not_read_is_not_answered_on_and_on(listener: Listener) -> None:
    caller = await Caller.of(listener)
    caller.send(PLAIN)
    await caller.answer()
    (connection,) = listener.state.connections
    connection.pause_writing()
    caller.send(PLAIN)
    await listener.pieces_have_come(2)
    connection.resume_writing()
    assert b"204 No Content" in await caller.answer()
    assert listener.taken == [PLAIN]
    caller.hang_up()


async def refused(*_: object) -> None:
    raise StoreUnavailable("away")


async def broken(*_: object) -> tuple[list[list[int]], list[int], None]:
    return [[1]], [], None


@pytest.mark.parametrize(("serve", "status"), [(refused, b"503"), (broken, b"500")])
async def test_what_goes_wrong_is_said_alike(
    client: httpx.AsyncClient,
    listener: Listener,
    ordinary: Listener,
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[..., Any],
    status: bytes,
) -> None:
    monkeypatch.setattr(client.app.state.frontier._dispatcher, "_serve", serve)  # type: ignore[attr-defined]
    request = get("/next", ID)
    answer = await ask(listener, request)
    assert answer == await ask(ordinary, request)
    assert answer[9:12] == status
    assert listener.taken == [request]


async def test_every_answer_and_page_is_counted(client: httpx.AsyncClient, listener: Listener) -> None:
    def counted() -> list[float]:
        names = [
            ("freshet_request_seconds_count", {"route": "/next"}),
            ("freshet_next_pages_total", {}),
            ("freshet_next_empty_total", {"reason": "no-pages"}),
        ]
        return [telemetry.REGISTRY.get_sample_value(*name) or 0.0 for name in names]

    await put(client, *(f"https://h{at}.example/" for at in range(3)))
    before, requests = counted(), listener.state.total_requests
    for _ in range(2):
        await ask(listener, get("/next?n=3", "Connection: keep-alive"))
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [2, 3, 1]
    assert listener.state.total_requests == requests + 2
    assert len(listener.taken) == 2


@pytest.mark.parametrize("query", ["wait=20", "wait=20&other=1"], ids=["front", "framework"])
async def test_nothing_is_leased_for_a_caller_that_hung_up_on_the_ordinary_way(
    client: httpx.AsyncClient, query: str
) -> None:
    """Which everybody goes who is the first for a second: with few callers that is nearly each."""
    async with Listener(client.app) as listener:  # type: ignore[attr-defined]
        caller = await Caller.of(listener)
        caller.send(get(f"/next?{query}"))  # nobody has read the keys yet
        await somebody_waits(client)
        assert listener.taken == []
        caller.hang_up()
        async with asyncio.timeout(10):
            while listener.state.connections or listener.state.tasks:  # noqa: ASYNC110 - until noticed
                await asyncio.sleep(0.001)
        await put(client, "https://one.example/")
        assert b"https://one.example/" in await ask(listener, PLAIN)


@pytest.mark.parametrize("query", ["wait=20", "wait=20&other=1"], ids=["front", "framework"])
async def test_who_waits_on_the_ordinary_way_when_the_service_stops_is_answered(
    client: httpx.AsyncClient, query: str
) -> None:
    """As the server does it when its patience is over: it cancels what is under way."""
    async with Listener(client.app) as listener:  # type: ignore[attr-defined]
        caller = await Caller.of(listener)
        caller.send(get(f"/next?{query}", ID))
        await somebody_waits(client)
        for task in listener.state.tasks:
            task.cancel()
        answer = await caller.answer()
        caller.hang_up()
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert b"\r\nretry-after: 1\r\n" in answer
    assert b"\r\nx-request-id: same\r\n" in answer


@pytest.mark.parametrize("line", ["POST /outcomes", "PUT /pages"])
async def test_a_caller_that_hangs_up_within_its_body_is_no_failure(
    listener: Listener, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    caller = await Caller.of(listener)
    caller.send(f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
    await listener.pieces_have_come(1)
    caller.hang_up()
    async with asyncio.timeout(10):
        while listener.state.connections or listener.state.tasks:  # noqa: ASYNC110 - until noticed
            await asyncio.sleep(0.001)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


NONSENSE = {
    "no request": b"nonsense\r\n\r\n",
    "two lengths": get("/next", ID, "Content-Length: 5", "Transfer-Encoding: chunked", "X-Other: a"),
    "no path": get("http://x"),
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "letters in the path": b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("name", NONSENSE)
async def test_what_is_no_request_is_a_problem_with_an_id(listener: Listener, name: str) -> None:
    answer = await ask(listener, NONSENSE[name])
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\ncontent-type: application/problem+json" in head
    assert b"\r\nconnection: close" in head
    assert b"\r\nx-request-id: " in head
    assert b"\r\nX-Request-Id: same" not in NONSENSE[name] or b"\r\nx-request-id: same" in head
    assert json.loads(body)["status"] == 400


async def test_a_head_without_end_is_refused(listener: Listener) -> None:
    caller = await Caller.of(listener)
    caller.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
    for _ in range(16):
        caller.send(b"X-Other: y\r\n" * 1000)
        if listener.state.connections:
            await asyncio.sleep(0.01)
    caller.send(b"\r\n")
    assert b"431 " in (await caller.answer())[:20]
    caller.hang_up()


@pytest.mark.parametrize("pieces", [1, 2])
async def test_a_head_that_is_too_large_is_refused_also_if_it_comes_at_once(
    listener: Listener, pieces: int
) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Other: " + b"y" * 66000 + b"\r\n\r\n"
    caller = await Caller.of(listener)
    for at in range(pieces):
        caller.send(head[at * len(head) // pieces : (at + 1) * len(head) // pieces])
        await asyncio.sleep(0.01)
    assert b"431 " in (await caller.answer())[:20]
    caller.hang_up()


@pytest.mark.parametrize("begin", [b"", PLAIN[:20], PLAIN + PLAIN[:20], get("/healthz") + PLAIN[:20]])
async def test_a_caller_that_is_not_done_with_a_head_in_time_is_left(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr("service.transport.HEAD_S", 0.1)
    await keys_are_read(client)
    async with Listener(client.app) as listener:  # type: ignore[attr-defined]
        caller = await Caller.of(listener)
        caller.send(begin)
        if len(begin) > len(PLAIN):
            await caller.answer()
        assert await caller.is_ended()


async def test_who_waits_for_an_answer_is_not_slow(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.transport.HEAD_S", 0.05)
    await keys_are_read(client)
    async with Listener(client.app) as listener:  # type: ignore[attr-defined]
        for request in (get("/next?wait=0.3"), get("/next?wait=0.3", "Content-Length: 0")):
            caller = await Caller.of(listener)
            for _ in range(2):
                caller.send(request)
                assert b"204 No Content" in await caller.answer()
                await asyncio.sleep(0.15)
            caller.hang_up()


async def test_a_body_that_does_not_come_in_time_is_408(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.body.BODY_S", 0.05)
    for line in ("POST /outcomes", "PUT /pages"):
        answer = await ask(listener, f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"\r\nconnection: close\r\n" in answer


async def test_nothing_is_leased_for_a_caller_that_sent_more_and_hung_up(
    client: httpx.AsyncClient, listener: Listener
) -> None:
    caller = await Caller.of(listener)
    caller.send(get("/next?wait=20"))
    await somebody_waits(client)
    caller.send(get("/healthz"))
    await listener.pieces_have_come(2)
    caller.hang_up()
    async with asyncio.timeout(5):
        while listener.state.connections:  # noqa: ASYNC110 - until the end has been noticed
            await asyncio.sleep(0.001)
    await put(client, "https://one.example/")
    assert b"https://one.example/" in await ask(listener, PLAIN)


async def test_a_large_body_before_it_does_not_count_as_a_head(listener: Listener) -> None:
    caller = await Caller.of(listener)
    body = b'{"signals": []}' + b" " * 1_000_000
    caller.send(
        b"POST /signals HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body + PLAIN[:20]
    )
    assert b"202 Accepted" in await caller.answer()
    caller.send(PLAIN[20:])
    assert b"204 No Content" in await caller.answer()
    caller.hang_up()


CHUNKED = b'POST /signals HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n{"signals": []}\r\n'


async def test_a_body_in_pieces_may_have_trailers(listener: Listener) -> None:
    assert b"202 Accepted" in await ask(listener, CHUNKED + b"0\r\nX-Other: y\r\n\r\n")


@pytest.mark.parametrize("begin", [b"0\r\n", b"0\r\nX-Other: ", b"5;"])
async def test_what_is_no_body_does_not_go_on_for_ever(listener: Listener, begin: bytes) -> None:
    """Trailers, one endless trailer, and what may stand beside the size of a piece."""
    caller = await Caller.of(listener)
    caller.send(CHUNKED + begin)
    line = b"X-Other: y\r\n" if begin == b"0\r\n" else b"y" * 12
    async with asyncio.timeout(10):
        while not listener.state.connections:  # noqa: ASYNC110 - until it is known
            await asyncio.sleep(0.001)
        for _ in range(40):
            caller.send(line * 1000)
            await asyncio.sleep(0)
        while listener.state.connections:  # noqa: ASYNC110 - until it was ended
            await asyncio.sleep(0.001)
    caller.hang_up()
