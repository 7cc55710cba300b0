"""Writing behind: what was decided last is written while the next is thought about."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


class Behind:
    """One piece of work at a time in the background, none left over when the block ends."""

    def __init__(self) -> None:
        self._task: asyncio.Task[int] | None = None

    async def start(self, work: Coroutine[Any, Any, int]) -> int:
        """Begin a piece once the one before is done; returns what that one came to."""
        before = await self.finish()
        self._task = asyncio.create_task(work)
        return before

    async def finish(self) -> int:
        """Wait for the piece under way; returns what it came to."""
        task, self._task = self._task, None
        return await task if task is not None else 0

    async def __aenter__(self) -> Behind:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
