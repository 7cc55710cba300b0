"""Serves all requests for pages that wait in this process by few script calls.

While calls are on their way further requests gather behind them, so the busier the process the more each call
serves, up to so many pages that others need not wait long for the store; a larger request takes several
calls. First come, first served. Two calls take turns: answers to the one are made while the store works on
the other. What callers make of their answers is made in a row: work is cheaper for a processor that has just
done the same.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from service.domain import Nothing

log = logging.getLogger("freshet.dispatcher")
Leases = list[Any]  # of one request, as the store gives them
Answer = Leases | Nothing | Exception
Give = Callable[[Answer], None]  # takes what there is for a caller; called once
Ask = tuple[str, int, bool]  # request id or '', how many pages, whether it goes on with a batch
Serve = Callable[[Sequence[Ask]], Awaitable[tuple[list[Leases], Nothing]]]
PAGES_PER_CALL = 64  # so many are leased in a few milliseconds
CALLS_AT_ONCE = 2  # the store has the next call when it is done with one
FEW = 16  # requests that are not shared out among calls: a call has a cost of its own
LONG_S = 1.0  # for a call that fails: the store does not answer, and nobody need wait for that twice
LONGEST_SLEEP_S = 0.25  # so that a dial turned up elsewhere is noticed while waiting for a far slot


class Waiting:
    """A request, and how its answer is to be given."""

    __slots__ = ("_count", "_give", "_most", "deadline", "is_gone", "leases", "next_count", "request_id")

    def __init__(self, request_id: str, count: int, most: int, deadline: float, give: Give) -> None:
        self.request_id = request_id
        self._count = count
        self._most = most
        self.deadline = deadline
        self._give = give
        self.leases: Leases = []
        self.is_gone = False  # the caller hung up; what is leased for it already runs out by itself
        # Pages of its next call: the same in every try, so that a retry finds what each call gave.
        self.next_count = min(count, most)

    def ask(self) -> Ask:
        if not self.leases:
            return self.request_id, self.next_count, False
        part_id = f"{self.request_id}\x1f{len(self.leases)}" if self.request_id else ""
        return part_id, self.next_count, True

    def take(self, leases: Leases) -> bool:
        """Keep what a call gave; whether another may give more."""
        is_full = len(leases) == self.next_count
        self.leases = self.leases + leases if self.leases else leases
        self.next_count = min(self._count - len(self.leases), self._most)
        return is_full and self.next_count > 0

    def answer(self, answer: Answer) -> None:
        """Only the first counts: on a connection a second would be taken for the next request's."""
        give, self._give = self._give, _drop
        try:
            give(answer)
        except Exception:  # who is answered after this one must be
            log.exception("answer_not_given")


def _drop(_: Answer) -> None:
    pass


def _give(answered: list[tuple[Waiting, Answer]]) -> None:
    for waiting, answer in answered:
        waiting.answer(answer)


def _next_group(queue: deque[Waiting], most: int, room: int) -> list[Waiting]:
    """The first of the queue, at most so many, whose pages one call gives; none of those who hung up."""
    group: list[Waiting] = []
    while queue and len(group) < most and queue[0].next_count <= room:
        waiting = queue.popleft()
        if not waiting.is_gone:
            room -= waiting.next_count
            group.append(waiting)
    return group


def _settle(answered: asyncio.Future[Leases | Nothing], answer: Answer) -> None:
    if answered.done():  # the caller hung up
        return
    if isinstance(answer, Exception):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)


