"""Requests for pages as plain as nearly all are, answered without scope, task or route.

A head that came in one piece is read by one expression, far stricter than HTTP is. What does not fit it goes
the ordinary way, and so does who may not ask or is the first to ask after the keys have aged.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import lru_cache, partial

from fastapi.responses import Response

from service.api.auth import Gate
from service.api.front import HOT, read_query
from service.api.middleware import PRINTABLE, given_id, new_id
from service.api.next import answer_of, page_headers, render_pages
from service.api.problems import Problem, problem_of, render
from service.frontier import Frontier
from service.transport import Reply, lines_of
from service.waiting import Answer, Waiting

MOST_BYTES = 2048  # of a head: more is not plain, and is not worth remembering
_NEXT = HOT["GET", "/next"]
_HEAD = re.compile(
    rb"GET /next(?:\?([!-~]*))? HTTP/1\.1(\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~]*\r\n)*)\r\n"
)
# What decides how a request is read or answered; no other header does.
_TELLING = re.compile(
    rb"\n(x-request-id|authorization|origin|sec-fetch-site|connection|proxy-connection|content-length|transfer-encoding|expect|upgrade)"
    rb":[ \t]*([^\r]*)",
    re.IGNORECASE,
)
Plain = tuple[str, int, float, str]  # the request id given or '', how many pages, how long to wait, whose key


class Hatch:
    """Where plain requests are taken and answered."""

    def __init__(self, frontier: Frontier, gate: Gate) -> None:
        self._frontier = frontier
        self._gate = gate

    def take(self, data: bytes, reply: Reply) -> Waiting | None:
        """The request on its way, if these bytes are a plain one; None where they are for somebody else."""
        if not data.startswith(b"GET /next") or len(data) > MOST_BYTES or (asked := read_plain(data)) is None:
            return None
        request_id, n, wait_s, authorization = asked
        if not self._gate.admits(authorization, _NEXT.roles):
            return None
        give = partial(_answer, reply, request_id, time.perf_counter())
        return self._frontier.ask(request_id, n, wait_s, give)


@lru_cache(maxsize=1024)
def read_plain(data: bytes) -> Plain | None:
    """What a request says whose bytes these are; None unless it is plain. Most callers repeat themselves."""
    head = _HEAD.fullmatch(data)
    parameters = read_query(head[1] or b"") if head else None
    if head is None or parameters is None:
        return None
    given_id, authorization = b"", ""
    for name, value in _TELLING.findall(head[2]):
        kind = name.lower()
        if kind == b"x-request-id" and not given_id and PRINTABLE.fullmatch(value):
            given_id = value
        elif kind == b"authorization" and not authorization:
            authorization = value.decode("latin-1")
        elif kind != b"connection" or value.lower() != b"keep-alive":
            return None
    return given_id.decode("latin-1"), *parameters, authorization


def _answer(reply: Reply, request_id: str, started: float, found: Answer) -> None:
    try:
        status, lines, body = _write(found)
    except Exception as error:
        status, lines, body = _parts_of(render(problem_of(error, "/next")))
    reply(status, lines + b"x-request-id: %b\r\n" % (request_id.encode("latin-1") or new_id()), body)
    _NEXT.seconds.observe(time.perf_counter() - started)


def _write(found: Answer) -> tuple[int, bytes, bytes]:
    """Status, lines of headers, and body."""
    if isinstance(found, list):
        body = render_pages(found)
        return 200, _PAGES_LINES % len(body), body
    if isinstance(found, Exception):
        return _parts_of(render(problem_of(found, "/next")))
    return _parts_of(answer_of(found))


def refuse(status: int, detail: str, headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Lines of headers and body for what is no request, as far as it was read."""
    _, lines, body = _parts_of(render(Problem(status, detail, headers={"Connection": "close"})))
    return lines + b"x-request-id: %b\r\n" % (given_id({"headers": headers}) or new_id()), body


def _parts_of(response: Response) -> tuple[int, bytes, bytes]:
    return response.status_code, lines_of(response.raw_headers), bytes(response.body)


_PAGES_LINES = lines_of(page_headers(b"%d"))
