"""Around every request: its id, and how long it took."""

from __future__ import annotations

import re
import time
from hashlib import blake2b
from random import getrandbits

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import telemetry
from service.api.origin import refuse_foreign
from service.api.problems import problem_of, render

PRINTABLE = re.compile(rb"[!-~]{1,128}")


class RequestContext:
    """Echoes or makes `X-Request-Id`, and times the request by its route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = given_id(scope) or new_id()
        started, is_answered = time.perf_counter(), False

        async def send_with_id(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        try:
            await refuse_foreign(scope)
            if scope["method"] == "HEAD" and scope["path"] != "/next":  # where it leases nothing
                scope = {**scope, "method": "GET"}  # the server leaves the body out
            await self._app(scope, receive, send_with_id)
        except Exception as error:  # the framework would answer it outside of this
            if is_answered:
                raise
            await render(problem_of(error, scope["path"]))(scope, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            telemetry.REQUEST_SECONDS.labels(route).observe(time.perf_counter() - started)


def new_id() -> bytes:
    """An id for a request that came without; it tells requests apart and is no secret."""
    return b"%016x" % getrandbits(64)


def retry_id(scope: Scope) -> str:
    """What a retry is known by: the id that is echoed, or all of one that cannot be."""
    if usable := given_id(scope):
        return usable.decode("latin-1")
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return f"\x1f{blake2b(given, digest_size=16).hexdigest()}" if given else ""


def given_id(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and PRINTABLE.fullmatch(value):
            return bytes(value)
    return None
