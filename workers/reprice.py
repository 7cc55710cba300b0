"""Re-pricing: each shard's pages are ranked anew when the price has moved, and by a deadline anyway.

Serving never waits for this. A page ranked by an old price is still served, only a little early or late;
a dormant page whose ceiling the falling price has passed comes back by this sweep.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service import telemetry
from service.beliefs import ranking_rows
from service.clock import Clock
from service.domain import Model, Policy, Price
from service.policy.crawl_value import crawl_value
from service.policy.interval import select
from service.settings import Settings
from service.store.connection import Server
from service.store.control import Control
from service.store.records import CRAWLED, HELD, LEASED, PARKED, model_of, pack_rows, read_heads
from service.store.shards import Bin, Shards
from workers.explore import KEPT, Unseen, choose

READY = 48  # pages that should stand above the due price: the candidates a script compares
BEST = 4  # of these, the one whose value is taken for what will be served next
AIM_WEIGHT = 0.05  # of one sweep in the slack
MOST_SLACK = 0.95
MOVED = 0.02  # a price this far from the one swept with (relative) calls for a sweep
Reranked = tuple[Bin, list[tuple[int, int, bytes]]]


class Repricer:
    """Sweeps shards; remembers by which price each was last swept."""

    def __init__(self, server: Server, settings: Settings, clock: Clock) -> None:
        self._shards = Shards(server, settings.shards)
        self._control = Control(server, clock)
        self._settings = settings
        self._swept: dict[int, tuple[float, float]] = {}  # shard: when, price
        self._credit: dict[int, float] = {}  # shard: crawls saved up for exploration

    async def sweep_all(self, now_at: float) -> int:
        """Sweep every shard that needs it; returns how many pages were renewed."""
        renewed = 0
        for shard in range(len(self._shards.prefixes)):
            renewed += await self.sweep(shard, now_at)
        return renewed

    async def sweep(self, shard: int, now_at: float) -> int:
        """Rank every page of a shard by the price of this moment, if it is time to."""
        price = await self._control.price()
        if not self._is_due(shard, price, now_at):
            await self._shards.confirm_price(shard, checked_at=now_at)
            return 0
        policy = await self._control.policy()
        seen = _Seen(unseen=Unseen(policy.min_crawls_per_day))
        async for bins in self._shards.bins(shard):
            full = [page_bin for page_bin in bins if page_bin.ids]
            if full:
                seen.renewed += await self._shards.reprice(shard, _rerank(full, price, now_at, seen))
        await self._shards.finish_sweep(
            shard, swept_at=now_at, fresh_weight=seen.fresh, weight=seen.weight, top=seen.top.tobytes()
        )
        await self._aim(price)
        await self._explore(shard, seen.unseen, policy, now_at)
        self._swept[shard] = (now_at, price.due)
        telemetry.WORKER_RUN.labels("reprice").set(time.time())
        return seen.renewed

    async def _explore(self, shard: int, unseen: Unseen, policy: Policy, now_at: float) -> None:
        """Spend the shard's share of the exploration budget that has accrued since its last sweep."""
        bandwidth = await self._control.bandwidth()
        status = await self._shards.status()
        share = status[shard].pages / max(1, sum(s.pages for s in status))
        elapsed_s = now_at - self._swept[shard][0] if shard in self._swept else 0.0
        slots = bandwidth.crawls_per_second * elapsed_s * share
        credit = self._credit.get(shard, 0.0) + policy.explore * slots
        pages, left = choose(unseen, credit, slots)
        self._credit[shard] = min(left, KEPT)
        if pages:
            await self._shards.promote(shard, pages)

    async def _aim(self, price: Price) -> None:
        """Move the slack so that about `READY` pages over all shards stand above the due price.

        Fewer, and the best page may still be waiting for its due time when the values served dip; more,
        and it may not be among the candidates a script looks at. The lift follows the best of them: the
        mean of what is served lies above it where signals make values jump.
        """
        tops = [np.frombuffer(raw, dtype=np.float32) for raw in await self._shards.top_values()]
        values = np.sort(np.concatenate(tops))[::-1]
        if price.served <= 0 or not len(values):
            return
        ready = float(values[READY - 1]) if len(values) >= READY else 0.0
        best = float(values[min(BEST, len(values)) - 1])
        slack = price.slack + AIM_WEIGHT * (1 - ready / price.served - price.slack)
        lift = price.lift + AIM_WEIGHT * (best / price.served - price.lift)
        await self._control.aim(slack=min(MOST_SLACK, max(0.0, slack)), lift=min(1.0, lift))

    def _is_due(self, shard: int, price: Price, now_at: float) -> bool:
        if shard not in self._swept:
            return True
        swept_at, swept_price = self._swept[shard]
        if now_at - swept_at >= self._settings.reprice_s:
            return True  # expected freshness is of a moment, so it is looked at again anyway
        return not math.isclose(price.due, swept_price, rel_tol=MOVED)


@dataclass(slots=True)
class _Seen:
    """What a sweep has seen of its shard so far."""

    renewed: int = 0
    fresh: float = 0.0  # importance of the copies expected fresh
    weight: float = 0.0  # importance of all pages
    unseen: Unseen = field(default_factory=Unseen)
    top: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))


def _rerank(bins: list[Bin], price: Price, now_at: float, seen: _Seen) -> list[Reranked]:
    """New rankings per bin; adds what these pages show to `seen`."""
    heads = read_heads([raw for page_bin in bins for raw in page_bin.records])
    model = model_of(heads)
    anchors_ms = np.concatenate([page_bin.anchors_ms for page_bin in bins])
    seen.unseen.look(bins, heads, now_at)
    _look(heads, model, np.maximum(0.0, now_at - anchors_ms / 1000), seen)
    rows = pack_rows(ranking_rows(model, price, _due_prices(bins, price)))
    items: list[Reranked] = []
    at = 0
    for page_bin in bins:
        end = at + len(page_bin.ids)
        versions = heads["version"][at:end].tolist()
        items.append((page_bin, list(zip(page_bin.ids, versions, rows[at:end], strict=True))))
        at = end
    return items


def _look(heads: NDArray[Any], model: Model, elapsed_s: NDArray[np.float64], seen: _Seen) -> None:
    """Expected freshness, and the largest values among the pages that wait."""
    crawled = (heads["flags"] & CRAWLED) > 0
    depth = model.silent_rate * elapsed_s
    seen.fresh += float(np.sum(model.importance * np.where(crawled, np.exp(-depth), 0.0)))
    seen.weight += float(np.sum(model.importance))
    waiting = crawled & ((heads["flags"] & (LEASED | PARKED | HELD)) == 0)
    if waiting.any():
        values = crawl_value(depth[waiting], select(model, waiting)).astype(np.float32)
        best = np.concatenate([seen.top, values])
        seen.top = best if len(best) <= READY else -np.partition(-best, READY - 1)[:READY]


def _due_prices(bins: list[Bin], price: Price) -> NDArray[np.float64]:
    """Each page's due price: a host politeness holds back serves dearer pages, and is keyed by its own."""
    own = [_host_price(page_bin.host_price * (1 - price.slack), price) for page_bin in bins]
    return np.repeat(np.array(own), [len(page_bin.ids) for page_bin in bins])


def _host_price(own: float, price: Price) -> float:
    """The host's own price only where it is clearly dearer: below that the difference is noise."""
    return own if own > price.served else price.due
