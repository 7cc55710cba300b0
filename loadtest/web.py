"""A synthetic web: pages change, some changes are signalled, and how long copies were fresh is exact.

Time is in units; the drivers make one unit a day. What happens does not depend on what is crawled,
so two schedulers given the same generator face the same web.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from loadtest.population import Population
from service.domain import Floats

Signal = tuple[float, int]  # when it is heard, page


class _Happenings:
    """Changes and signals of all pages, drawn one span at a time: a superposed Poisson process."""

    def __init__(self, population: Population, rng: np.random.Generator, delay: float) -> None:
        self._population = population
        self._rng = rng
        self._delay = delay
        self._changes = np.cumsum(population.change_rate)
        self._lies = np.cumsum(population.false_rate)
        self._late: tuple[Floats, NDArray[np.int64]] = (np.empty(0), np.empty(0, np.int64))

    def draw(self, begin: float, end: float) -> tuple[list[Signal], list[Signal]]:
        """(changes, signals) in [begin, end), each in order of time."""
        change_at, changed = draw_events(self._rng, self._changes, begin, end)
        told = self._rng.random(len(changed)) < self._population.recall[changed]
        lie_at, lied = draw_events(self._rng, self._lies, begin, end)
        heard_at = np.concatenate([change_at[told], lie_at])
        if self._delay > 0:
            heard_at = heard_at + self._rng.exponential(self._delay, len(heard_at))
        times = np.concatenate([self._late[0], heard_at])
        pages = np.concatenate([self._late[1], changed[told], lied])
        later = times >= end
        self._late = times[later], pages[later]
        times, pages = times[~later], pages[~later]
        order = np.argsort(times, kind="stable")
        return pairs(change_at, changed), pairs(times[order], pages[order])


def draw_events(
    rng: np.random.Generator, cumulated: Floats, begin: float, end: float
) -> tuple[Floats, NDArray[np.int64]]:
    """(when, which page) of a superposed Poisson process, given the pages' cumulated rates."""
    total = float(cumulated[-1])
    count = rng.poisson(total * (end - begin))
    times = np.sort(rng.uniform(begin, end, count))
    pages = np.searchsorted(cumulated, rng.random(count) * total, side="right")
    return times, np.minimum(pages, len(cumulated) - 1)


def pairs(times: Floats, pages: NDArray[np.int64]) -> list[Signal]:
    return list(zip(times.tolist(), pages.tolist(), strict=True))


class SyntheticWeb:
    """Pages that change by themselves, and the copies a crawler made of them.

    A page never crawled has no copy, so it is not fresh.
    """

    def __init__(
        self,
        population: Population,
        rng: np.random.Generator,
        *,
        signal_delay: float = 0.0,  # mean of an exponential delay, units
        span: float = 1.0,
    ) -> None:
        self.population = population
        self.now = 0.0
        self._happenings = _Happenings(population, rng, signal_delay)
        self._span = span
        self._drawn_to = 0.0
        self._changes: list[Signal] = []
        self._signals: list[Signal] = []
        self._importance: list[float] = population.importance.tolist()
        self._total = float(np.sum(population.importance))
        self._fresh = bytearray(population.size)
        self._fresh_weight = 0.0
        self._counted_to = 0.0
        self._fresh_time = 0.0

    @property
    def fresh_time(self) -> float:
        """∫ (importance of fresh copies ÷ all importance) dt so far.

        Its growth over a window, divided by the window, is the chance that a request at a random
        time in it finds a fresh copy.
        """
        self._count(self.now)
        return self._fresh_time / self._total

    def is_fresh(self, page: int) -> bool:
        return bool(self._fresh[page])

    def advance(self, to: float) -> list[Signal]:
        """Let time pass; the signals heard on the way, in order."""
        heard: list[Signal] = []
        while self._drawn_to <= to:
            heard += self._pass(self._drawn_to)
            end = self._drawn_to + self._span
            self._changes, self._signals = self._happenings.draw(self._drawn_to, end)
            self._drawn_to = end
        heard += self._pass(to)
        self.now = to
        return heard

    def crawl(self, page: int) -> bool:
        """Copy a page now; whether it had changed since the last copy (a first copy is a change)."""
        if self._fresh[page]:
            return False
        self._count(self.now)
        self._fresh[page] = 1
        self._fresh_weight += self._importance[page]
        return True

    def _pass(self, to: float) -> list[Signal]:
        moment = (to, len(self._importance))
        changed = bisect_right(self._changes, moment)
        for at, page in self._changes[:changed]:
            if self._fresh[page]:
                self._count(at)
                self._fresh[page] = 0
                self._fresh_weight -= self._importance[page]
        heard = bisect_right(self._signals, moment)
        signals = self._signals[:heard]
        del self._changes[:changed], self._signals[:heard]
        return signals

    def _count(self, to: float) -> None:
        self._fresh_time += self._fresh_weight * (to - self._counted_to)
        self._counted_to = to
