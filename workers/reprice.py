"""Re-pricing: each shard's pages are ranked anew where the price has moved, and looked at by a deadline.

Serving never waits for this. A page ranked by an old price is still served, only a little early or late;
a dormant page whose ceiling the falling price has passed comes back by this sweep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial

import numpy as np

from service.clock import Clock
from service.domain import Policy, Price
from service.policy.interval import join, part
from service.policy.valuation import Valuation, solve, solved, valuation_of
from service.settings import Settings
from service.store.bins import START, Bin, Bins, Place
from service.store.connection import Server
from service.store.control import Control
from service.store.shards import Shards
from service.store.sweeps import Sweeps
from workers.ahead import ahead
from workers.appraise import READY, Seen, look, models_of, rerank
from workers.behind import Behind
from workers.explore import FLOOR_SHARE, KEPT, Unseen, choose
from workers.ownership import GoOn, always
from workers.sweep import Sweep, is_near

BEST = 4  # of these, the one whose value is taken for what will be served next
AIM_WEIGHT = 0.05  # of one sweep in the slack
MOST_SLACK = 0.95
KEEP_S = 5.0  # how much of a sweep may be lost


class Repricer:
    """Sweeps shards; remembers by which price each was last swept."""

    def __init__(self, server: Server, settings: Settings, clock: Clock) -> None:
        self._shards = Shards(server, settings.shards)
        self._bins, self._sweeps = Bins(server, settings.shards), Sweeps(server, settings.shards)
        self._control = Control(server, clock)
        self._settings = settings
        self._swept: dict[int, tuple[float, Price]] = {}  # shard: when, by which price
        self._credit: dict[int, tuple[float, float]] = {}  # shard: crawls saved up for exploration, floors

    async def sweep_all(self, now_at: float) -> int:
        """Sweep every shard that needs it; returns how many pages were renewed."""
        renewed = 0
        for shard in range(len(self._shards.prefixes)):
            renewed += await self.sweep(shard, now_at)
        return renewed

    async def sweep(self, shard: int, now_at: float, go_on: GoOn = always) -> int:
        """Rank the pages of a shard by the price and the policy of this moment, if it is time to.

        How many needed a new ranking. Where `go_on` says no, the sweep is left for others to go on with.
        """
        price, policy = await self._control.price(), await self._control.policy()
        if not self._is_due(shard, price, policy, now_at):
            await self._sweeps.confirm_price(shard, checked_at=now_at)
            return 0
        ranked_by = await self._sweeps.ranked_by(shard)
        if ranked_by not in (policy.value_name, None):
            await self._sweeps.forget_host_prices(shard)
        if price.of != policy.value_name:
            price = await self._open_price(shard, policy, now_at)
        sweep = Sweep(price, now_at, Seen(unseen=Unseen(policy.min_crawls_per_day)))
        begun = await self._sweeps.begun(shard)
        if begun is not None:
            sweep.take_up(begun)
        if await self._pass_over(shard, sweep, policy, now_at, go_on, anew=ranked_by != policy.value_name):
            await self._finish(shard, sweep, policy, now_at)
        return sweep.seen.renewed

    async def _pass_over(
        self, shard: int, sweep: Sweep, policy: Policy, now_at: float, go_on: GoOn, *, anew: bool
    ) -> bool:
        """Rank the rest of the pages; False if it had to stop before the end."""
        kept_at, behind = time.monotonic(), Behind()
        async with behind, aclosing(ahead(self._valued(shard, policy, sweep.place))) as groups:
            async for bins, sweep.place, valuation in groups:
                work = partial(rerank, bins, sweep.price, valuation, now_at, sweep.seen, anew=anew)
                items = await asyncio.to_thread(work)
                sweep.seen.renewed += await behind.start(self._bins.reprice(shard, items))
                may_go_on = await go_on()
                if may_go_on and time.monotonic() - kept_at < KEEP_S:
                    continue
                sweep.seen.renewed += await behind.finish()
                await self._sweeps.keep(shard, sweep.pack())
                kept_at = time.monotonic()
                if not may_go_on:
                    return False
            sweep.seen.renewed += await behind.finish()
        return True

    async def _finish(self, shard: int, sweep: Sweep, policy: Policy, now_at: float) -> None:
        seen = sweep.seen
        await self._sweeps.finish(
            shard,
            swept_at=sweep.begun_at,
            ranked_by=policy.value_name,
            fresh_weight=seen.fresh,
            weight=seen.weight,
            top=seen.top.tobytes(),
            sample=(seen.sample.pages, seen.sample.models),
        )
        await self._aim(sweep.price)
        await self._explore(shard, seen.unseen, policy, now_at)
        self._swept[shard] = (sweep.begun_at, sweep.price)

    async def _valued(
        self, shard: int, policy: Policy, place: Place
    ) -> AsyncIterator[tuple[list[Bin], Place, Valuation]]:
        """The shard's pages from a place on: some at a time, the place behind them, how they are valued."""
        valuation = valuation_of(policy)
        if valuation is not None:
            async for bins, end in self._bins.walk(shard, place):
                yield bins, end, valuation
            return
        groups = [(bins, models_of(bins)) async for bins, _ in self._bins.walk(shard)]
        if not groups:
            return
        share = await self._share(shard) * (await self._control.bandwidth()).crawls_per_second
        believed = solve(policy.policy, join([model for _, model in groups]), share)
        at = 0
        for bins, model in groups:
            last = at + len(model.silent_rate)
            # They are solved for all together, so the next sweep, too, begins from the start.
            yield bins, START, solved(part(believed, slice(at, last)))
            at = last

    async def _open_price(self, shard: int, policy: Policy, now_at: float) -> Price:
        """After a change of policy the old price says nothing: begin with the best values here."""
        seen = Seen()
        async for bins, _, valuation in self._valued(shard, policy, START):
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
        swept_at, swept_price = self._swept[shard]
        if price.of != policy.value_name:
            return True
        if now_at - swept_at >= self._settings.reprice_s:
            return True  # expected freshness is of a moment, so it is looked at again anyway
        return not is_near(price, swept_price)
