"""Hands pages of the stock to those who ask for one.

A request with an id gets its page once the store keeps it as the answer to that id: from then on a retry gets
the same. Where the store knows the id already the request is a retry, and goes the ordinary way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from service.stock import Held, Lease, Stock
from service.waiting import Answer, Waiting, give_all

Keep = Callable[[Sequence[tuple[str, Lease]]], Awaitable[list[bool]]]  # by id; false where it is known
CALLS_AT_ONCE = 2  # requests with ids that come meanwhile share the next
Taken = list[tuple[Waiting, Held]]


class Counter:
    """Where who asks for one page is served first."""

    def __init__(self, stock: Stock, keep: Keep, go_on: Callable[[list[Waiting]], None]) -> None:
        """`go_on` is told whose ids are known, or of none when others with ids may be served."""
        self._stock = stock
        self._keep = keep
        self._go_on = go_on
        self._keeping = 0  # calls under way
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, queue: deque[Waiting], now: float) -> None:
        """Answer the first of the queue, as long as they ask for one page and there are some."""
        plain: Taken = []
        named: Taken = []
        while queue and (queue[0].is_gone or self._may_serve(queue[0])):
            if not queue[0].is_gone:
                held = self._stock.take(now)
                if held is None:
                    break
                (named if queue[0].request_id else plain).append((queue[0], held))
            queue.popleft()
        if named:
            self._keeping += 1
            task = asyncio.create_task(self._serve_named(named))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if plain:
            asyncio.get_running_loop().call_soon(give_all, _answers(plain))

    async def close(self) -> None:
        """Wait for those who are being served."""
        await asyncio.gather(*self._tasks)

    def _may_serve(self, waiting: Waiting) -> bool:
        return waiting.is_single and (not waiting.request_id or self._keeping < CALLS_AT_ONCE)

    async def _serve_named(self, taken: Taken) -> None:
        """Those who stand behind them go on before their answers are made."""
        known: Taken = []
        try:
            kept = await self._keep([(waiting.request_id, lease) for waiting, (_, lease) in taken])
            known = [one for one, is_kept in zip(taken, kept, strict=True) if not is_kept]
            answered = _answers([one for one, is_kept in zip(taken, kept, strict=True) if is_kept])
        except Exception as error:  # whether they are kept is not known, so the pages must not go to others
            answered = [(waiting, error) for waiting, _ in taken]
        self._keeping -= 1
        self._stock.put_back([held for _, held in known])
        self._go_on([waiting for waiting, _ in known])
        asyncio.get_running_loop().call_soon(give_all, answered)


def _answers(taken: Taken) -> list[tuple[Waiting, Answer]]:
    return [(waiting, [lease]) for waiting, (_, lease) in taken]
