"""GET /next: the page whose crawl is worth most right now."""

from __future__ import annotations

import asyncio
from functools import cache
from math import ceil, exp
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.types import Receive

from service import telemetry
from service.address import url_of
from service.api.auth import allow
from service.api.body import JSON, RawResponse
from service.api.deps import frontier_of
from service.api.instants import render_instant, render_ms
from service.api.middleware import retry_id
from service.api.openapi import documented
from service.api.schemas import LeaseOut, NextAnswer
from service.domain import Nothing
from service.frontier import Frontier
from service.waiting import Leases

router = APIRouter(tags=["crawlers"], dependencies=[allow("crawler")])
MOST_PAGES, LONGEST_WAIT_S = 1000, 30
LONGEST_RETRY_S = 60.0  # whoever stays away for longer misses that the dial was turned up
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
    crawler: Annotated[str, Query(max_length=128, description="who asks, for access logs in front")] = "",
) -> Response:
    """Leases the best pages at the pace of the bandwidth.

    204 when there is nothing: `X-Empty-Reason` says why (`pace`, `politeness`, `no-pages`, `paused`),
    `Retry-After` when to ask again in whole seconds and `X-Retry-After-Ms` in milliseconds. An `X-Request-Id`
    makes a retry safe: the same id within a minute gets the same leases.
    """
    del crawler
    return await lease_pages(frontier_of(request), retry_id(request.scope), n, wait, request.receive)


@router.head("/next", include_in_schema=False)
async def head_next() -> Response:
    """Leases nothing."""
    return Response(status_code=204, headers={"Cache-Control": "no-store"})


async def lease_pages(
    frontier: Frontier, request_id: str, n: int, wait_s: float, receive: Receive
) -> Response:
    """The answer to a request for pages; nothing stays leased for a caller that hung up while it waited."""
    if not wait_s and n == 1:  # over before a caller could hang up
        return answer_of(await frontier.next(request_id, n, wait_s))
    asked = asyncio.ensure_future(frontier.next(request_id, n, wait_s))
    watch = asyncio.create_task(_hang_up(receive))
    watch.add_done_callback(lambda _: asked.cancel())
    try:
        return answer_of(await asked)
    except asyncio.CancelledError:
        return RawResponse(204, [_NO_STORE]) if watch.done() else answer_of(Nothing("pace", 1.0))  # it stops
    finally:
        watch.cancel()


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def answer_of(found: Leases | Nothing) -> Response:
    """What there is for a request, as it is sent."""
    if isinstance(found, Nothing):
        return _empty(found)
    body = render_pages(found)
    return RawResponse(200, page_headers(b"%d" % len(body)), body)


def page_headers(length: bytes) -> list[tuple[bytes, bytes]]:
    """Of an answer with pages."""
    return [_NO_STORE, (b"content-length", length), JSON]


def render_pages(rows: Leases) -> bytes:
    """The body that hands these pages out."""
    return _encode(NextAnswer([_render(*row) for row in rows]))


def _empty(nothing: Nothing) -> Response:
    _count_empty(nothing.reason).inc()
    retry_ms = max(1, ceil(min(nothing.retry_after_s, LONGEST_RETRY_S) * 1000))
    headers = [
        _NO_STORE,
        (b"x-empty-reason", nothing.reason.encode()),
        (b"retry-after", b"%d" % ceil(retry_ms / 1000)),
        (b"x-retry-after-ms", b"%d" % retry_ms),
    ]
    return RawResponse(204, headers)


def _render(
    _: int,  # whether the price follows its value
    host_id: str,
    page_id: int,
    token: int,
    host: str,
    path: str,
    slot_ms: float,
    expires_ms: float,
    value: float,
    elapsed_ms: float,
    silent_rate: float,
    signals: int,
    crawled_ms: float,
    etag: str,
    modified: str | int,
    __: bytes,  # how the store gave it
) -> LeaseOut:
    """A row, read as `rows.lease_from` does but without a lease: there are tens of thousands a second."""
    if elapsed_ms < 0:
        freshness, elapsed_s, crawled_at = 0.0, None, None
    else:
        freshness, elapsed_s = exp(-silent_rate * elapsed_ms / 1000), elapsed_ms / 1000
        crawled_at = render_ms(crawled_ms)
    return LeaseOut(
        url_of(host, path),
        host,
        f"{host_id}.{page_id:x}.{token:x}",
        render_ms(expires_ms),
        render_ms(slot_ms),
        value,
        freshness,
        elapsed_s,
        signals,
        crawled_at,
        etag or None,
        render_instant(float(modified)) if modified else None,
    )
