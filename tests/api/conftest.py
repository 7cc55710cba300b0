"""The application over a fresh store, asked in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.clock import Clock, ManualClock
from service.settings import Settings
from tests.conftest import emptied

MakeClient = Callable[..., Awaitable[httpx.AsyncClient]]
DEFAULTS: dict[str, Any] = {"shards": 4, "bandwidth": 1000.0, "min_delay_s": 0.0}


@asynccontextmanager
async def running_app(
    url: str, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that has started; it stops with the block."""
    app = create_app(Settings(redis_url=url, **{**DEFAULTS, **settings}), clock=clock)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://freshet.test") as client,
    ):
        client.app = app  # type: ignore[attr-defined]
        yield client


@pytest.fixture(autouse=True)
def cheap_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of starts in one process: the garbage of the tests is not collected at each."""
    quiet = SimpleNamespace(collect=lambda: 0, freeze=lambda: None, unfreeze=lambda: None)
    monkeypatch.setattr("service.app.gc", quiet)


@pytest.fixture(params=["redis_server", "cluster"], ids=["server", "cluster"])
def fresh_url(request: pytest.FixtureRequest) -> str:
    """A store that holds nothing: one server, then a cluster."""
    return emptied(request.getfixturevalue(request.param))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def make_client(fresh_url: str, clock: ManualClock) -> AsyncIterator[MakeClient]:
    async with AsyncExitStack() as stack:

        async def make(**settings: Any) -> httpx.AsyncClient:
            chosen = settings.pop("clock", clock)
            return await stack.enter_async_context(running_app(fresh_url, chosen, **settings))

        yield make


@pytest.fixture
async def client(make_client: MakeClient) -> httpx.AsyncClient:
    """1,000 crawls per second, hosts that need no rest, a clock that stands still."""
    return await make_client()
