"""A fresh store for each test, on each kind of server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from service.clock import ManualClock
from tests.conftest import emptied
from tests.store.world import World

MakeWorld = Callable[..., Awaitable[World]]


STORES = {"valkey": "redis_server", "redis7": "redis7_server", "cluster": "cluster"}


@pytest.fixture(params=STORES.values(), ids=STORES.keys())
def fresh_url(request: pytest.FixtureRequest) -> str:
    """A store of each kind that holds nothing."""
    return emptied(request.getfixturevalue(request.param))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def make_world(fresh_url: str, clock: ManualClock) -> AsyncIterator[MakeWorld]:
    """Further processes on the same store; `bandwidth` is set by the first."""
    made: list[World] = []

    async def make(*, bandwidth: float | None = 1000.0, **settings: Any) -> World:
        world = World(fresh_url, settings.pop("clock", clock), **settings)
        made.append(world)
        if bandwidth is not None:
            await world.bandwidth(bandwidth)
        return world

    yield make
    for world in made:
        await world.close()


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    """1,000 crawls per second, no lookahead, hosts that need no rest, leases of a minute."""
    return await make_world()
