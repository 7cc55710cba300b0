"""Learning: each shard's observations become evidence, evidence becomes beliefs, beliefs become models.

Draining is exact: an observation is folded into its page's evidence once, whoever dies in between, so
evidence is a function of the log alone. Refitting reads the evidence of hosts that have news and writes
their pages' models; it may be repeated at any time and settles where nothing is new. Serving waits for
neither.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from service.calibration import Calibration
from service.clock import Clock
from service.cohort import sources_of
from service.domain import Floats, Price
from service.ledger import Entry, fold_all
from service.policy.valuation import Valuation, valuation_of
from service.refit import Refitted, combine, refit
from service.settings import Settings
from service.store.connection import Server
from service.store.control import Control
from service.store.learned import HostHead, Learned
from service.store.observations import Observation, Observations
from service.sums import listen, pack_said, read_said
from service.trust import believable_dates, pack_trust, read_trust, update
from workers.ownership import GoOn, always

AT_ONCE = 128  # observations committed together: keeps the script short
BINS_AT_ONCE = 256  # of which the pages are refitted together; a host of more is refitted in parts
SETTLED = 1e-3  # relative change of a host's sums below which nothing is new about it


class Learner:
    """Learns for the shards it is asked to."""

    def __init__(
        self,
        server: Server,
        settings: Settings,
        clock: Clock,
        *,
        pooled: bool = True,
        settled: float = SETTLED,
    ) -> None:
        self._observations = Observations(server, settings.shards)
        self._learned = Learned(server, settings.shards)
        self._control = Control(server, clock)
        self._settings = settings
        self._pooled = pooled
        self._settled = settled

    async def learn_all(self, now_at: float) -> int:
        """Drain and refit every shard; returns how many pages got a new model."""
        remodelled = 0
        for shard in range(self._settings.shards):
            remodelled += await self.learn(shard, now_at)
        return remodelled

    async def learn(self, shard: int, now_at: float, go_on: GoOn = always) -> int:
        """Drain and refit one shard, as far as `go_on` lets it: what is left waits for the next owner."""
        await self.drain_all(shard, go_on)
        remodelled = await self.refit(shard, now_at, go_on)
        await self._learned.note_pass(shard, now_at)
        return remodelled

    async def drain_all(self, shard: int, go_on: GoOn = always) -> int:
        """Fold every observation there is into evidence, those a dead owner had begun first; how many."""
        folded = 0
        for begun in (True, False):
            while count := await self.drain(shard, begun=begun):
                folded += count
                if not await go_on():
                    return folded
            if count is None:  # another owner is at it: what was begun may not be finished
                break
        return folded

    async def drain(self, shard: int, *, begun: bool = True) -> int | None:
        """Fold the oldest observations that were (or were not) begun into evidence.

        How many there were; None if another owner folded them meanwhile.
        """
        observations = await self._observations.read(shard, AT_ONCE, begun=begun)
        if not observations:
            return 0
        pages = list(dict.fromkeys(o.page for o in observations))
        raws, kept, calibration = await self._observations.evidence(shard, pages)
        entries = {page: Entry.read(raw) for page, raw in zip(pages, raws, strict=True)}
        trusts = {host_id: read_trust(raw) for host_id, raw in kept.items()}
        dated = believable_dates(trusts, observations)
        claims = fold_all(entries, observations, self._settings.half_life_crawls, dated=dated)
        update(trusts, observations, claims)
        items = [(*page, entry.pack()) for page, entry in entries.items()]
        checked = Calibration.read(calibration)
        checked.add(_predicted(observations), np.array([o.changed for o in observations]), claims)
        kept_whole = await self._observations.fold(
            shard,
            [o.entry for o in observations],
            items,
            trusts=[(host_id, pack_trust(trust)) for host_id, trust in sorted(trusts.items()) if trust],
            checked=checked.pack(),
        )
        return len(observations) if kept_whole else None

    async def refit(self, shard: int, now_at: float, go_on: GoOn = always) -> int:
        """New models for the pages of hosts that have news."""
        remodelled = 0
        price, policy = await self._control.price(), await self._control.policy()
        # After a change of policy a sweep sets the price; until then rankings stay as they are.
        valuation = valuation_of(policy) if price.of == policy.value_name else None
        async for heads in self._learned.hosts_with_news(shard):
            for hosts in _batches(heads):
                remodelled += await self._refit_some(shard, hosts, price, valuation, now_at, go_on)
            if not await go_on():
                break
        if remodelled:
            said = listen(await self._learned.all_sums(shard))
            figures = {number: row.tolist() for number, row in said.figures.items()}
            await self._learned.say(shard, pack_said(said), figures)
        return remodelled

    async def _refit_some(
        self,
        shard: int,
        hosts: list[HostHead],
        price: Price,
        valuation: Valuation | None,
        now_at: float,
        go_on: GoOn,
    ) -> int:
        said = read_said(await self._learned.said(), await self._control.source_names())
        fitted = partial(
            refit,
            said=said,
            price=price,
            valuation=valuation,
            now_at=now_at,
            requests_half_life_s=self._settings.requests_half_life_s,
            pooled=self._pooled,
        )
        if hosts[0].bins > BINS_AT_ONCE:
            return await self._refit_in_parts(shard, hosts[0], fitted, go_on)
        found = fitted(await self._learned.read(shard, hosts))
        # Models first: until they are written the hosts still have news.
        written = await self._learned.remodel(shard, [row for host in found for row in host.pages])
        await self._believe(shard, found)
        return written

    async def _refit_in_parts(
        self, shard: int, host: HostHead, fitted: Callable[..., list[Refitted]], go_on: GoOn
    ) -> int:
        """As the whole host at once would be, but for the order of its sums; all or nothing is believed."""
        numbers: set[int] = set()
        async for raws in self._learned.evidence(shard, host):
            numbers.update(number for raw in raws for number in Entry.read(raw).sources)
        heard, parts, written = sources_of([tuple(numbers)]), list[Refitted](), 0
        for begin in range(0, host.bins, BINS_AT_ONCE):
            bins = range(begin, min(begin + BINS_AT_ONCE, host.bins))
            for part in fitted(await self._learned.read(shard, [host], bins), heard=heard):
                written += await self._learned.remodel(shard, part.pages)
                parts.append(replace(part, pages=[]))
            if not await go_on():
                return written
        if parts:
            await self._believe(shard, [combine(host, parts)])
        return written

    async def _believe(self, shard: int, found: list[Refitted]) -> None:
        beliefs = [(h.host_id, h.sums.pack(), _pack_weights(h), h.moved < self._settled) for h in found]
        await self._learned.believe(shard, beliefs)


def _batches(heads: list[HostHead]) -> Iterator[list[HostHead]]:
    """Hosts to be refitted together: of so many bins, or one that has more."""
    batch: list[HostHead] = []
    for head in heads:
        if batch and sum(h.bins for h in batch) + head.bins > BINS_AT_ONCE:
            yield batch
            batch = []
        batch.append(head)
    if batch:
        yield batch


def _predicted(observations: list[Observation]) -> Floats:
    """Chance of a change, as predicted when the page was served."""
    return np.asarray(-np.expm1(-np.array([o.predicted_depth for o in observations])))


def _pack_weights(host: Refitted) -> bytes:
    """Weights by source for the scripts; a host of one source needs none beside its pages' own."""
    if len(host.sums.sources) < 2:
        return b""
    pairs = zip(host.sums.sources, host.weights.tolist(), strict=True)
    return b"".join(struct.pack("<Bf", number, weight) for number, weight in pairs)
