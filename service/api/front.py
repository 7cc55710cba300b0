"""The routes crawlers and senders live on, answered before the framework is asked.

They stay registered as routes, which describes them, and their functions do the work here too: only the
framework's own work is left out. A request with anything unusual about it goes on to the framework, and
so does everything that is refused by the way it was asked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from service import telemetry
from service.api.auth import permitted
from service.api.middleware import PRINTABLE, new_id
from service.api.next import LONGEST_WAIT_S, MOST_PAGES, lease_pages
from service.api.origin import TELLING
from service.api.outcomes import post_outcomes
from service.api.problems import problem_of, render
from service.api.signals import post_signals
from service.store.keyring import Key
from service.timings import Timing

_PLAIN = re.compile(r"n=[1-9]\d{0,3}|wait=\d{1,2}(\.\d{1,6})?|crawler=[\w.:~-]{0,128}", re.ASCII)


class Asked(NamedTuple):
    """A request as far as the hot routes look at it."""

    scope: Scope
    receive: Receive
    given_id: bytes
    authorization: str
    n: int
    wait_s: float


class Hot(NamedTuple):
    """A route: who may use it, where its time is counted, and what answers."""

    roles: frozenset[str]
    seconds: Timing
    answer: Callable[[FastAPI, Asked, Key | None], Awaitable[Response]]


class Front(FastAPI):
    """The framework, with the hot routes before it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hot = HOT.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        asked = _read(scope, receive) if hot is not None else None
        if hot is None or asked is None:
            await super().__call__(scope, receive, send)
            return
        started = time.perf_counter()
        try:
            key = await self.state.gate.check(asked.authorization, hot.roles)
            response = await hot.answer(self, asked, key)
        except Exception as error:
            response = render(problem_of(error, scope["path"]))
        headers = [*response.raw_headers, (b"x-request-id", asked.given_id or new_id())]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})
        hot.seconds.observe(time.perf_counter() - started)


def _read(scope: Scope, receive: Receive) -> Asked | None:
    """The request, or None where it is for the framework."""
    parameters = read_query(scope["query_string"])
    given_id, authorization = b"", ""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            if given_id or not PRINTABLE.fullmatch(value):
                return None
            given_id = value
        elif name == b"authorization" and not authorization:
            authorization = value.decode("latin-1")
        elif name in TELLING:
            return None
    return parameters and Asked(scope, receive, given_id, authorization, *parameters)


@lru_cache(maxsize=4096)
def read_query(query: bytes) -> tuple[int, float] | None:
    """How many pages, and how long to wait; None unless every parameter is plain, known and given once."""
    found: dict[str, str] = {}
    for part in query.decode("latin-1").split("&") if query else ():
        name, _, value = part.partition("=")
        if name in found or not _PLAIN.fullmatch(part):
            return None
        found[name] = value
    n, wait_s = int(found.get("n", "1")), float(found.get("wait", "0"))
    return (n, wait_s) if 1 <= n <= MOST_PAGES and wait_s <= LONGEST_WAIT_S else None


def _next(app: FastAPI, asked: Asked, _: Key | None) -> Awaitable[Response]:
    given_id = asked.given_id.decode("latin-1")
    return lease_pages(app.state.frontier, given_id, asked.n, asked.wait_s, asked.receive)


def _posted(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    async def answer(app: FastAPI, asked: Asked, key: Key | None) -> Response:
        asked.scope["app"] = app
        request = Request(asked.scope, asked.receive)
        request.state.key = key
        return await endpoint(request)

    return answer


def _hot(path: str, role: str, answer: Callable[..., Awaitable[Response]]) -> Hot:
    return Hot(permitted(role), telemetry.REQUEST_SECONDS.labels(path), answer)


HOT = {
    ("GET", "/next"): _hot("/next", "crawler", _next),
    ("POST", "/outcomes"): _hot("/outcomes", "crawler", _posted(post_outcomes)),
    ("POST", "/signals"): _hot("/signals", "sender", _posted(post_signals)),
}
