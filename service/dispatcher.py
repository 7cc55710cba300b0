"""Serves all requests for pages that wait in this process by one script call at a time.

While a call is on its way further requests gather behind it, so the busier the process the more each call
serves, up to so many pages that others need not wait long for the store; a larger request takes several
calls. First come, first served. Answers are given while the next call is on its way, and what the callers
make of them is made in a row: work is cheaper for a processor that has just done the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from service.domain import Nothing

Leases = list[Any]  # of one request, as the store gives them
Finish = Callable[[Leases | Nothing], Any]  # makes what the caller gets
Ask = tuple[str, int, bool]  # request id or '', how many pages, whether it goes on with a batch
Serve = Callable[[Sequence[Ask]], Awaitable[tuple[list[Leases], Nothing]]]
PAGES_PER_CALL = 64  # so many are leased in a few milliseconds
LONGEST_SLEEP_S = 0.25  # so that a dial turned up elsewhere is noticed while waiting for a far slot


class _Waiting:
    """A request, and how its answer is to be given."""

    __slots__ = ("answer", "count", "deadline", "finish", "leases", "most", "request_id")

    def __init__(self, request_id: str, count: int, most: int, deadline: float, finish: Finish) -> None:
        self.request_id = request_id
        self.count = count
        self.most = most
        self.deadline = deadline
        self.finish = finish
        self.leases: Leases = []
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def next_count(self) -> int:
        """Pages of its next call: the same in every try, so that a retry finds what each call gave."""
        return min(self.count - len(self.leases), self.most)

    def ask(self) -> Ask:
        if not self.leases:
            return self.request_id, self.next_count, False
        part_id = f"{self.request_id}\x1f{len(self.leases)}" if self.request_id else ""
        return part_id, self.next_count, True

    def take(self, leases: Leases) -> bool:
        """Keep what a call gave; whether another may give more."""
        is_full = len(leases) == self.next_count
        self.leases = self.leases + leases if self.leases else leases
        return is_full and len(self.leases) < self.count

    def give(self, answer: Leases | Nothing) -> None:
        """Unless the caller hung up; its leases run out by themselves."""
        if self.answer.done():
            return
        try:
            self.answer.set_result(self.finish(answer))
        except Exception as error:
            self.answer.set_exception(error)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _give(answered: list[tuple[_Waiting, Leases | Nothing]]) -> None:
    for waiting, answer in answered:
        waiting.give(answer)


def _next_group(queue: deque[_Waiting]) -> list[_Waiting]:
    """The first of the queue whose pages one call gives; at least one of them."""
    group = [queue.popleft()]
    room = group[0].most - group[0].next_count
    while queue and queue[0].next_count <= room:
        room -= queue[0].next_count
        group.append(queue.popleft())
    return group


def as_it_is(answer: Leases | Nothing) -> Leases | Nothing:
    return answer


class Dispatcher:
    """Waiting requests of one process, and the task that serves them."""

    def __init__(self, serve: Serve, most: int = PAGES_PER_CALL) -> None:
        """Serves at most so many pages by one call."""
        self._serve = serve
        self._most = most
        self._fresh: list[_Waiting] = []
        self._patient: list[_Waiting] = []
        self._serving: list[_Waiting] = []
        self._arrival = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def next(self, request_id: str, count: int, wait_s: float, finish: Finish = as_it_is) -> Any:
        """What `finish` makes of up to `count` leases; holds on for up to `wait_s` while there are none."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        deadline = asyncio.get_running_loop().time() + wait_s if wait_s else 0.0
        waiting = _Waiting(request_id, count, self._most, deadline, finish)
        self._fresh.append(waiting)
        self._arrival.set()
        return await waiting.answer

    async def close(self) -> None:
        """Stop serving; who still waits gets nothing."""
        if self._task is not None:
            self._task.cancel()
        for waiting in self._serving + self._patient + self._fresh:
            waiting.give(Nothing("pace", 1.0))

    async def _run(self) -> None:
        while True:
            await self._arrival.wait()
            self._arrival.clear()
            while self._fresh or self._patient:
                retry_after_s = await self._round()
                if self._patient and not self._fresh:
                    await self._pause(min(retry_after_s, LONGEST_SLEEP_S))

    async def _round(self) -> float:
        """Script calls for all that wait; answers those it can, keeps those that may wait longer."""
        queue = deque(w for w in self._patient + self._fresh if not w.answer.done())
        self._patient, self._fresh, self._serving = [], [], list(queue)
        retry_after_s = 0.0
        while queue:
            retry_after_s = await self._call(_next_group(queue), queue)
        self._serving = []
        now = asyncio.get_running_loop().time()
        soonest = min((w.deadline for w in self._patient), default=now)
        return max(0.0, min(retry_after_s, soonest - now))

    async def _call(self, group: list[_Waiting], queue: deque[_Waiting]) -> float:
        """One script call; who may get more joins the queue again. Seconds until asking again may help."""
        try:
            answers, nothing = await self._serve([waiting.ask() for waiting in group])
        except Exception as error:
            for waiting in group:
                waiting.fail(error)
            return 0.0
        loop = asyncio.get_running_loop()
        now = loop.time()
        answered: list[tuple[_Waiting, Leases | Nothing]] = []
        for waiting, leases in zip(group, answers, strict=True):
            if waiting.take(leases) and not waiting.answer.done():
                queue.append(waiting)
            elif waiting.leases or waiting.deadline <= now:
                answered.append((waiting, waiting.leases or nothing))
            else:
                self._patient.append(waiting)
        loop.call_soon(_give, answered)
        return nothing.retry_after_s

    async def _pause(self, seconds: float) -> None:
        """Until the next slot, or until somebody new asks."""
        try:
            await asyncio.wait_for(self._arrival.wait(), seconds)
        except TimeoutError:
            return
        self._arrival.clear()
