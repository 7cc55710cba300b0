"""GET /next: the page whose crawl is worth most right now."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service import telemetry
from service.api.auth import allow
from service.api.body import json_answer
from service.api.deps import frontier_of
from service.api.instants import render_instant
from service.api.openapi import documented
from service.api.schemas import NextAnswer
from service.domain import Lease, Nothing

router = APIRouter(tags=["crawlers"], dependencies=[allow("crawler")])


@router.get(
    "/next",
    summary="The pages to crawl now",
    **documented(answer=NextAnswer, says="Pages on lease", empty="Nothing to crawl now"),
)
async def get_next(
    request: Request,
    n: Annotated[int, Query(ge=1, le=1000, description="at most this many pages")] = 1,
    wait: Annotated[float, Query(ge=0, le=30, description="seconds to wait for a slot")] = 0.0,
    crawler: Annotated[str, Query(max_length=128, description="who asks, for the log")] = "",
) -> Response:
    """Leases the best pages at the pace of the bandwidth.

    204 when there is nothing: `X-Empty-Reason` says why (`pace`, `politeness`, `no-pages`, `paused`),
    `Retry-After` when to ask again in whole seconds and `X-Retry-After-Ms` in milliseconds. An `X-Request-Id`
    makes a retry safe: the same id within a minute gets the same leases.
    """
    del crawler
    request_id = request.headers.get("x-request-id", "")[:128]
    answer = await frontier_of(request).next(request_id, n, wait)
    if isinstance(answer, Nothing):
        return _empty(answer)
    telemetry.NEXT_PAGES.inc(len(answer))
    pages = [_render(lease) for lease in answer]
    return json_answer({"pages": pages}, headers={"Cache-Control": "no-store"})


@router.head("/next", include_in_schema=False)
async def head_next() -> Response:
    """Leases nothing."""
    return Response(status_code=204, headers={"Cache-Control": "no-store"})


def _empty(nothing: Nothing) -> Response:
    telemetry.NEXT_EMPTY.labels(nothing.reason).inc()
    headers = {
        "Cache-Control": "no-store",
        "X-Empty-Reason": nothing.reason,
        "Retry-After": str(max(1, math.ceil(nothing.retry_after_s))),
        "X-Retry-After-Ms": str(math.ceil(nothing.retry_after_s * 1000)),
    }
    return Response(status_code=204, headers=headers)


def _render(lease: Lease) -> dict[str, str | float | None]:
    return {
        "url": lease.url,
        "host": lease.host,
        "lease": lease.lease,
        "lease_expires_at": render_instant(lease.lease_expires_at),
        "not_before": render_instant(lease.not_before),
        "value": lease.value,
        "freshness": lease.freshness,
        "effective_elapsed_s": lease.effective_elapsed_s,
        "signals": lease.signals,
        "last_crawled_at": render_instant(lease.last_crawled_at),
        "etag": lease.etag,
        "last_modified": render_instant(lease.last_modified),
    }
