"""Re-pricing: each shard's pages are ranked anew when the price has moved, and by a deadline anyway.

Serving never waits for this. A page ranked by an old price is still served, only a little early or late;
a dormant page whose ceiling the falling price has passed comes back by this sweep.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator

import numpy as np

from service import telemetry
from service.clock import Clock
from service.domain import Policy, Price
from service.policy.interval import join, part
from service.policy.valuation import Valuation, solve, solved, valuation_of
from service.settings import Settings
from service.store.bins import Bin, Bins
from service.store.connection import Server
from service.store.control import Control
from service.store.shards import Shards
from service.store.sweeps import Sweeps
from workers.appraise import MOVED, READY, Seen, look, models_of, rerank
from workers.explore import FLOOR_SHARE, KEPT, Unseen, choose

BEST = 4  # of these, the one whose value is taken for what will be served next
AIM_WEIGHT = 0.05  # of one sweep in the slack
MOST_SLACK = 0.95


class Repricer:
    """Sweeps shards; remembers by which price each was last swept."""

    def __init__(self, server: Server, settings: Settings, clock: Clock) -> None:
        self._shards = Shards(server, settings.shards)
        self._bins, self._sweeps = Bins(server, settings.shards), Sweeps(server, settings.shards)
        self._control = Control(server, clock)
        self._settings = settings
        self._swept: dict[int, tuple[float, float, str]] = {}  # shard: when, price, of which value
        self._credit: dict[int, tuple[float, float]] = {}  # shard: crawls saved up for exploration, floors

    async def sweep_all(self, now_at: float) -> int:
        """Sweep every shard that needs it; returns how many pages were renewed."""
        renewed = 0
        for shard in range(len(self._shards.prefixes)):
            renewed += await self.sweep(shard, now_at)
        return renewed

    async def sweep(self, shard: int, now_at: float) -> int:
        """Rank every page of a shard by the price and the policy of this moment, if it is time to."""
        price, policy = await self._control.price(), await self._control.policy()
        if not self._is_due(shard, price, policy, now_at):
            await self._sweeps.confirm_price(shard, checked_at=now_at)
            return 0
        ranked_by = await self._sweeps.ranked_by(shard)
        if ranked_by not in (policy.value_name, None):
            await self._sweeps.forget_host_prices(shard)
        if price.of != policy.value_name:
            price = await self._open_price(shard, policy, now_at)
        seen = Seen(unseen=Unseen(policy.min_crawls_per_day))
        async for bins, valuation in self._valued(shard, policy):
            anew = ranked_by != policy.value_name
            items = rerank(bins, price, valuation, now_at, seen, anew=anew)
            seen.renewed += await self._bins.reprice(shard, items)
        await self._sweeps.finish_sweep(
            shard,
            swept_at=now_at,
            ranked_by=policy.value_name,
            fresh_weight=seen.fresh,
            weight=seen.weight,
            top=seen.top.tobytes(),
        )
        await self._aim(price)
        await self._explore(shard, seen.unseen, policy, now_at)
        self._swept[shard] = (now_at, price.due, policy.value_name)
        telemetry.WORKER_RUN.labels("reprice").set(time.time())
        return seen.renewed

    async def _valued(self, shard: int, policy: Policy) -> AsyncIterator[tuple[list[Bin], Valuation]]:
        """The shard's pages, some at a time, and how the policy values them."""
        valuation = valuation_of(policy)
        if valuation is not None:
            async for bins in self._bins.walk(shard):
                yield bins, valuation
            return
        groups = [bins async for bins in self._bins.walk(shard)]
        if not groups:
            return
        share = await self._share(shard) * (await self._control.bandwidth()).crawls_per_second
        models = [models_of(bins) for bins in groups]
        believed = solve(policy.policy, join(models), share)
        at = 0
        for bins, model in zip(groups, models, strict=True):
            end = at + len(model.silent_rate)
            yield bins, solved(part(believed, slice(at, end)))
            at = end

    async def _open_price(self, shard: int, policy: Policy, now_at: float) -> Price:
        """After a change of policy the old price says nothing: begin with the best values here."""
        seen = Seen()
        async for bins, valuation in self._valued(shard, policy):
            look(bins, valuation, now_at, seen)
        best = np.sort(seen.top)[::-1]
        if not len(best):
            return Price(0.0, 0.0, of=policy.value_name)  # no page here to begin with: another shard will
        return await self._control.open_price(float(best[min(BEST, len(best)) - 1]), policy.value_name)

    async def _share(self, shard: int) -> float:
        """The shard's share of all pages."""
        status = await self._shards.status(partly=True)
        return status[shard].pages / max(1, sum(s.pages for s in status))

    async def _explore(self, shard: int, unseen: Unseen, policy: Policy, now_at: float) -> None:
        """Spend the shard's share of the exploration budget that has accrued since its last sweep."""
        bandwidth = await self._control.bandwidth()
        elapsed_s = now_at - self._swept[shard][0] if shard in self._swept else 0.0
        slots = bandwidth.crawls_per_second * elapsed_s * await self._share(shard)
        explore, floor = self._credit.get(shard, (0.0, 0.0))
        credit = explore + policy.explore * slots, min(KEPT, floor + FLOOR_SHARE * slots)
        pages, (explore, floor) = choose(unseen, *credit)
        self._credit[shard] = min(explore, KEPT), floor
        if pages:
            await self._shards.promote(shard, pages)

    async def _aim(self, price: Price) -> None:
        """Move the slack so that about `READY` pages over all shards stand above the due price.

        Fewer, and the best page may still be waiting for its due time when the values served dip; more,
        and it may not be among the candidates a script looks at. The lift follows the best of them: the
        mean of what is served lies above it where signals make values jump.
        """
        tops = [np.frombuffer(raw, dtype=np.float32) for raw in await self._sweeps.top_values(price.of)]
        values = np.sort(np.concatenate([np.empty(0, dtype=np.float32), *tops]))[::-1]
        if price.served <= 0 or not len(values):
            return
        ready = float(values[READY - 1]) if len(values) >= READY else 0.0
        best = float(values[min(BEST, len(values)) - 1])
        slack = price.slack + AIM_WEIGHT * (1 - ready / price.served - price.slack)
        lift = price.lift + AIM_WEIGHT * (best / price.served - price.lift)
        await self._control.aim(slack=min(MOST_SLACK, max(0.0, slack)), lift=min(1.0, lift))

    def _is_due(self, shard: int, price: Price, policy: Policy, now_at: float) -> bool:
        if shard not in self._swept:
            return True
        swept_at, swept_price, value_name = self._swept[shard]
        if value_name != policy.value_name or price.of != policy.value_name:
            return True
        if now_at - swept_at >= self._settings.reprice_s:
            return True  # expected freshness is of a moment, so it is looked at again anyway
        return not math.isclose(price.due, swept_price, rel_tol=MOVED)
