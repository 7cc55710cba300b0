"""Liveness, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service import telemetry
from service.api.auth import allow
from service.api.body import json_answer
from service.api.deps import frontier_of
from service.api.openapi import documented
from service.api.problems import Problem
from service.errors import StoreUnavailable
from service.status import gather_status, set_gauges

router = APIRouter(tags=["operators"])


@router.get("/healthz", summary="The process is alive", **documented())
async def healthz() -> Response:
    """Says nothing about the store."""
    return json_answer({"status": "alive"})


@router.get("/readyz", summary="The service can serve", **documented())
async def readyz(request: Request) -> Response:
    """A script ran on every shard just now; else 503 with the reason."""
    try:
        state = await frontier_of(request).ready()
    except StoreUnavailable as error:
        raise Problem(503, str(error), headers={"Retry-After": "1"}) from error
    return json_answer(state)


@router.get("/metrics", summary="Prometheus metrics", dependencies=[allow("reader")], **documented())
async def metrics(request: Request) -> Response:
    """Gauges of the shared state are read at each scrape; counters are this process's own."""
    set_gauges(await gather_status(frontier_of(request)))
    return Response(generate_latest(telemetry.REGISTRY), media_type=CONTENT_TYPE_LATEST)
