"""The exact policy: at every slot, the page with the largest crawl value, computed in full.

The same book of states also judges the scheduler from outside: it knows what a driver did, and
nothing of what the scheduler believes.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from loadtest.population import UNIT_S
from loadtest.record import Recorder, Run
from loadtest.schedule import Schedule
from loadtest.web import Signal, SyntheticWeb
from service.domain import Floats, Model
from service.policy.crawl_value import ceiling, evaluate
from service.policy.interval import select
from service.policy.ranking import storable

AT_ONCE = 8  # pages evaluated together, the most promising first
ROUNDING = 1e-12  # relative slack of a bound, so that rounding cannot exclude the best page


class Book:
    """Every page's depth, and exact values of those that could be the best; times in seconds.

    In dt seconds and n signals, during which the depth grows by y, a value grows by at most
    μ e^(−s)(1 − e^(−y))(ψ(s) + dt + n/γ): V' = μ e^(−s)ψ, and ψ grows by at most dt and n/γ. Only
    pages whose bound exceeds the best value found are evaluated.
    """

    def __init__(self, model: Model) -> None:
        self.model = storable(model)
        size = len(self.model.importance)
        top = ceiling(self.model)
        self._ceiling = np.where(np.isfinite(top), top, 0.0)
        rate = self.model.signal_rate
        self._signal_s = np.divide(1.0, rate, out=np.zeros_like(rate), where=rate > 0)
        self._weight = float(np.sum(self.model.importance))
        self._fresh_after = 0.0
        self.is_new = np.ones(size, dtype=bool)
        self._by_importance = np.argsort(-self.model.importance, kind="stable").tolist()
        self.crawled_at = np.zeros(size)
        self.signals = np.zeros(size)
        # The last exact evaluation of each page: when, at how many signals, and what it gave.
        self._known_at = np.zeros(size)
        self._known_signals = np.zeros(size)
        self._known_value = np.zeros(size)
        self._known_time_s = np.zeros(size)
        self._known_gain = np.zeros(size)  # μ e^(−s)

    def signal(self, page: int) -> None:
        """A signal; before the first crawl it says nothing."""
        if not self.is_new[page]:
            self.signals[page] += 1

    def crawl(self, page: int, now: float) -> None:
        self.is_new[page] = False
        self.crawled_at[page] = self._known_at[page] = now
        self.signals[page] = self._known_signals[page] = 0
        self._known_value[page] = self._known_time_s[page] = 0.0
        self._known_gain[page] = self.model.importance[page]
        self._fresh_after = self._freshness(now)

    def depth(self, now: float) -> Floats:
        """s = ατ + κn of every page."""
        elapsed = now - self.crawled_at
        return self.model.silent_rate * elapsed + self.model.signal_weight * self.signals

    def freshness(self, now: float) -> float:
        """The chance that a request since the last crawl found a fresh copy, given all that was heard.

        The mean of what it was just after that crawl and what it is now.
        """
        return (self._fresh_after + self._freshness(now)) / 2

    def _freshness(self, now: float) -> float:
        fresh = np.where(self.is_new, 0.0, np.exp(-self.depth(now)))
        return float(np.dot(self.model.importance, fresh) / self._weight)

    def effective_elapsed_s(self, page: int, now: float) -> float:
        credit = self.model.signal_weight[page] / self.model.silent_rate[page]
        return float(now - self.crawled_at[page] + credit * self.signals[page])

    def value(self, page: int, now: float) -> float:
        """The exact crawl value of one page."""
        return float(self._evaluate(np.array([page]), now)[0])

    def best(self, now: float) -> tuple[int, float]:
        """The page to crawl and its value; new pages come first, by importance, with value NaN."""
        while self._by_importance:
            page = self._by_importance[0]
            if self.is_new[page]:
                return page, float("nan")
            self._by_importance.pop(0)
        bound = self._bounds(now)
        found, best = -1, -1.0
        while True:
            promising = np.argpartition(-bound, min(AT_ONCE, len(bound) - 1))[:AT_ONCE]
            promising = promising[bound[promising] > best]
            if len(promising) == 0:
                return found, best
            values = self._evaluate(promising, now)
            bound[promising] = -np.inf
            at = int(np.argmax(values))
            if values[at] > best:
                found, best = int(promising[at]), float(values[at])

    def _bounds(self, now: float) -> Floats:
        model = self.model
        elapsed, signals = now - self._known_at, self.signals - self._known_signals
        shallower = -np.expm1(-(model.silent_rate * elapsed + model.signal_weight * signals))
        longest_s = self._known_time_s + elapsed + signals * self._signal_s
        bound = self._known_value + self._known_gain * shallower * longest_s
        return np.minimum(bound * (1 + ROUNDING), self._ceiling * (1 + ROUNDING))

    def _evaluate(self, pages: NDArray[np.int64], now: float) -> Floats:
        mask = np.zeros(len(self.signals), dtype=bool)
        mask[pages] = True
        order = np.flatnonzero(mask)
        depth = self.depth(now)[order]
        cycle = evaluate(depth, select(self.model, mask))
        self._known_at[order], self._known_signals[order] = now, self.signals[order]
        self._known_value[order], self._known_time_s[order] = cycle.value, cycle.time_s
        self._known_gain[order] = self.model.importance[order] * np.exp(-depth)
        return self._known_value[pages]


def note_signals(book: Book, signals: list[Signal]) -> None:
    for _, page in signals:
        book.signal(page)


def run_reference(web: SyntheticWeb, schedule: Schedule) -> Run:
    """Crawl a web by exact arg max."""
    book, recorder, started = Book(web.population.model), Recorder(), time.perf_counter()
    for at, rate in schedule.ticks():
        if rate is not None:
            continue
        note_signals(book, web.advance(at))
        page, value = book.best(at * UNIT_S)
        recorder.add(at, page, value, 1.0, web.fresh_time, book.freshness(at * UNIT_S))
        web.crawl(page)
        book.crawl(page, at * UNIT_S)
    return recorder.finish(time.perf_counter() - started)


def replay(web: SyntheticWeb, run: Run) -> Run:
    """The same crawls on a web of the same generator: what they did for pages of other importance.

    With an importance of 0 for all pages but some, the freshness of those.
    """
    book, recorder = Book(web.population.model), Recorder()
    for at, page, value in zip(run.at.tolist(), run.page.tolist(), run.value.tolist(), strict=True):
        note_signals(book, web.advance(at))
        now = at * UNIT_S
        recorder.add(at, page, value, float("nan"), web.fresh_time, book.freshness(now))
        web.crawl(page)
        book.crawl(page, now)
    return recorder.finish(run.wall_s)
