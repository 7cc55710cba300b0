"""The store's deadline on a machine whose own timers may be late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from service.store.node import DEADLINE_S


async def overdue_s(work: Awaitable[object]) -> float:
    """For how long work went on after a timer that was set with it to the deadline went off; 0 if before."""
    loop = asyncio.get_running_loop()
    passed: list[float] = []
    timer = loop.call_later(DEADLINE_S, lambda: passed.append(loop.time()))
    await work
    timer.cancel()
    return loop.time() - passed[0] if passed else 0.0
