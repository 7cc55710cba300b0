"""Crawling at given rates, evenly: the low-discrepancy schedule (LDS) of optimal rates."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from loadtest.lab.brute_force import Served
from loadtest.lab.events import Events
from service.domain import Floats


class LowDiscrepancy:
    """The k-th crawl of a page falls between (k − 1 + u)/f and (k + u)/f, u random per page.

    Of the crawls that may be made the one with the earliest deadline is: with as many slots as Σf
    all deadlines are met (Liu and Layland), so counts never differ from f·t by more than one. If
    none may be made yet, the one that may be soonest is. Signals are not listened to.
    """

    def __init__(self, frequency: Floats, rng: np.random.Generator) -> None:
        pages = np.flatnonzero(frequency > 0)
        self._period = dict(zip(pages.tolist(), (1.0 / frequency[pages]).tolist(), strict=True))
        phase = rng.random(len(pages)) - 1.0
        self._waiting = list(zip((phase / frequency[pages]).tolist(), pages.tolist(), strict=True))
        heapify(self._waiting)  # (from when on, page)
        self._ready: list[tuple[float, int]] = []  # (deadline, page)

    def advance(self, slots: Floats, signals: Events) -> Served:  # noqa: ARG002 it is deaf
        pages = np.array([self._next(now) for now in slots.tolist()], np.int64)
        return Served(pages, np.full(len(pages), np.nan))

    def _next(self, now: float) -> int:
        while self._waiting and (self._waiting[0][0] <= now or not self._ready):
            released, page = heappop(self._waiting)
            heappush(self._ready, (released + self._period[page], page))
        deadline, page = heappop(self._ready)
        heappush(self._waiting, (deadline, page))
        return page
