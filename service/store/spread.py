"""Handing pages out where shards lie on several servers: slots from one place, pages from the best shards.

Three round trips, shared by all requests that wait in a process: `grant` sets slots aside, `lease` fills them
on the shards chosen, side by side, and `settle` keeps the answers for retries and follows the price. Where
there is only the price to follow nobody waits for that, and the next `grant` does it. A slot is never used
twice: one whose shard did not answer is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from service import telemetry
from service.clock import Clock
from service.domain import UNDER_WAY
from service.errors import StoreUnavailable
from service.store.away import Away
from service.store.connection import Server
from service.store.filling import Filling, Served
from service.store.keys import CONTROL, shard_prefixes
from service.store.offers import Offer, Offers, unused_tail
from service.store.rows import NOTHING, PACKED, SLOT, WAIT, Order, Row, read_leases, requests_for_pages
from service.store.wire import pack, unpack

SETTLED_WITHIN_S = 0.02  # so long the price may lag behind what is served where nobody asks for more
TRIED_MS = 50.0  # after which one whose first try is under way asks again
log = logging.getLogger("freshet.store")


class Spread:
    """The shards of a cluster, as one process last saw them."""

    def __init__(self, server: Server, clock: Clock, shards: int) -> None:
        self._server = server
        self._clock = clock
        self._prefixes = shard_prefixes(shards)
        self._offers = Offers(shards)
        self._away = Away(server, self._prefixes)
        self._unsettled = Served()  # for the next `grant`
        self._timer: asyncio.TimerHandle | None = None  # until they are settled without one
        self._settling: set[asyncio.Task[Any]] = set()  # held, or they might be collected

    async def next(
        self, requests: Sequence[tuple[str, int, bool]], ahead: int, order: Order
    ) -> tuple[str, float, list[list[Row]], list[Row]]:
        """(word, retry_after_ms, leases per request, those of at most `ahead` pages more) over all shards."""
        now = await self._clock.argument()
        asked = requests_for_pages(requests, ahead)
        args = (now, order.lookahead_s * 1000, *self._take_unsettled().packed(), *asked)
        reply = await self._server.call("grant", [CONTROL], args)
        word, now_ms, retry_ms = reply[0].decode(), float(reply[1]), float(reply[2])
        first, gap_ms = float(reply[3]), float(reply[4])
        *shares, more = unpack(reply[5])
        answers: list[bytes] = reply[6:]
        wanted = sum(shares)
        slots = [first + at * gap_ms for at in range(wanted + more)]
        if not slots:
            open_ = [n for (_, n, _), answer in zip(requests, answers, strict=True) if answer in (b"", WAIT)]
            # Though a slot may be free: of a retry the first try is still under way elsewhere.
            return word if any(open_) else "leased", retry_ms or TRIED_MS, list(map(_answered, answers)), []
        filled = Filling(slots, wanted)
        try:
            await self._fill(filled, now, now_ms, order.packed())
        finally:
            telemetry.NEXT_PAGES.inc(min(len(filled.parts), wanted))
            leases, given = _share_out(requests, shares, filled.parts, answers)
            if given or len(filled.parts) < len(slots):
                unused = unused_tail(slots, filled.used)
                await self._settle(now, filled.served, given, first + len(slots) * gap_ms, unused)
            else:
                self._settle_later(now, filled.served)
        if len(filled.parts) < wanted:
            word, retry_ms = self._offers.why_nothing()
        elif wanted == sum(n for _, n, _ in requests):
            word = "leased"
        return word, retry_ms, leases, filled.parts[wanted:]

    async def _fill(self, filled: Filling, now: str, now_ms: float, order: bytes) -> None:
        """Lease pages for the slots, asking again where somebody else was faster."""
        soon = self._offers.expect(len(filled.slots), now_ms)
        shards, least = self._offers.take_turns(len(filled.slots), soon)
        asked = self._look_at(self._offers.stale(now_ms)) | filled.take(shards)
        await self._ask(filled, asked, least, now, now_ms, order)
        looked = set(asked)
        while missing := filled.missing:
            shards, least = self._offers.allot(missing, soon)
            # Nobody goes away empty before every shard has said so.
            asked = filled.take(shards) or self._look_at(set(range(len(self._prefixes))) - looked)
            if not asked:
                break
            await self._ask(filled, asked, least, now, now_ms, order)
            looked.update(asked)
        if not filled.parts and self._away.shards:
            raise StoreUnavailable(next(iter(self._away.shards.values())))

    def _look_at(self, shards: Iterable[int]) -> dict[int, list[float]]:
        """Nothing is to be leased there, and nobody waits for those that are away."""
        return {shard: [] for shard in shards if shard not in self._away.shards}

    async def _ask(
        self,
        filled: Filling,
        asked: dict[int, list[float]],
        least: float,
        now: str,
        now_ms: float,
        order: bytes,
    ) -> None:
        """Ask shards for pages for their slots, and note what they still have to offer."""
        calls = [
            ([self._prefixes[shard]], (now, order, pack(slots), least, f"{now_ms:.3f}"))
            for shard, slots in asked.items()
        ]
        replies = await self._server.call_each("lease", calls) if calls else []
        for (shard, slots), reply in zip(asked.items(), replies, strict=True):
            if isinstance(reply, Exception):
                self._away.add(shard, str(reply))
                self._offers.note(shard, Offer())
                continue
            word, retry_ms, ranked_by, rows, worths = reply
            filled.add(read_leases(rows), slots, ranked_by.decode())
            self._offers.note(shard, Offer(unpack(worths), now_ms, word.decode(), float(retry_ms)))

    def _settle_later(self, now: str, served: Served) -> None:
        """With the next `grant`, or by itself if none follows soon."""
        self._unsettled.add_all(served)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLED_WITHIN_S, self._settle_now, now)

    def _take_unsettled(self) -> Served:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsettled, self._unsettled = self._unsettled, Served()
        return unsettled

    def _settle_now(self, now: str) -> None:
        unsettled = self._take_unsettled()
        if unsettled.count:
            task = asyncio.create_task(self._settle(now, unsettled))
            self._settling.add(task)
            task.add_done_callback(self._finish)

    async def _settle(
        self,
        now: str,
        served: Served,
        given: Sequence[tuple[str, bytes]] = (),
        after: float = 0.0,
        unused: int = 0,
    ) -> None:
        """Close what a `grant` opened whose slots were to be followed by `after`."""
        args = (now, f"{after:.6f}", unused, *served.packed(), pack(given))
        await self._server.call("settle", [CONTROL], args)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._settling.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("call_failed", extra={"script": "settle", "error": str(task.exception())})

    async def close(self) -> None:
        """Wait for what is still to be written."""
        await self._away.close()
        self._settle_now(await self._clock.argument())
        await asyncio.gather(*self._settling, return_exceptions=True)


def _share_out(
    requests: Sequence[tuple[str, int, bool]], shares: list[int], parts: list[Row], answers: list[bytes]
) -> tuple[list[list[Row]], list[tuple[str, bytes]]]:
    """Each request's share of the pages, earliest slot first, or the answer it had; what to keep by id."""
    parts.sort(key=_slot)
    leases: list[list[Row]] = []
    given = 0
    by_id: dict[str, list[Row]] = {}
    kept: list[tuple[str, bytes]] = []
    for (request_id, _, goes_on), share, answer in zip(requests, shares, answers, strict=True):
        if share:
            its = parts[given : given + share]
            given += share
            leases.append(its)
            if request_id:
                by_id[request_id] = its
                kept.append(
                    (request_id, b"".join([row[PACKED] for row in its]) or (NOTHING if goes_on else b""))
                )
        else:  # perhaps a retry, that came beside its first try
            leases.append(by_id[request_id] if request_id in by_id else _answered(answer))
    return leases, kept


def _answered(raw: bytes) -> list[Row]:
    return UNDER_WAY if raw == WAIT else read_leases(raw)


def _slot(row: Row) -> float:
    slot: float = row[SLOT]
    return slot
