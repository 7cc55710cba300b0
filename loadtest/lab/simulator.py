"""Crawl policies on a synthetic web, fast: exactly the page of largest value at every slot.

A page whose depth is below s(θ) has a value below θ. So for a level θ below the price only pages
beyond their s(θ) can win, and if the best of them reaches θ it is the best of all. Their values are
bounded from a table, for a block of slots at once as what is heard does not depend on what is
crawled; only where the bounds of two pages overlap at the top are values computed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from loadtest.lab.bounds import Bounds, take
from loadtest.lab.brute_force import Depths, Policy, Served
from loadtest.lab.events import Events, Pages
from service.domain import Floats

BLOCK = 48  # slots, if there are pages enough that few come up twice in it
ROUNDING = 1e-6  # relative; bounds closer than this are compared exactly

Slots = NDArray[np.int64]


class Simulator(Depths):
    """Picks what `BruteForce` picks; the values it tells are lower bounds, tight near the price."""

    def __init__(self, policy: Policy, depth: Floats) -> None:
        super().__init__(policy, depth)
        self._block = min(BLOCK, max(16, len(depth) // 10))
        # How far, in logarithms, what is served varies: less with more pages.
        self._spread = min(1.0, 8.0 / math.sqrt(len(depth)))
        self._bounds: Bounds | None = None  # none until the price is known

    def advance(self, slots: Floats, signals: Events) -> Served:
        """Serve the slots, in order; signals are those heard since the last call."""
        signals, slot = self.assign(slots, signals)
        pages, values = np.empty(len(slots), np.int64), np.empty(len(slots))
        done = 0
        while done < len(slots):
            part = slots[done : done + self._block]
            heard = slice(*np.searchsorted(slot, [done, done + len(part)]).tolist())
            served = self._serve(part, Events(signals.at[heard], signals.page[heard]), slot[heard] - done)
            pages[done : done + len(served.page)] = served.page
            values[done : done + len(served.page)] = served.value
            done += len(served.page)
        return Served(pages, values)

    def _serve(self, slots: Floats, signals: Events, slot: Slots) -> Served:
        """The first of the slots: as many as somebody reaches the level at, at least one."""
        served = None if self._bounds is None else self._race(self._bounds, slots, signals, slot)
        if served is None or not len(served.page):
            served = self._look_at_all(slots[0], signals.keep(slot == 0))
            self._bounds = None
        self._settle(served, slots, signals, slot)
        lowest = float(served.value.min())
        if self._bounds is None or lowest > self._bounds.level * math.exp(1.5 * self._spread):
            self._bounds = self._around(lowest) if lowest > 0 else None
        return served

    def _around(self, value: float) -> Bounds:
        level = value * math.exp(-self._spread)
        return Bounds(self.policy, level, level * math.exp(3 * self._spread))

    def _look_at_all(self, now: float, signals: Events) -> Served:
        before = self.base.copy()
        self.hear(signals)
        values = self.values(now)
        self.base = before  # what is heard is settled with the crawl
        best = int(np.argmax(values))
        return Served(np.array([best]), values[[best]])

    def _race(self, bounds: Bounds, slots: Floats, signals: Events, slot: Slots) -> Served:
        """Winners of the slots up to the first at which nobody reaches the level."""
        field = _Field(self, bounds, slots, signals, slot)
        page, value = [], []
        for j in range(len(slots)):
            best = field.best(j)
            if best is None:
                break
            page.append(field.pages[best])
            value.append(field.low[j, best])
            field.crawl(best, j)
        return Served(np.array(page, np.int64), np.array(value))

    def _settle(self, served: Served, slots: Floats, signals: Events, slot: Slots) -> None:
        """Crawls and signals up to the last slot served, into the state of the pages."""
        count = len(served.page)
        crawled_in = np.full(len(self.base), -1)
        crawled_in[served.page] = np.arange(count)  # of several crawls of a page the last remains
        self.crawl(served.page, slots[:count])
        self.hear(signals.keep((slot < count) & (slot > crawled_in[signals.page])))


class _Field:
    """The pages that may reach a level in a block: depths and bounds on values, a row per slot."""

    def __init__(self, state: Depths, bounds: Bounds, slots: Floats, signals: Events, slot: Slots) -> None:
        self._state, self._bounds, self._slots = state, bounds, slots
        model = state.model
        audible = signals.at > state.deaf_until[signals.page]
        heard = signals.page[audible]
        gain = np.bincount(heard, model.signal_weight[heard], len(bounds.threshold))
        self.pages = np.flatnonzero(state.at(slots[-1]) + gain > bounds.threshold)
        self._model, self._threshold = take(model, self.pages), bounds.threshold[self.pages]
        column = np.searchsorted(self.pages, signals.page)
        known = np.append(self.pages, -1)[column] == signals.page
        self._signals, self._slot, self._column = signals.keep(known), slot[known], column[known]
        added = self._added(audible[known], len(self.pages), self._column)
        grown = self._model.silent_rate * slots[:, None]
        self._depth = state.base[self.pages] + added + grown
        self.low, self.high = self._look(self._depth, np.arange(len(self.pages)))
        # After a crawl a page can come up again by itself, or until the slot of its last signal.
        last = np.full(len(self.pages), -1)
        last[self._column] = self._slot
        last[grown[-1] - grown[0] > self._threshold] = len(slots)
        self._returns_until: list[int] = last.tolist()

    def best(self, slot: int) -> int | None:
        """The column of the page of largest value, or none if none reaches the level."""
        low, high = self.low[slot], self.high[slot]
        if not len(low):
            return None
        first = int(low.argmax())
        if low[first] < self._bounds.level * (1 + ROUNDING):
            return None
        close = np.flatnonzero(high >= low[first] * (1 - ROUNDING))
        if len(close) == 1:
            return first
        value = self._state.policy.objective.value(self._depth[slot, close], take(self._model, close))
        return int(close[value.argmax()])

    def crawl(self, column: int, slot: int) -> None:
        """A page was crawled: its bounds from the next slot on."""
        self.low[slot + 1 :, column] = self.high[slot + 1 :, column] = -np.inf
        if slot >= self._returns_until[column]:
            return
        now = self._slots[slot]
        audible = (self._column == column) & (self._slot > slot)
        audible &= self._signals.at > now + self._state.policy.deaf
        added = self._added(audible, 1, np.zeros_like(self._column))[slot + 1 :]
        rate = self._model.silent_rate[column]
        depth = (added - rate * now) + rate * self._slots[slot + 1 :, None]
        low, high = self._look(depth, np.array([column]))
        self._depth[slot + 1 :, [column]] = depth
        self.low[slot + 1 :, [column]], self.high[slot + 1 :, [column]] = low, high

    def _added(self, mask: NDArray[np.bool_], columns: int, column: Pages) -> Floats:
        """Σκ heard before each slot, for each column."""
        added = np.zeros((len(self._slots), columns))
        weight = self._model.signal_weight[self._column[mask]]
        np.add.at(added, (self._slot[mask], column[mask]), weight)
        return np.cumsum(added, axis=0)

    def _look(self, depth: Floats, columns: Pages) -> tuple[Floats, Floats]:
        """Bounds where the depth is beyond the threshold, −∞ elsewhere."""
        low, high = np.full(depth.shape, -np.inf), np.full(depth.shape, -np.inf)
        due = depth > self._threshold[columns]
        page = self.pages[columns[np.nonzero(due)[1]]]
        low[due], high[due] = self._bounds.look(depth[due], page)
        return low, high
