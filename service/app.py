"""The ASGI application: resources opened in one place, routes put together, nothing else."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI

from service import __version__
from service.api import (
    admin,
    audit,
    dashboard,
    forecast,
    health,
    leases,
    next,
    outcomes,
    pages,
    parked,
    problems,
    requests,
    signals,
    sources,
)
from service.api.auth import Gate
from service.api.front import Front
from service.api.hatch import Hatch, refuse
from service.api.middleware import RequestContext
from service.api.openapi import components
from service.clock import Clock, ServerClock
from service.errors import StoreUnavailable
from service.frontier import Frontier
from service.settings import Settings
from service.store.connection import Server
from service.store.keyring import Keyring
from service.transport import REFUSE, TAKE

log = logging.getLogger("freshet.app")
RETRY_S = 1.0
MODULES = (
    next,
    outcomes,
    leases,
    signals,
    requests,
    pages,
    admin,
    forecast,
    parked,
    sources,
    audit,
    health,
    dashboard,
)
DESCRIPTION = """Tells a crawler fleet which URL to fetch next, so that at a fixed crawl rate as many reader
requests as possible find a fresh copy. It never fetches, renders or parses a page."""


def create_app(settings: Settings, *, clock: Clock | None = None) -> FastAPI:
    """The service over the store at `settings.redis_url`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        server = Server(settings.redis_url)
        frontier = Frontier(server, clock or ServerClock(), settings)
        app.state.frontier = frontier
        app.state.gate = Gate(Keyring(server), is_open=settings.is_loopback)
        with suppress(StoreUnavailable):
            await frontier.prepare()
        waiting = asyncio.create_task(_prepare(frontier))
        gc.collect()
        gc.freeze()  # what exists now lives as long as the process: scanning it again costs latency
        try:
            yield {TAKE: Hatch(frontier, app.state.gate).take, REFUSE: refuse}
        finally:
            gc.unfreeze()
            waiting.cancel()
            await frontier.close()
            await server.close()

    app = Front(
        title="Freshet",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
    )
    for module in MODULES:
        app.include_router(module.router)
    problems.install(app, [route for module in MODULES for route in module.router.routes])
    app.add_middleware(RequestContext)
    _describe(app)
    return app


async def _prepare(frontier: Frontier) -> None:
    """Prepare the store, however long it takes to appear; until then the service is alive but not ready."""
    while not frontier.prepared:
        try:
            await frontier.prepare()
        except StoreUnavailable as error:
            log.warning("store_unavailable_at_start", extra={"cause": str(error)})
            await asyncio.sleep(RETRY_S)


def _describe(app: FastAPI) -> None:
    """Add the schemas of bodies and answers to the OpenAPI document."""
    build = app.openapi

    def openapi() -> dict[str, Any]:
        document = build()
        document.setdefault("components", {}).setdefault("schemas", {}).update(components())
        return document

    app.openapi = openapi  # type: ignore[method-assign]
