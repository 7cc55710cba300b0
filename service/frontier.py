"""READ FIRST: the verbs of the scheduler, each read → decide → write.

A verb groups its items by shard and makes one script call per shard, all in one round trip; what a page is
worth is decided by the policy beforehand (`beliefs.py`) and compared inside the script.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from service.address import Address, shard_of
from service.calibration import Calibration
from service.clock import Clock
from service.dispatcher import FEW, PAGES_PER_CALL, Dispatcher
from service.domain import (
    Bandwidth,
    Host,
    LeaseKey,
    NewOutcome,
    NewPage,
    NewRequests,
    NewSignal,
    Nothing,
)
from service.policy.estimate import Estimate
from service.refit import estimate_page
from service.register import Register
from service.settings import Settings
from service.stock import HOLD_S
from service.store.connection import Server
from service.store.control import Control
from service.store.learned import Learned
from service.store.observations import Observations
from service.store.offers import FEW_SHARDS
from service.store.pages import Groups, Pages, PageState
from service.store.records import read_record
from service.store.rows import Order, Row, outcome_row, requests_row, signal_row, unused_row
from service.store.shards import Listed, Shards
from service.store.trail import Change, last_changes
from service.sums import read_said
from service.waiting import Ask, Give, Leases, Waiting


class Frontier:
    """The scheduler of one process; all state is in the store."""

    def __init__(self, server: Server, clock: Clock, settings: Settings) -> None:
        self.settings = settings
        self._server = server
        self.control = Control(server, clock)
        self.shards = Shards(server, settings.shards)
        self.observations = Observations(server, settings.shards)
        self._learned = Learned(server, settings.shards)
        self._pages = Pages(server, clock, settings.shards)
        # In a cluster shards share a call's pages. Each call needs slots first, so a second must be worth it.
        most, beside = (PAGES_PER_CALL * FEW_SHARDS, FEW) if server.is_cluster else (PAGES_PER_CALL, 0)
        self._dispatcher = Dispatcher(
            self._serve,
            self._give_back,
            ahead_s=settings.ahead_s,
            most=most,
            beside=beside,
        )
        self._register = Register(self._pages, self.control, settings.shards)
        self.looking = asyncio.Lock()  # held by who asks for much work (`outlook.py`)
        self.prepared = False

    async def prepare(self) -> None:
        """First start: the number of shards is fixed and the dial set; later starts change nothing."""
        await self.control.claim_shards(self.settings.shards)
        await self.control.set_bandwidth(self.settings.bandwidth, only_first=True)
        self.prepared = True

    def next(self, request_id: str, count: int, wait_s: float) -> Coroutine[Any, Any, Leases | Nothing]:
        """The pages worth most now, as rows (`rows.lease_from` reads one); one round trip shared by all
        requests waiting in this process.
        """
        return self._dispatcher.next(request_id, count, wait_s)

    def ask(self, request_id: str, count: int, wait_s: float, give: Give) -> Waiting:
        """As `next`, for a caller that is called back, also with what went wrong."""
        return self._dispatcher.ask(request_id, count, wait_s, give)

    async def _serve(self, requests: Sequence[Ask], ahead: int = 0) -> tuple[list[Leases], Leases, Nothing]:
        settings = self.settings
        order = Order(
            lease_s=settings.lease_s,
            lookahead_s=settings.lookahead_s,
            rest_s=settings.min_delay_s,
            hold_s=HOLD_S if ahead else 0.0,
            salt=1 + secrets.randbelow(65535),
        )
        word, retry_ms, answers, spare = await self._pages.next(requests, ahead, order)
        return answers, spare, Nothing(word if word != "leased" else "pace", retry_ms / 1000)

    async def _give_back(self, leases: Leases) -> None:
        """Pages nobody came for: their hosts need no rest."""
        items = [unused_row(row) for row in leases]
        await self._by_shard([item[0] for item in items], items, self._pages.release)

    async def record_outcomes(self, outcomes: Sequence[NewOutcome]) -> list[str]:
        """A word per outcome, as the script gives it; one round trip."""
        items = [outcome_row(outcome) for outcome in outcomes]
        return await self._by_shard([o.host_id for o in outcomes], items, self._pages.outcomes)

    async def extend(self, leases: Sequence[LeaseKey], seconds: float) -> list[str]:
        """New expiry (ms) or a refusing word per lease; one round trip."""
        items = [(k.host_id, k.page_id, k.token, seconds * 1000) for k in leases]
        return await self._by_shard([k.host_id for k in leases], items, self._pages.extend)

    async def release(self, leases: Sequence[LeaseKey]) -> list[str]:
        """Give pages back at once; one round trip."""
        items = [(k.host_id, k.page_id, k.token) for k in leases]
        return await self._by_shard([k.host_id for k in leases], items, self._pages.release)

    async def record_signals(self, signals: Sequence[NewSignal]) -> list[str]:
        """A word per signal; one round trip, one more for source names never seen, and once a
        second one for the sources' delays.
        """
        numbers = await self.control.source_numbers({s.origin for s in signals})
        delays, default_s = await self.control.source_delays(), self.settings.signal_delay_s
        items = [signal_row(s, numbers[s.origin], delays.get(s.source, default_s)) for s in signals]
        call = partial(self._pages.signals, window_s=self.settings.signal_window_s)
        return await self._by_shard([s.address.host_id for s in signals], items, call)

    async def record_requests(self, requests: Sequence[NewRequests], batch: bytes) -> list[str]:
        """A word per item of the batch, which counts once by its hash; one round trip."""
        items = [requests_row(r) for r in requests]
        half_life_s = self.settings.requests_half_life_s
        call = partial(self._pages.requests, half_life_s=half_life_s, batch=batch)
        return await self._by_shard([r.address.host_id for r in requests], items, call)

    async def put_pages(self, pages: Sequence[NewPage]) -> list[str]:
        """'added', 'updated' or a refusal per page; see `Register.put`."""
        return await self._register.put(pages)

    async def delete_pages(self, addresses: Sequence[Address]) -> list[str]:
        """'deleted' or 'unknown' per page; as `set_host`."""
        items = [(a.host_id, a.page_id, a.path) for a in addresses]
        words = await self._by_shard([a.host_id for a in addresses], items, self._pages.delete)
        await self._outlast_stocks()
        return words

    async def park(self, addresses: Sequence[Address], *, parks: bool) -> list[str]:
        """Give pages up or take them back: 'parked' or 'released' per page, else 'unmoved' or 'unknown'."""
        items = [(a.host_id, a.page_id, a.path) for a in addresses]
        call = partial(self._pages.park, parks=parks)
        return await self._by_shard([a.host_id for a in addresses], items, call)

    async def inspect(self, address: Address) -> PageState | None:
        """One page at one moment; one round trip."""
        shard = shard_of(address.host_id, self.settings.shards)
        return await self._pages.inspect(shard, address.host_id, address.page_id, address.path)

    async def inspect_each(self, shard: int, ids: Sequence[tuple[str, int]]) -> list[PageState | None]:
        """Pages of a shard by host id and page id; a round trip for a few of them."""
        return await self._pages.inspect_each(shard, ids)

    async def estimate(self, address: Address, state: PageState) -> tuple[Estimate, tuple[int, ...]]:
        """What was learned of a page and how firmly, by source; four round trips."""
        shard = shard_of(address.host_id, self.settings.shards)
        evidence, sums = await self._learned.page(shard, address.host_id, state.page_id)
        said = read_said(await self._learned.said(), await self.control.source_names())
        record = read_record(state.record)
        open_s = max(0.0, (state.now_ms - record.crawled_at_ms) / 1000) if record.crawled_at_ms else 0.0
        return estimate_page(evidence, sums, said, open_s=open_s, open_signals=record.sources)

    async def calibration(self) -> Calibration:
        """Predictions against what came, over all shards; one round trip."""
        total = Calibration.read(b"")
        for raw in await self.observations.calibration():
            total.merge(Calibration.read(raw))
        return total

    async def set_host(self, address: Address, changes: dict[str, float], actor: str = "") -> None:
        """Rules for one host, obeyed from the answer on; one round trip, and until no process has pages left
        that it leased ahead before.
        """
        shard = shard_of(address.host_id, self.settings.shards)
        await self._pages.set_host(
            shard,
            address.host_id,
            address.host,
            changes,
            rest_s=self.settings.min_delay_s,
            ahead_s=self.settings.lookahead_s + HOLD_S,
            actor=actor,
        )
        await self._outlast_stocks()

    async def read_host(self, address: Address) -> Host | None:
        """Rules and state of one host; two round trips."""
        shard, now_at = shard_of(address.host_id, self.settings.shards), await self.control.now()
        return await self.shards.read_host(shard, address.host_id, self.settings.min_delay_s, now_at)

    async def list_host(self, address: Address, cursor: int) -> tuple[list[Listed], int | None] | None:
        """Some of a host's pages and where to go on; a few round trips."""
        shard = shard_of(address.host_id, self.settings.shards)
        return await self.shards.list_host(shard, address.host_id, cursor)

    async def set_bandwidth(
        self, crawls_per_second: float, expected: int | None, actor: str = ""
    ) -> Bandwidth:
        """Turn the dial; as `set_host`."""
        bandwidth = await self.control.set_bandwidth(crawls_per_second, expected=expected, actor=actor)
        await self._outlast_stocks()
        return bandwidth

    async def last_changes(self, most: int) -> list[Change]:
        """Who changed what, the latest first; one round trip."""
        return await last_changes(self._server, self.settings.shards, most)

    async def _outlast_stocks(self) -> None:
        if self.settings.ahead_s:
            await asyncio.sleep(HOLD_S)

    async def ready(self) -> dict[str, Any]:
        """Run a script on every shard now; StoreUnavailable where one does not answer."""
        await self.prepare()  # again and again: the store may have been emptied
        await self.shards.probe()
        return {"status": "ready", "shards": self.settings.shards}

    async def close(self) -> None:
        await self._dispatcher.close()
        await self._pages.close()

    async def _by_shard(
        self,
        host_ids: Sequence[str],
        items: Sequence[Row],
        call: Callable[[Groups], Awaitable[list[list[Any]]]],
    ) -> list[Any]:
        """Send items to their shards; the answers come back in the items' order."""
        groups: dict[int, list[int]] = defaultdict(list)
        for at, host_id in enumerate(host_ids):
            groups[shard_of(host_id, self.settings.shards)].append(at)
        replies = await call([(shard, [items[at] for at in group]) for shard, group in groups.items()])
        words: list[Any] = [None] * len(items)
        for group, reply in zip(groups.values(), replies, strict=True):
            for at, word in zip(group, reply, strict=True):
                words[at] = word.decode() if isinstance(word, bytes) else word
        return words
