"""Hosts that rest after a crawl: how a policy picks among those awake, and the best there is then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loadtest.lab.brute_force import BruteForce, Policy, Served
from loadtest.lab.contest import LOST
from loadtest.lab.events import Events, Pages
from service.domain import Floats, Model
from service.policy.crawl_value import ceiling, crawl_value, evaluate
from service.policy.interval import depth_at

POINTS = 256  # of a table of values
SAME = 1e-9  # instants closer than this (units) are one
PRICES, LEVELS = 16.0, 400  # how far prices are looked for, in logarithms, and at how many levels

Value = Callable[[Floats], Floats]  # of every page, from the depth of every page


class Tabulated:
    """V(s) from a table, linear between points that are equally spaced in 1 − e^(−s).

    In that variable V is convex with slope μψ, so what is read off is never too small, and exact at
    depth 0 and at infinity.
    """

    def __init__(self, model: Model) -> None:
        depths = np.append(-np.log1p(-np.arange(POINTS) / POINTS), np.inf)
        value = crawl_value(depths[:, None], model).T
        self._left, self._rise = value[:, :-1].ravel(), np.diff(value, axis=1).ravel()
        self._row = POINTS * np.arange(len(value))

    def __call__(self, depth: Floats) -> Floats:
        place = -POINTS * np.expm1(-depth)
        left = np.minimum(place.astype(np.int64), POINTS - 1)
        at = self._row + left
        return np.asarray(self._left[at] + (place - left) * self._rise[at])


class Polite(BruteForce):
    """The page of largest value among hosts that have not been crawled for `rest`; none if all rest."""

    def __init__(self, believed: Model, value: Value, depth: Floats, host: Pages, rest: float) -> None:
        super().__init__(Policy("polite", believed), depth)
        self._value, self._host, self._rest = value, host, rest - SAME
        self._awake_at = np.full(int(host.max()) + 1, -np.inf)

    def values(self, now: float) -> Floats:
        """−∞ for pages of resting hosts."""
        resting = (self._awake_at > now)[self._host]
        return np.where(resting, -np.inf, self._value(self.at(now)))

    def crawl(self, page: int | Pages, now: float | Floats) -> None:
        host = self._host[page]
        if np.all(self._awake_at[host] <= now):  # or else nobody is awake
            super().crawl(page, now)
            self._awake_at[host] = now + self._rest

    def advance(self, slots: Floats, signals: Events) -> Served:
        served = super().advance(slots, signals)
        return Served(np.where(np.isneginf(served.value), LOST, served.page), served.value)


class Demand:
    """How often pages would be crawled at each of many prices, and the best that limits allow."""

    def __init__(self, model: Model, host: Pages) -> None:
        self._importance, self._host = model.importance, host
        price = np.max(ceiling(model)) * np.exp(-np.linspace(0.0, PRICES, LEVELS))
        cycle = evaluate(depth_at(price[:, None], model), model)
        self._frequency = 1.0 / cycle.time_s  # levels × pages, growing as the price falls
        self._fresh = cycle.fresh_s * self._frequency
        self._asked = self._frequency @ np.eye(int(host.max()) + 1)[host]  # levels × hosts

    def optimum(self, bandwidth: float, cap: float) -> tuple[Floats, float]:
        """Frequencies and freshness of the best continuous policy that asks no host oftener than `cap`.

        A page is crawled when its value reaches the common price or, if that is higher, the one at
        which its host alone gets the cap; the common price is such that all hosts together get the
        bandwidth. Between two prices of the table both are followed in turn. Hosts that rest for 1/cap
        are crawled no oftener, so this bounds every policy that lets them rest.
        """
        level = np.arange(float(LEVELS))
        own = np.array([np.interp(cap, asked, level) for asked in self._asked.T])
        bends = np.union1d(level, own)  # between these all rates are linear
        given = [np.minimum(np.interp(bends, level, asked), cap) for asked in self._asked.T]
        common = np.interp(bandwidth, np.sum(given, axis=0), bends)
        at = np.minimum(own, common)[self._host]
        fresh = np.average(self._between(self._fresh, at), weights=self._importance)
        return self._between(self._frequency, at), float(fresh)

    def _between(self, table: Floats, at: Floats) -> Floats:
        page, left = np.arange(len(at)), np.minimum(at.astype(np.int64), LEVELS - 2)
        return np.asarray(table[left, page] + (at - left) * (table[left + 1, page] - table[left, page]))
