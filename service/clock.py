"""Where time comes from.

The scheduler lives on the store's clock: scripts read it themselves and keep it monotonic. Simulations
and tests hand a clock of their own to every script instead.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Gives the scripts their `now`."""

    async def argument(self) -> str:
        """What a script gets as its now: milliseconds, or '' for the server's own clock."""
        ...


class ServerClock:
    """The store's clock: what every real deployment uses."""

    async def argument(self) -> str:
        return ""


class ManualClock:
    """Time that moves only when told to, for simulations and tests in one process."""

    def __init__(self, now_at: float = 1_700_000_000.0) -> None:
        self.now_at = now_at

    async def argument(self) -> str:
        return f"{self.now_at * 1000:.3f}"

    def advance(self, seconds: float) -> None:
        self.now_at += seconds
