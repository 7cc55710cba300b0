"""Keep-alive connections of the load client: prepared bytes out, answers cut by their Content-Length."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence

BUFFER = memoryview(bytearray(1 << 20))  # one for all: a new one for each read would cost more than the read


class Poller:
    """Which connections have something to read; waits with a resolution of microseconds."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._numbers: list[int] = []

    def register(self, number: int) -> None:
        self._numbers.append(number)
        if self._epoll is not None:
            self._epoll.register(number, select.EPOLLIN)

    def wait(self, seconds: float) -> Sequence[int]:
        """File numbers ready to read; empty when the time is up."""
        if self._epoll is None:
            return select.select(self._numbers, [], [], max(0.0, seconds))[0]
        ready = self._epoll.poll(0)
        if not ready and seconds > 0:
            # epoll itself counts in milliseconds, too coarse for a load sent at a rate.
            select.select([self._epoll], [], [], seconds)
            ready = self._epoll.poll(0)
        return [number for number, _ in ready]

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()


class Connection:
    """One connection with at most one request under way."""

    __slots__ = ("_part", "_socket", "number", "sent_at")

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(
            ("127.0.0.1", port)
        )  # no timeout: it would double the system calls
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._part = b""
        self.number = self._socket.fileno()
        self.sent_at = 0.0

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> tuple[int, bytes] | None:
        """(status, body) once the whole answer is there."""
        size = self._socket.recv_into(BUFFER)
        if not size:
            raise ConnectionError("the server closed the connection")
        read = bytes(BUFFER[:size])
        answer = self._part + read if self._part else read
        found = cut(answer)
        self._part = answer if found is None else b""
        return found

    def close(self) -> None:
        self._socket.close()


def cut(answer: bytes) -> tuple[int, bytes] | None:
    """(status, body) of an answer that came whole; without a Content-Length it has no body."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return None
    at = answer.find(b"content-length:", 0, end)
    if at < 0:
        at = answer[:end].lower().find(b"content-length:")
    size = int(answer[at + 15 : answer.find(b"\r", at)]) if at >= 0 else 0
    if len(answer) < end + 4 + size:
        return None
    return int(answer[9:12]), answer[end + 4 :]
