"""Requests for pages as plain as nearly all are, answered without scope, task or route.

A head that came in one piece is read by one expression, far stricter than HTTP is. What does not fit it goes
the ordinary way, and so does who may not ask or is the first to ask after the keys have aged.
"""

from __future__ import annotations

import re
import time
from functools import partial
from typing import NamedTuple

from fastapi.responses import Response

from service.api.auth import Gate
from service.api.front import HOT, read_query
from service.api.middleware import PRINTABLE, new_id
from service.api.next import answer_of
from service.api.problems import problem_of, render
from service.dispatcher import Answer, Waiting
from service.frontier import Frontier
from service.transport import Reply

_NEXT = HOT["GET", "/next"]
_HEAD = re.compile(
    rb"GET /next(?:\?([!-~]*))? HTTP/1\.1(\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~]*\r\n)*)\r\n"
)
# What decides how a request is read or answered; no other header does.
_TELLING = re.compile(
    rb"\n(x-request-id|authorization|connection|proxy-connection|content-length|transfer-encoding|expect|upgrade)"
    rb":[ \t]*([^\r]*)",
    re.IGNORECASE,
)


class Plain(NamedTuple):
    """What a plain request says."""

    n: int
    wait_s: float
    given_id: bytes
    authorization: str


class Hatch:
    """Where plain requests are taken and answered."""

    def __init__(self, frontier: Frontier, gate: Gate) -> None:
        self._frontier = frontier
        self._gate = gate

    def take(self, data: bytes, reply: Reply) -> Waiting | None:
        """The request on its way, if these bytes are a plain one; None where they are for somebody else."""
        asked = read_plain(data)
        if asked is None or not self._gate.admits(asked.authorization, _NEXT.roles):
            return None
        give = partial(_answer, reply, asked.given_id, time.perf_counter())
        return self._frontier.ask(asked.given_id.decode("latin-1"), asked.n, asked.wait_s, give)


def read_plain(data: bytes) -> Plain | None:
    """What a request says whose bytes these are; None unless it is plain."""
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
    return Plain(*parameters, given_id, authorization)


def _answer(reply: Reply, given_id: bytes, started: float, found: Answer) -> None:
    response = _response(found)
    headers = [*response.raw_headers, (b"x-request-id", given_id or new_id())]
    reply(response.status_code, headers, bytes(response.body))
    _NEXT.seconds.observe(time.perf_counter() - started)


def _response(found: Answer) -> Response:
    if isinstance(found, Exception):
        return render(problem_of(found, "/next"))
    try:
        return answer_of(found)
    except Exception as error:
        return render(problem_of(error, "/next"))
