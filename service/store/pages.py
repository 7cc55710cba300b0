"""Pages by shard: add, remove, signal, take outcomes, extend and release leases.

Each method is one round trip, with a script call per shard; items are tuples in the order the script's
header gives, answers come as the items do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from service import telemetry
from service.clock import Clock
from service.store.connection import Call, Server
from service.store.keys import CONTROL, shard_prefixes
from service.store.pipe import Argument
from service.store.rows import Order, Row, read_leases, requests_for_pages
from service.store.spread import Spread
from service.store.wire import pack

Groups = Sequence[tuple[int, Sequence[Row]]]  # items by shard
ITEMS_PER_CALL = 16  # of one shard, in under a millisecond: a server answers nobody else meanwhile
# A shard, and what `put_pages` takes after the time: how its pages are meant, host ids, all else of both.
PutCall = tuple[int, bytes, list[str], list[str | int | bytes]]
PUT_WORDS = {ord("a"): "added", ord("u"): "updated", ord("c"): "crowded", ord("g"): "unknown"}


@dataclass(frozen=True, slots=True)
class PageState:
    """One page at one moment, as the `inspect` script answers it; instants in milliseconds."""

    now_ms: float
    page_id: int
    record: bytes
    anchor_ms: float
    due_score: float | None
    lease_expires_ms: float | None
    held_until_ms: float | None
    parked_ms: float | None
    host_rests_until_ms: float | None


class Pages:
    """The page scripts of every shard."""

    def __init__(self, server: Server, clock: Clock, shards: int) -> None:
        self._server = server
        self._clock = clock
        self._prefixes = shard_prefixes(shards)
        self._all_shards = " ".join(self._prefixes)
        self._spread = Spread(server, clock, shards)

    async def put(self, calls: Sequence[PutCall]) -> list[list[str | bytes]]:
        """For each call, of a shard: a word per page in their order, or its record where that has to be
        read first.
        """
        now = await self._clock.argument()
        packed = [
            ([self._prefixes[shard]], (now, hows, pack(host_ids), pack(items)))
            for shard, hows, host_ids, items in calls
        ]
        return [_put_words(*reply) for reply in await self._server.call_shards("put_pages", packed)]

    async def delete(self, groups: Groups) -> list[list[Any]]:
        return await self._batch("delete_pages", groups)

    async def outcomes(self, groups: Groups) -> list[list[Any]]:
        return await self._batch("outcomes", groups)

    async def extend(self, groups: Groups) -> list[list[Any]]:
        return await self._batch("extend", groups)

    async def release(self, groups: Groups) -> list[list[Any]]:
        return await self._batch("release", groups)

    async def signals(self, groups: Groups, *, window_s: float) -> list[list[Any]]:
        return await self._batch("signals", groups, window_s * 1000)

    async def requests(self, groups: Groups, *, half_life_s: float, batch: bytes) -> list[list[Any]]:
        # Each shard's items in one call: a part of a batch would be taken for a repeat of it.
        before = (await self._clock.argument(), half_life_s * 1000, batch)
        calls = [([self._prefixes[shard]], (*before, pack(items))) for shard, items in groups]
        return [reply[1:] for reply in await self._server.call_shards("requests", calls)]

    async def next(
        self, requests: Sequence[tuple[str, int, bool]], ahead: int, order: Order
    ) -> tuple[str, float, list[list[Row]], list[Row]]:
        """(word, retry_after_ms, leases per request, those of at most `ahead` pages more) over all shards."""
        if self._server.is_cluster:
            return await self._spread.next(requests, ahead, order)
        asked = requests_for_pages(requests, ahead)
        args = (await self._clock.argument(), order.packed(), self._all_shards, *asked)
        word, retry_us, given, spare, *answers = await self._server.call("next", [CONTROL], args)
        telemetry.NEXT_PAGES.inc(given)
        return word.decode(), retry_us / 1000, [read_leases(raw) for raw in answers], read_leases(spare)

    async def close(self) -> None:
        """Wait for what is still to be written."""
        await self._spread.close()

    async def park(self, groups: Groups, *, parks: bool) -> list[list[Any]]:
        return await self._batch("park", groups, int(parks))

    async def inspect(self, shard: int, host_id: str, page_id: int, path: str) -> PageState | None:
        args = (await self._clock.argument(), host_id, page_id, path)
        return _page_state(await self._server.call("inspect", [self._prefixes[shard]], args))

    async def inspect_each(self, shard: int, ids: Sequence[tuple[str, int]]) -> list[PageState | None]:
        """Pages of a shard by host id and page id."""
        now = await self._clock.argument()
        calls = [(now, host_id, page_id, "") for host_id, page_id in ids]
        return list(map(_page_state, await self._server.call_many("inspect", [self._prefixes[shard]], calls)))

    async def set_host(
        self,
        shard: int,
        host_id: str,
        name: str,
        changes: dict[str, float],
        *,
        rest_s: float,
        ahead_s: float,
        actor: str,
    ) -> None:
        now, times = await self._clock.argument(), (rest_s * 1000, ahead_s * 1000)
        args = (now, host_id, name, *times, pack(changes), actor)
        await self._server.call("set_host", [self._prefixes[shard]], args)

    async def _batch(self, name: str, groups: Groups, *options: Argument) -> list[list[Any]]:
        """The words for each group's items; many of one shard are several calls, so that each is short."""
        before = (await self._clock.argument(), *options)
        calls: list[Call] = []
        for shard, items in groups:
            parts = [items[at : at + ITEMS_PER_CALL] for at in range(0, len(items), ITEMS_PER_CALL)]
            calls += [([self._prefixes[shard]], (*before, pack(part))) for part in parts]
        words = iter(word for reply in await self._server.call_shards(name, calls) for word in reply[1:])
        return [list(islice(words, len(items))) for _, items in groups]


def _page_state(reply: list[Any]) -> PageState | None:
    if reply[0] == b"unknown":
        return None
    later = [float(value) if value else None for value in reply[5:]]
    return PageState(float(reply[1]), int(reply[2]), reply[3], float(reply[4]), *later)


def _put_words(_: bytes, letters: bytes, *records: bytes) -> list[str | bytes]:
    if not letters.strip(b"a"):
        return ["added"] * len(letters)
    known = iter(records)
    return [PUT_WORDS.get(letter) or next(known) for letter in letters]
