"""Serves all requests for pages that wait in this process by few script calls.

While calls are on their way further requests gather behind them, so the busier the process the more each call
serves, up to so many pages that others need not wait long for the store; a larger request takes several
calls. First come, first served. Two calls take turns: answers to the one are made while the store works on
the other. While many requests come, calls also lease pages for those who will come next (`stock.py`). What
callers make of their answers is made in a row: work is cheaper for a processor that has just done the same.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain

from service import telemetry
from service.domain import UNDER_WAY, Nothing
from service.stock import GiveBack, Stock
from service.waiting import Answer, Ask, Give, Leases, Waiting, give_all, next_group

# Takes requests, and how many pages to lease ahead; gives the pages of each request, and those leased ahead.
Serve = Callable[[Sequence[Ask], int], Awaitable[tuple[list[Leases], Leases, Nothing]]]
PAGES_PER_CALL = 32  # leased in one to two milliseconds: more of them would each cost as much
WORTH_A_CALL = PAGES_PER_CALL // 2  # pages that somebody waits for or will
CALLS_AT_ONCE = 2  # the store has the next call when it is done with one
FEW = 16  # requests that are not shared out among calls: a call has a cost of its own
LONG_S = 1.0  # for a call that fails: the store does not answer, and nobody need wait for that twice
UNDER_WAY_S = 0.05  # after which one whose first try is under way asks again
CLOSE_S = 0.25  # that pages on their way to the stock are waited for at the end
LONGEST_SLEEP_S = 0.25  # so that a dial turned up elsewhere is noticed while waiting for a far slot


def _settle(answered: asyncio.Future[Leases | Nothing], answer: Answer) -> None:
    if answered.done():  # the caller hung up
        return
    if isinstance(answer, Exception):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)


class Dispatcher:
    """Waiting requests of one process, and the calls that serve them."""

    def __init__(
        self,
        serve: Serve,
        give_back: GiveBack,
        *,
        ahead_s: float = 0.0,
        most: int = PAGES_PER_CALL,
        beside: int = 0,
    ) -> None:
        """Serves at most so many pages by one call; calls take turns where `beside` pages or more wait."""
        self._serve = serve
        self._stock = Stock(give_back, ahead_s)
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
        self._stock.stop()
        if self._stock.coming:  # it can be given back if it is known
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for handle in (self._turn, self._retry):
            if handle is not None:
                handle.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for waiting in [*chain(*self._under_way), *self._queue, *self._patient, *self._fresh]:
            waiting.answer(waiting.leases or Nothing("pace", 1.0))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stock.close()

    def _look(self) -> None:
        """Answer who can be answered at once, and make the calls it is time for."""
        self._turn = None
        now = time.monotonic()
        self._stock.note(sum(waiting.is_plain for waiting in self._fresh), now)
        if not self._queue:  # who has waited longest goes first, once in a round
            self._call_patient(only_plain=not self._fresh)
        self._queue.extend(self._fresh)
        self._fresh = []
        self._hand_out(now)
        while self._may_call():
            group = next_group(self._queue, self._share(), self._most, self._forget_if_gone)
            room = PAGES_PER_CALL - sum(waiting.next_count for waiting in group)
            ahead = max(0, min(self._stock.lacks(), room))
            if group or ahead:
                self._begin(group, ahead)

    def _call_patient(self, *, only_plain: bool) -> None:
        """Patient requests come forward; only those who ask for just a page, if there is only the stock."""
        if only_plain and not self._stock:
            return
        ready = [waiting for waiting in self._patient if waiting.is_plain or not only_plain]
        self._patient = [waiting for waiting in self._patient if only_plain and not waiting.is_plain]
        self._queue.extend(ready)

    def _hand_out(self, now: float) -> None:
        """Pages of the stock go to those who ask for just a page, first come, first served."""
        if not self._stock or not self._queue:
            return
        answered: list[tuple[Waiting, Answer]] = []
        others: deque[Waiting] = deque()
        for waiting in self._queue:
            if self._forget_if_gone(waiting):
                continue
            if not waiting.is_plain or (lease := self._stock.take(now)) is None:
                others.append(waiting)
            else:
                answered.append((waiting, [lease]))
        self._queue = others
        telemetry.NEXT_PAGES.inc(len(answered))
        asyncio.get_running_loop().call_soon(give_all, answered)

    def _begin(self, group: list[Waiting], ahead: int) -> None:
        self._under_way.append(group)
        self._stock.ask(ahead)
        task = asyncio.create_task(self._call(group, ahead))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _may_call(self) -> bool:
        """A second call follows the first once it serves as many; sooner, both would serve too few."""
        waiting, lacks = len(self._queue), self._stock.lacks()
        if not self._under_way:
            return waiting > 0 or lacks >= WORTH_A_CALL
        if len(self._under_way) == CALLS_AT_ONCE:
            return False
        if self._stock.coming and (not waiting or self._queue[0].is_plain):  # which is served from that
            return waiting + lacks >= WORTH_A_CALL
        if not waiting or waiting < sum(map(len, self._under_way)):
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
        """Requests for one call: not all, unless they are few, or process and store idle by turns."""
        others = sum(map(len, self._under_way)) or (self._answering if self._beside else 0)
        return max(FEW, math.ceil((len(self._queue) + others) / CALLS_AT_ONCE))

    async def _call(self, group: list[Waiting], ahead: int) -> None:
        """One script call; the next is on its way before its answers are made."""
        since = time.monotonic()
        spare: Leases = []
        try:
            answers, spare, nothing = await self._serve([waiting.ask() for waiting in group], ahead)
            answered = self._sort_out(group, answers, nothing)
        except Exception as error:
            failed = [*group, *self._in_vain(since)]
            answered = [(each, each.leases or error) for each in failed if not self._forget_if_gone(each)]
        finally:
            self._under_way.remove(group)
            self._stock.add(ahead, spare, since)
        self._answering = len(group)
        self._look()
        asyncio.get_running_loop().call_soon(give_all, answered)

    def _in_vain(self, started: float) -> list[Waiting]:
        """Who stands behind a call that failed after so long that one more of that would be too much."""
        if time.monotonic() - started < LONG_S:
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
        if any(leases is UNDER_WAY for leases in answers):
            nothing = Nothing(nothing.reason, max(nothing.retry_after_s, UNDER_WAY_S))
        retry_at = now + min(nothing.retry_after_s, LONGEST_SLEEP_S)
        for waiting, leases in zip(group, answers, strict=True):
            is_whole = leases is not UNDER_WAY  # else its last part is for the first try to get
            if is_whole and waiting.take(leases) and not waiting.is_gone:
                self._queue.append(waiting)
            elif self._forget_if_gone(waiting):
                continue
            elif (is_whole and waiting.leases) or waiting.deadline <= now:
                answered.append((waiting, (is_whole and waiting.leases) or nothing))
            else:
                self._patient.append(waiting)
                self._retry_by(min(retry_at, waiting.deadline))
        return answered

    def _forget_if_gone(self, waiting: Waiting) -> bool:
        """Whether the caller hung up: nobody saw its leases, and without an id nobody asks for them again."""
        if waiting.is_gone and not waiting.request_id:
            self._stock.give_back(waiting.leases)
        return waiting.is_gone

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