class Dispatcher:
    """Waiting requests of one process, and the calls that serve them."""

    def __init__(self, serve: Serve, most: int = PAGES_PER_CALL, beside: int = 0) -> None:
        """Serves at most so many pages by one call; calls take turns where `beside` pages or more wait."""
        self._serve = serve
        self._most = most
        self._beside = beside
        self._fresh: list[Waiting] = []
        self._patient: list[Waiting] = []
        self._queue: deque[Waiting] = deque()
        self._under_way: list[list[Waiting]] = []
        self._answering = 0  # requests whose answers are made while the next call is under way
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn: asyncio.Handle | None = None
        self._retry: asyncio.Handle | None = None
        self._retry_at = 0.0  # uvloop's own handle does not say when it is to be at once

    async def next(self, request_id: str, count: int, wait_s: float) -> Leases | Nothing:
        """Up to `count` leases; holds on for up to `wait_s` while there are none."""
        answered: asyncio.Future[Leases | Nothing] = asyncio.get_running_loop().create_future()
        waiting = self.ask(request_id, count, wait_s, partial(_settle, answered))
        try:
            return await answered
        finally:
            waiting.is_gone = True

    def ask(self, request_id: str, count: int, wait_s: float, give: Give) -> Waiting:
        """As `next`, for a caller that is called back."""
        deadline = asyncio.get_running_loop().time() + wait_s if wait_s else 0.0
        waiting = Waiting(request_id, count, self._most, deadline, give)
        self._fresh.append(waiting)
        if self._turn is None:  # requests that arrive in one turn share a call
            self._turn = asyncio.get_running_loop().call_soon(self._look)
        return waiting

    async def close(self) -> None:
        """Stop serving; who still waits gets nothing."""
        for handle in (self._turn, self._retry):
            if handle is not None:
                handle.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for waiting in [*chain(*self._under_way), *self._queue, *self._patient, *self._fresh]:
            waiting.answer(waiting.leases or Nothing("pace", 1.0))
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> None:
        """Make the calls it is time for."""
        self._turn = None
        if self._fresh and not self._queue:  # who has waited longest goes first, once in a round
            self._queue.extend(self._patient)
            self._patient = []
        self._queue.extend(self._fresh)
        self._fresh = []
        while self._queue and self._may_call():
            group = _next_group(self._queue, self._share(), self._most)
            if group:
                self._under_way.append(group)
                task = asyncio.create_task(self._call(group))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _may_call(self) -> bool:
        """A second call follows the first once it serves as many; sooner, both would serve too few."""
        under_way = sum(map(len, self._under_way))
        if not under_way:
            return True
        if len(self._under_way) == CALLS_AT_ONCE or len(self._queue) < under_way:
            return False
        return not self._beside or (self._wanted() >= self._beside and not self._repeats())

    def _wanted(self) -> int:
        """Pages that those in the queue ask for."""
        return sum(waiting.next_count for waiting in self._queue)

    def _repeats(self) -> bool:
        """Whether a retry is in the queue whose first try is under way: after it there will be an answer."""
        tries = {waiting.request_id for waiting in chain(*self._under_way)} - {""}
        return any(waiting.request_id in tries for waiting in self._queue)

    def _share(self) -> int:
        """Requests for one call: not all, unless they are few. The store would have nothing to do while their
        answers are made, and this process nothing before.
        """
        others = sum(map(len, self._under_way)) or (self._answering if self._beside else 0)
        return max(FEW, math.ceil((len(self._queue) + others) / CALLS_AT_ONCE))

    async def _call(self, group: list[Waiting]) -> None:
        """One script call; the next is on its way before its answers are made."""
        started = asyncio.get_running_loop().time()
        try:
            answers, nothing = await self._serve([waiting.ask() for waiting in group])
            answered = self._sort_out(group, answers, nothing)
        except Exception as error:
            answered = [(waiting, waiting.leases or error) for waiting in (*group, *self._in_vain(started))]
        finally:
            self._under_way.remove(group)
        self._answering = len(group)
        self._look()
        asyncio.get_running_loop().call_soon(_give, answered)

    def _in_vain(self, started: float) -> list[Waiting]:
        """Who stands behind a call that failed after so long that one more of that would be too much."""
        if asyncio.get_running_loop().time() - started < LONG_S:
            return []
        behind = list(self._queue)
        self._queue.clear()
        return behind

    def _sort_out(
        self, group: list[Waiting], answers: list[Leases], nothing: Nothing
    ) -> list[tuple[Waiting, Answer]]:
        """Who is to be answered; who may get more joins the queue again, who may wait is asked for later."""
        now = asyncio.get_running_loop().time()
        answered: list[tuple[Waiting, Answer]] = []
        retry_at = now + min(nothing.retry_after_s, LONGEST_SLEEP_S)
        for waiting, leases in zip(group, answers, strict=True):
            if waiting.take(leases) and not waiting.is_gone:
                self._queue.append(waiting)
            elif waiting.leases or waiting.deadline <= now:
                answered.append((waiting, waiting.leases or nothing))
            else:
                self._patient.append(waiting)
                self._retry_by(min(retry_at, waiting.deadline))
        return answered

    def _retry_by(self, when: float) -> None:
        """Ask again for those who wait: when there may be something, or when one has waited long enough."""
        if self._retry is not None and self._retry_at <= when:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._retry_at = when
        self._retry = asyncio.get_running_loop().call_at(when, self._ask_again)

    def _ask_again(self) -> None:
        self._retry = None
        self._queue.extend(self._patient)  # behind who has not been asked for: their turn was before
        self._patient = []
        self._look()
