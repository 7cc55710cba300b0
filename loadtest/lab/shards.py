"""Crawling in shards, each choosing among its own pages: with equal bandwidth, or shared by price."""

from __future__ import annotations

import numpy as np

from loadtest.lab.bounds import take
from loadtest.lab.brute_force import Policy, Served
from loadtest.lab.events import Events, Pages
from loadtest.lab.low_discrepancy import LowDiscrepancy
from loadtest.lab.simulator import Simulator
from service.domain import Floats

SPAN = 1.0  # units between adjustments of the shares


class Shards:
    """A simulator per shard and a share of the slots for each.

    With an exponent above 0 the shares follow (shard price ÷ mean price)^exponent, a price being
    the mean value served; with 0 they stay equal.
    """

    def __init__(
        self, policy: Policy, depth: Floats, shard: Pages, rng: np.random.Generator, exponent: float = 0.0
    ) -> None:
        self._shard, self._rng, self._exponent = shard, rng, exponent
        self._pages = [np.flatnonzero(shard == n) for n in range(int(shard.max()) + 1)]
        self._place = np.empty(len(shard), np.int64)  # of each page within its shard
        for pages in self._pages:
            self._place[pages] = np.arange(len(pages))
        self._parts = [
            Simulator(Policy(policy.name, take(policy.believed, p), policy.objective, policy.deaf), depth[p])
            for p in self._pages
        ]
        self.shares = np.full(len(self._parts), 1.0 / len(self._parts))

    def advance(self, slots: Floats, signals: Events) -> Served:
        if not self._exponent:
            return self._share(slots, signals)
        spans = np.floor((slots - slots[0]) / SPAN).astype(np.int64)
        starts = np.searchsorted(spans, np.arange(spans[-1] + 1))
        bounds = np.searchsorted(signals.at, slots[starts[1:]])
        heard_at, heard = np.split(signals.at, bounds), np.split(signals.page, bounds)
        served = []
        for part, at, page in zip(np.split(slots, starts[1:]), heard_at, heard, strict=True):
            served.append(self._share(part, Events(at, page)))
        return Served(np.concatenate([s.page for s in served]), np.concatenate([s.value for s in served]))

    def _share(self, slots: Floats, signals: Events) -> Served:
        """Deal the slots out evenly, serve each shard's, and let the prices move the shares."""
        deal = LowDiscrepancy(self.shares, self._rng).advance(
            np.arange(len(slots), dtype=np.float64), signals
        )
        page, value = np.empty(len(slots), np.int64), np.empty(len(slots))
        heard_by = self._shard[signals.page]
        for n, part in enumerate(self._parts):
            mine, heard = deal.page == n, signals.keep(heard_by == n)
            served = part.advance(slots[mine], Events(heard.at, self._place[heard.page]))
            page[mine], value[mine] = self._pages[n][served.page], served.value
        self._adjust(deal.page, value)
        return Served(page, value)

    def _adjust(self, shard: Pages, value: Floats) -> None:
        counts = np.bincount(shard, minlength=len(self.shares))
        total = np.bincount(shard, value, minlength=len(self.shares))
        # A shard that served nothing is left as it is.
        price = np.divide(total, counts, out=np.full(len(counts), np.mean(value)), where=counts > 0)
        self.shares = self.shares * (price / np.mean(price)) ** self._exponent
        self.shares /= self.shares.sum()
