"""Around every request: its id, and how long it took."""

from __future__ import annotations

import re
import time
from random import getrandbits

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import telemetry

PRINTABLE = re.compile(rb"[!-~]{1,128}")


class RequestContext:
    """Echoes or makes `X-Request-Id`, and times the request by its route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given_id(scope) or new_id()
        started = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            telemetry.REQUEST_SECONDS.labels(route).observe(time.perf_counter() - started)


def new_id() -> bytes:
    """An id for a request that came without; it tells requests apart and is no secret."""
    return b"%016x" % getrandbits(64)


def _given_id(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and PRINTABLE.fullmatch(value):
            return bytes(value)
    return None
