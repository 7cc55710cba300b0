"""How HTTP is served, apart from where and by how many processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.waiting import Waiting

Reply = Callable[[int, bytes, bytes], None]  # status, lines of headers, body; to be called once
Take = Callable[[bytes, Reply], Waiting | None]
TAKE = "take"  # where an application that takes requests as they are keeps its `Take` in its lifespan state
REFUSE = "refuse"  # as `TAKE`: how what is no request is answered, by status, detail and headers so far
MOST_HEAD_BYTES = 65536  # that may come before a head is whole
TOO_LARGE = f"a head may hold at most {MOST_HEAD_BYTES} bytes"
HEAD_S = 10.0  # within which it must be


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they are sent."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_usual_lines = lru_cache(maxsize=2)(lines_of)  # the server's own are the same for a second


class _Gathering:
    """A connection that sends what is written to it in one turn of the loop together, and in the next.

    Each packet may wake a caller, which costs the kernel more than the rest of the answer. So head and body
    leave in one, and answers that are ready together leave in a row: who was woken is still awake for more.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if data and not self._transport.is_closing():  # the caller may have hung up meanwhile
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OnePacket(HttpToolsProtocol):
    """The server's own protocol, but an answer leaves in one piece, and an application may take requests that
    came whole as they are: then there is no parsing, no scope and no task.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        is_watched = config.access_log or self.limit_concurrency is not None
        self._take: Take | None = None if is_watched else app_state.get(TAKE)
        self._taken: Waiting | None = None  # by the application, and not answered yet
        self._behind = b""  # what came after it
        self._is_last = False
        self._in_request = False  # its begin was read, but not its end
        self._in_head = True  # awaited from the begin of the connection on
        self._head_bytes = 0  # came since the head began, or the last piece of a body
        self._idle_since = 0.0  # by the clock of the loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Gathering(transport)))
        self._head_since = self.loop.time()
        self._watch = self.loop.call_later(HEAD_S, self._end_if_slow)

    def data_received(self, data: bytes) -> None:
        if self._taken is not None:
            self._behind += data
            if len(self._behind) > MOST_HEAD_BYTES:  # not before: who does not read hears no end
                self.flow.pause_reading()
            return
        if self._take is not None and self._is_free():
            self._taken = self._take(data, self._reply)
        if self._taken is None:
            self._head_bytes += len(data)  # from the piece on that follows the one it begins in
            super().data_received(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self._end_excess()

    def _end_excess(self) -> None:
        """A head may not go on for ever, nor may what stands between and behind the pieces of a body."""
        if self._in_head:
            self._refuse(431, TOO_LARGE)
        elif self._in_request:
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_request = self._in_head = True
        self._head_bytes, self._head_since = 0, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_HEAD_BYTES:  # it came in one piece, or in two
            self._head_bytes = size
            raise ValueError(TOO_LARGE)  # the parser stops, and the caller is refused
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_request = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._taken is not None:
            self._taken.is_gone = True
        self._watch.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._taken is None:
            super().shutdown()
        else:
            self._is_last = True

    def send_400_response(self, msg: str) -> None:
        is_too_large = self._in_head and self._head_bytes > MOST_HEAD_BYTES
        self._refuse(*((431, TOO_LARGE) if is_too_large else (400, msg)))

    def _refuse(self, status: int, detail: str) -> None:
        """Answer what is no request, and end the connection."""
        if REFUSE not in self.app_state:
            super().send_400_response(detail)
            return
        lines, body = self.app_state[REFUSE](status, detail, self.headers if self._in_request else ())
        usual = _usual_lines(tuple(self.server_state.default_headers))
        self.transport.write(b"".join([STATUS_LINE[status], usual, lines, b"\r\n", body]))
        self.transport.close()

    def _end_if_slow(self) -> None:
        """A caller that is not done with a head in time is not waited for."""
        is_awaited = self._in_head and self._taken is None
        left_s = self._head_since + HEAD_S - self.loop.time() if is_awaited else HEAD_S
        if self.transport.is_closing():
            return
        if left_s > 0:
            self._watch = self.loop.call_later(left_s, self._end_if_slow)
        else:
            self.transport.close()

    def _is_free(self) -> bool:
        """Whether the next bytes begin a request that can be answered at once."""
        cycle = cast(RequestResponseCycle | None, self.cycle)  # of the last request that was not taken
        is_answered = cycle is None or cycle.response_complete
        return is_answered and not self._in_request and not self.flow.write_paused

    def _reply(self, status: int, lines: bytes, body: bytes) -> None:
        """Answer what was taken, as the server itself would."""
        self._taken, self._in_head = None, False
        if self.transport.is_closing():  # the caller hung up meanwhile
            return
        usual = _usual_lines(tuple(self.server_state.default_headers))
        last = b"connection: close\r\n" if self._is_last else b""
        self.transport.write(b"".join([STATUS_LINE[status], usual, lines, last, b"\r\n", body]))
        self.server_state.total_requests += 1
        self._wait_for_more()

    def _wait_for_more(self) -> None:
        if self._is_last:
            self.transport.close()
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._end_if_idle_for(self.timeout_keep_alive)
        if self._behind:
            data, self._behind = self._behind, b""
            self.flow.resume_reading()
            self.data_received(data)

    def _end_if_idle_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """A timer set and cancelled for each request costs more than one that looks again when it is over."""
        self.timeout_keep_alive_task = None
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if self._taken is None and left_s > 0:
            self._end_if_idle_for(left_s)
        elif self._taken is None:
            super().timeout_keep_alive_handler()


UVICORN: dict[str, Any] = {
    "loop": "uvloop",
    "http": OnePacket,
    "access_log": False,
    "proxy_headers": False,  # nothing here asks who the client is
    "log_config": None,
    "server_header": False,
    "timeout_graceful_shutdown": 10,
}
