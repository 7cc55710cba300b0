"""The load client against a small server of known behaviour."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from loadtest.bench.client import Job, Load, _Run
from loadtest.bench.sockets import cut
from loadtest.bench.web import get

Answer = Callable[[bytes], bytes]


def plain(body: bytes = b"{}", status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


class Little:
    """Answers each request on each connection by a function; keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[bytes] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while request := connection.recv(65536):
                self.asked.append(request)
                connection.sendall(self._answer(request))

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    with Load() as started:
        yield started


@pytest.fixture
def little() -> Iterator[Callable[[Answer], Little]]:
    started: list[Little] = []

    def start(answer: Answer) -> Little:
        started.append(Little(answer))
        return started[-1]

    yield start
    for server in started:
        server.close()


def test_each_request_is_sent_once_and_its_answer_kept(
    load: Load, little: Callable[[Answer], Little]
) -> None:
    server = little(lambda request: plain(request.split()[1]))
    requests = [get(f"/{number}") for number in range(20)]
    tally = load.run(Job(server.port, requests, connections=3, keep=True))
    assert sorted(tally.bodies) == sorted(b"/%d" % number for number in range(20))
    assert tally.statuses == {200: 20}
    assert len(tally.latencies) == 20


def test_an_answer_in_pieces_is_put_together(load: Load, little: Callable[[Answer], Little]) -> None:
    large = b"x" * 3_000_000
    server = little(lambda _: plain(large))
    tally = load.run(Job(server.port, [get("/")], keep=True))
    assert tally.bodies == [large]


def test_a_rate_is_kept_and_latency_counts_from_when_it_was_due(
    load: Load, little: Callable[[Answer], Little]
) -> None:
    """One connection that takes 20 ms cannot serve 200 a second: the wait for it is counted."""

    def slowly(_: bytes) -> bytes:
        time.sleep(0.02)
        return plain()

    server = little(slowly)
    tally = load.run(Job(server.port, [get("/")], connections=1, seconds=0.5, rate=200))
    assert tally.statuses[200] in (100, 101)
    assert tally.latency(0.5) > 0.3
    assert tally.rate < 51
    assert 0 < tally.client_share < 1.5


class Time:
    """A clock by which every look at it takes a millisecond."""

    def __init__(self) -> None:
        self._looks = count()

    def perf_counter(self) -> float:
        return next(self._looks) / 1000


def test_a_load_without_pause_counts_only_its_window(
    little: Callable[[Answer], Little], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtest.bench.client.time", Time())
    server = little(lambda _: plain(b'{"pages":[{"lease":"a"},{"lease":"b"}]}'))
    tally = _Run(Job(server.port, [get("/")], connections=2, seconds=0.2, warm_up_s=0.2), 1).run()
    assert 0 < tally.statuses[200] < len(server.asked)
    assert tally.leases == 2 * tally.statuses[200]
    assert tally.seconds == 0.2


def test_every_request_gets_an_id_of_its_own(load: Load, little: Callable[[Answer], Little]) -> None:
    server = little(lambda _: plain())
    for _ in range(2):
        load.run(Job(server.port, [get("/", with_id=True)] * 5))
    assert len(set(server.asked)) == 10


def test_an_error_of_the_server_is_the_error_of_the_job(load: Load) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ConnectionError):
        load.run(Job(port, [get("/")]))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"HTTP/1.1 204 No Content\r\nx-empty-reason: pace\r\n\r\n", (204, b"")),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", (200, b"ok")),
        (b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH:2\r\n\r\nok", (200, b"ok")),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", None),
        (b"HTTP/1.1 200 OK\r\ncontent-le", None),
    ],
)
def test_an_answer_ends_where_its_length_says(answer: bytes, found: tuple[int, bytes] | None) -> None:
    assert cut(answer) == found
