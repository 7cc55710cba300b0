"""Pages leased a moment before somebody asks for them.

Where requests for a page come thick and fast more will come within milliseconds. Pages for those are leased
beside the pages of who waits: a call that leases many costs the store little more than one that leases few,
and whoever comes next need not wait for it. The store gives them only while it finds more than are asked
for; what nobody came for is given back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from service import telemetry

log = logging.getLogger("freshet.stock")
Lease = Any  # as the store gives it
GiveBack = Callable[[list[Lease]], Awaitable[object]]
HOLD_S = 0.05  # older pages are not handed out: in less than that values hardly move
LEAST = 8  # requests that must be expected: where fewer come each is asked for by itself
MOST = 128  # pages: one call's worth is handed out while another is leased


class Stock:
    """Leases of one process that nobody has yet; instants are of the monotonic clock."""

    def __init__(self, give_back: GiveBack, ahead_s: float) -> None:
        """For those who come within `ahead_s`; 0 for nobody."""
        self._give_back = give_back
        self._ahead_s = ahead_s
        self._held: deque[tuple[float, Lease]] = deque()  # since when; oldest first
        self._came = 0  # requests since the begin of the window
        self._began = 0.0
        self._expected = 0  # requests, by the last window
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.coming = 0  # pages that calls under way were asked for

    def __len__(self) -> int:
        return len(self._held)

    def note(self, requests: int, now: float) -> None:
        """So many requests for one page came just now."""
        if self._ahead_s and now - self._began >= self._ahead_s:
            expected = int(self._came * self._ahead_s / (now - self._began))
            self._expected = min(MOST, expected) if expected >= LEAST else 0
            self._began, self._came = now, 0
        self._came += requests

    def lacks(self) -> int:
        """Pages that should be leased beside those that are here or coming."""
        return self._expected - len(self._held) - self.coming

    def ask(self, pages: int) -> None:
        """A call was asked for so many."""
        self.coming += pages

    def add(self, asked: int, leases: list[Lease], since: float) -> None:
        """What became of pages that a call was asked for at an instant."""
        self.coming -= asked
        if 2 * len(leases) < asked:  # there is no plenty
            self._expected = 0
        self._held.extend([(since, lease) for lease in leases])
        self._watch()

    def take(self, now: float) -> Lease | None:
        """A page for somebody, if there is one that is not too old."""
        self._return_older(now - HOLD_S)
        return self._held.popleft()[1] if self._held else None

    def stop(self) -> None:
        """Nobody is expected any more."""
        self._ahead_s, self._expected = 0.0, 0

    async def close(self) -> None:
        """Give everything back."""
        if self._timer is not None:
            self._timer.cancel()
        self._return_older(float("inf"))
        await asyncio.gather(*self._tasks)

    def _watch(self) -> None:
        """Give pages back when the oldest is too old."""
        if self._held and self._timer is None:
            left_s = max(0.0, self._held[0][0] + HOLD_S - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left_s, self._clear)

    def _clear(self) -> None:
        self._timer = None
        self._return_older(time.monotonic() - HOLD_S)
        self._watch()

    def _return_older(self, instant: float) -> None:
        old: list[Lease] = []
        while self._held and self._held[0][0] <= instant:
            old.append(self._held.popleft()[1])
        self.give_back(old)

    def give_back(self, leases: list[Lease]) -> None:
        """Nobody gets these."""
        if leases:
            task = asyncio.create_task(self._return(leases))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _return(self, leases: list[Lease]) -> None:
        telemetry.NEXT_UNUSED.inc(len(leases))
        try:
            await self._give_back(leases)
        except Exception as error:  # they come back by themselves when their time is over
            log.warning("leases_not_given_back", extra={"pages": len(leases), "cause": str(error)})
