"""How HTTP is served, apart from where and by how many processes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD, _CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 100"


class _Gathering:
    """A connection that sends the head of an answer together with what follows it.

    Each packet may wake the caller, which costs the kernel more than the rest of the answer.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_HEAD) and not data.startswith(_CONTINUE):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Nothing follows."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OnePacket(HttpToolsProtocol):
    """The server's own protocol, but an answer leaves in one piece."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._gathering = _Gathering(transport)
        super().connection_made(cast(asyncio.Transport, self._gathering))

    def on_response_complete(self) -> None:
        self._gathering.flush()  # the answer to HEAD has no body
        super().on_response_complete()


UVICORN: dict[str, Any] = {
    "loop": "uvloop",
    "http": OnePacket,
    "access_log": False,
    "proxy_headers": False,  # nothing here asks who the client is
    "log_config": None,
    "server_header": False,
    "timeout_graceful_shutdown": 10,
}
