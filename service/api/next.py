"""GET /next: the page whose crawl is worth most right now."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from functools import cache
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service import telemetry
from service.api.auth import allow
from service.api.body import JSON, RawResponse
from service.api.deps import frontier_of
from service.api.instants import render_instant, render_optional
from service.api.openapi import documented
from service.api.schemas import LeaseOut, NextAnswer
from service.domain import Lease, Nothing
from service.frontier import Frontier

router = APIRouter(tags=["crawlers"], dependencies=[allow("crawler")])
MOST_PAGES, LONGEST_WAIT_S = 1000, 30
_encode = msgspec.json.Encoder().encode
_count_empty = cache(telemetry.NEXT_EMPTY.labels)
_NO_STORE = (b"cache-control", b"no-store")


@router.get(
    "/next",
    summary="The pages to crawl now",
    **documented(answer=NextAnswer, says="Pages on lease", empty="Nothing to crawl now"),
)
async def get_next(
    request: Request,
    n: Annotated[int, Query(ge=1, le=MOST_PAGES, description="at most this many pages")] = 1,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="seconds to wait for a slot")] = 0.0,
    crawler: Annotated[str, Query(max_length=128, description="who asks, for the log")] = "",
) -> Response:
    """Leases the best pages at the pace of the bandwidth.

    204 when there is nothing: `X-Empty-Reason` says why (`pace`, `politeness`, `no-pages`, `paused`),
    `Retry-After` when to ask again in whole seconds and `X-Retry-After-Ms` in milliseconds. An `X-Request-Id`
    makes a retry safe: the same id within a minute gets the same leases.
    """
    del crawler
    request_id = request.headers.get("x-request-id", "")[:128]
    return await lease_pages(frontier_of(request), request_id, n, wait)


@router.head("/next", include_in_schema=False)
async def head_next() -> Response:
    """Leases nothing."""
    return Response(status_code=204, headers={"Cache-Control": "no-store"})


def lease_pages(frontier: Frontier, request_id: str, n: int, wait_s: float) -> Awaitable[Response]:
    """The answer to a request for pages."""
    return frontier.next(request_id, n, wait_s, _answer)


def _answer(answer: list[Lease] | Nothing) -> Response:
    if isinstance(answer, Nothing):
        return _empty(answer)
    telemetry.NEXT_PAGES.inc(len(answer))
    body = _encode(NextAnswer([_render(lease) for lease in answer]))
    return RawResponse(200, [_NO_STORE, (b"content-length", b"%d" % len(body)), JSON], body)


def _empty(nothing: Nothing) -> Response:
    _count_empty(nothing.reason).inc()
    headers = [
        _NO_STORE,
        (b"x-empty-reason", nothing.reason.encode()),
        (b"retry-after", b"%d" % max(1, math.ceil(nothing.retry_after_s))),
        (b"x-retry-after-ms", b"%d" % math.ceil(nothing.retry_after_s * 1000)),
    ]
    return RawResponse(204, headers)


def _render(lease: Lease) -> LeaseOut:
    return LeaseOut(
        lease.url,
        lease.host,
        lease.lease,
        render_instant(lease.lease_expires_at),
        render_instant(lease.not_before),
        lease.value,
        lease.freshness,
        lease.effective_elapsed_s,
        lease.signals,
        render_optional(lease.last_crawled_at),
        lease.etag,
        render_optional(lease.last_modified),
    )
