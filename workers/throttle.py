"""How hard a worker may lean on the store: its calls take at most a share of the server's time."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from service.store.connection import Server
from service.store.pipe import Command

SPARE_S = 0.25  # time without calls that may be made up for later: what ranking some pages takes
REMEMBERED = 64  # calls of a kind by which the next is judged


class Throttle:
    """Decides how long the server is to be left alone before the next call."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._paid_at = float("-inf")  # when the calls so far have had their share
        self._waits: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def add(self, kind: str, began_at: float, waited_s: float) -> None:
        """A call of this kind began then, and was waited for.

        Others' calls and a busy machine only add to a wait, so what the server itself needs for a call is
        taken to be what the quickest tenth of the last of its kind were waited for. A server that makes
        nearly all of them wait is left alone for longer.
        """
        waits = self._waits[kind]
        waits.append(waited_s)
        took_s = min(waited_s, sorted(waits)[len(waits) // 10])
        self._paid_at = max(self._paid_at, began_at - SPARE_S) + took_s / self._share

    def pause_s(self, now_at: float) -> float:
        return max(0.0, self._paid_at - now_at)


class ThrottledServer(Server):
    """A server whose caller waits its turn before every round trip."""

    def __init__(self, url: str, *, connections: int, share: float) -> None:
        super().__init__(url, connections=connections)
        self._throttle = Throttle(share)

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        pause_s = self._throttle.pause_s(time.perf_counter())
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        began_at, busy_s = time.perf_counter(), time.thread_time()
        try:
            return await super()._send(commands)
        finally:
            # What this process itself did meanwhile was not waiting.
            waited_s = time.perf_counter() - began_at - (time.thread_time() - busy_s)
            self._throttle.add(_kind(commands), began_at, max(0.0, waited_s))


def _kind(commands: Sequence[Command]) -> str:
    """The function called, or the command."""
    name, *arguments = commands[0] if commands else ("",)
    return str(arguments[0]) if name == "FCALL" else str(name)
