"""READ FIRST: the verbs of the scheduler, each read → decide → write.

A verb groups its items by shard and makes one script call per shard; what a page is worth is decided by
the policy beforehand (`beliefs.py`) and compared inside the script.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from service.address import Address, shard_of
from service.beliefs import is_whole, merge, model_from, model_rows, pack_models, ranking_rows
from service.clock import Clock
from service.dispatcher import Dispatcher, Leases
from service.domain import (
    Bandwidth,
    Host,
    LeaseKey,
    NewOutcome,
    NewPage,
    NewSignal,
    Nothing,
    Price,
)
from service.errors import InvalidModel
from service.settings import Settings
from service.store.connection import Server
from service.store.control import Control
from service.store.pages import Pages, PageState
from service.store.records import FIXED, pack_rows, read_record
from service.store.rows import Row, lease_from, outcome_row, signal_row
from service.store.shards import Shards

ONLY_ADD, REPLACE = -2, -1
PRICE_AGE_S = 1.0  # how old a price new pages may be ranked by; the worker renews it anyway
UPDATE_TRIES = 4


class Frontier:
    """The scheduler of one process; all state is in the store."""

    def __init__(self, server: Server, clock: Clock, settings: Settings) -> None:
        self.settings = settings
        self.control = Control(server, clock)
        self.shards = Shards(server, settings.shards)
        self._pages = Pages(server, clock, settings.shards)
        self._dispatcher = Dispatcher(self._serve)
        self._price: tuple[float, Price] | None = None
        self.prepared = False

    async def prepare(self) -> None:
        """First start: the number of shards is fixed and the dial set; later starts change nothing."""
        await self.control.claim_shards(self.settings.shards)
        await self.control.set_bandwidth(self.settings.bandwidth, only_first=True)
        self.prepared = True

    async def next(self, request_id: str, count: int, wait_s: float) -> Leases | Nothing:
        """The pages worth most now; one round trip shared by all requests waiting in this process."""
        return await self._dispatcher.next(request_id, count, wait_s)

    async def _serve(self, requests: Sequence[tuple[str, int]]) -> tuple[list[Leases], Nothing]:
        settings = self.settings
        word, retry_ms, answers = await self._pages.next(
            requests,
            lease_s=settings.lease_s,
            lookahead_s=settings.lookahead_s,
            rest_s=settings.min_delay_s,
            salt=secrets.randbits(16),
        )
        leases = [[lease_from(row) for row in rows] for rows in answers]
        return leases, Nothing(word if word != "leased" else "pace", retry_ms / 1000)

    async def record_outcomes(self, outcomes: Sequence[NewOutcome]) -> list[str]:
        """A word per outcome, as the script gives it; one round trip per shard, side by side."""
        items = [outcome_row(outcome) for outcome in outcomes]
        return await self._by_shard([o.host_id for o in outcomes], items, self._pages.outcomes)

    async def extend(self, leases: Sequence[LeaseKey], seconds: float) -> list[str]:
        """New expiry (ms) or a refusing word per lease; one round trip per shard."""
        items = [(k.host_id, k.page_id, k.token, seconds * 1000) for k in leases]
        return await self._by_shard([k.host_id for k in leases], items, self._pages.extend)

    async def release(self, leases: Sequence[LeaseKey]) -> list[str]:
        """Give pages back at once; one round trip per shard."""
        items = [(k.host_id, k.page_id, k.token) for k in leases]
        return await self._by_shard([k.host_id for k in leases], items, self._pages.release)

    async def record_signals(self, signals: Sequence[NewSignal]) -> list[str]:
        """A word per signal; one round trip per shard, and one more for source names never seen."""
        numbers = await self.control.source_numbers({s.source for s in signals})
        items = [signal_row(s, numbers[s.source]) for s in signals]

        async def call(shard: int, group: list[Row]) -> list[Any]:
            window_s, delay_s = self.settings.signal_window_s, self.settings.signal_delay_s
            return await self._pages.signals(shard, group, window_s=window_s, delay_s=delay_s)

        return await self._by_shard([s.address.host_id for s in signals], items, call)

    async def put_pages(self, pages: Sequence[NewPage]) -> list[str]:
        """'added', 'updated' or a refusal per page.

        One round trip per shard for new pages and whole models; a second for known pages of which only some
        fields were given, whose other fields are kept.
        """
        price = await self._current_price()
        words: list[str] = [""] * len(pages)
        models: list[tuple[float, float, float, float]] = []
        valid: list[int] = []
        for at, page in enumerate(pages):
            try:
                models.append(model_from(page.belief))
                valid.append(at)
            except InvalidModel as error:
                words[at] = str(error)
        whole = [is_whole(pages[at].belief) for at in valid]
        expected = [REPLACE if w else ONLY_ADD for w in whole]
        replies = await self._put([pages[at] for at in valid], models, expected, price)
        for at, reply in zip(valid, replies, strict=True):
            words[at] = await self._merge(pages[at], reply, price) if isinstance(reply, list) else reply
        return words

    async def _merge(self, page: NewPage, known: list[bytes], price: Price) -> str:
        """Update some fields of a known page; the version guards what others change meanwhile."""
        raw: bytes | None = known[1]
        for _ in range(UPDATE_TRIES):
            if raw is None:
                return "unknown"
            record = read_record(raw)
            fixed = page.fixed or bool(record.flags & FIXED)
            merged = NewPage(page.address, page.belief, fixed)
            model = merge(page.belief, record.model)
            (word,) = await self._put([merged], [model], [record.version], price)
            if word != "moved":
                return str(word)
            state = await self.inspect(page.address)
            raw = state.record if state else None
        return "moved"

    async def _put(
        self,
        pages: Sequence[NewPage],
        models: list[tuple[float, float, float, float]],
        expected: Sequence[int],
        price: Price,
    ) -> list[Any]:
        if not pages:
            return []
        model = pack_models(models)
        ranking = pack_rows(ranking_rows(model, price))
        belief = [r + m for r, m in zip(ranking, pack_rows(model_rows(model)), strict=True)]
        items = [
            (
                a.host_id,
                a.host,
                a.page_id,
                a.path,
                belief[at],
                FIXED if p.fixed else 0,
                expected[at],
            )
            for at, (p, a) in enumerate((p, p.address) for p in pages)
        ]
        return await self._by_shard([p.address.host_id for p in pages], items, self._pages.put)

    async def delete_pages(self, addresses: Sequence[Address]) -> list[str]:
        """'deleted' or 'unknown' per page; one round trip per shard."""
        items = [(a.host_id, a.page_id, a.path) for a in addresses]
        return await self._by_shard([a.host_id for a in addresses], items, self._pages.delete)

    async def inspect(self, address: Address) -> PageState | None:
        """One page at one moment; one round trip."""
        shard = shard_of(address.host_id, self.settings.shards)
        return await self._pages.inspect(shard, address.host_id, address.page_id, address.path)

    async def set_host(self, address: Address, changes: dict[str, float]) -> None:
        """Rules for one host, obeyed from the answer on; one round trip."""
        shard = shard_of(address.host_id, self.settings.shards)
        rest_s = self.settings.min_delay_s
        await self._pages.set_host(shard, address.host_id, address.host, changes, rest_s=rest_s)

    async def read_host(self, address: Address) -> Host | None:
        """Rules and state of one host; one round trip."""
        shard = shard_of(address.host_id, self.settings.shards)
        return await self.shards.read_host(shard, address.host_id, self.settings.min_delay_s)

    async def list_host(self, address: Address, cursor: int) -> tuple[list[bytes], int | None] | None:
        """Some records of a host's pages and where to go on; two round trips."""
        shard = shard_of(address.host_id, self.settings.shards)
        return await self.shards.list_host(shard, address.host_id, cursor)

    async def set_bandwidth(self, crawls_per_second: float, expected: int | None) -> Bandwidth:
        """Turn the dial; one round trip."""
        return await self.control.set_bandwidth(crawls_per_second, expected=expected)

    async def ready(self) -> dict[str, Any]:
        """Run a script on every shard now; StoreUnavailable where one does not answer."""
        if not self.prepared:
            await self.prepare()
        await self.shards.probe()
        return {"status": "ready", "shards": self.settings.shards}

    async def close(self) -> None:
        await self._dispatcher.close()

    async def _current_price(self) -> Price:
        now = asyncio.get_running_loop().time()
        if self._price is None or now - self._price[0] > PRICE_AGE_S:
            self._price = (now, await self.control.price())
        return self._price[1]

    async def _by_shard(
        self,
        host_ids: Sequence[str],
        items: Sequence[Row],
        call: Callable[[int, list[Row]], Awaitable[list[Any]]],
    ) -> list[Any]:
        """Send items to their shards side by side; the answers come back in the items' order."""
        groups: dict[int, list[int]] = defaultdict(list)
        for at, host_id in enumerate(host_ids):
            groups[shard_of(host_id, self.settings.shards)].append(at)
        replies = await asyncio.gather(
            *(call(shard, [items[at] for at in group]) for shard, group in groups.items())
        )
        words: list[Any] = [None] * len(items)
        for group, reply in zip(groups.values(), replies, strict=True):
            for at, word in zip(group, reply, strict=True):
                words[at] = word.decode() if isinstance(word, bytes) else word
        return words
