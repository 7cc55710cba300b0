"""How HTTP is served, apart from where and by how many processes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


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
    """The server's own protocol, but an answer leaves in one piece."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Gathering(transport)))


UVICORN: dict[str, Any] = {
    "loop": "uvloop",
    "http": OnePacket,
    "access_log": False,
    "proxy_headers": False,  # nothing here asks who the client is
    "log_config": None,
    "server_header": False,
    "timeout_graceful_shutdown": 10,
}
