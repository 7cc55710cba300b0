"""Whole shards as workers and operators see them: hosts, bins of records, counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

from service.domain import Host
from service.store import keys
from service.store.connection import Server
from service.store.wire import pack, pairs, unpack

BINS_AT_ONCE = 32
BINS_PER_LIST = 8
PAGES_PER_CALL = 64


@dataclass(frozen=True, slots=True)
class Bin:
    """The pages of one bin of a host: ids, raw records and anchors in one order."""

    host_id: str
    number: int
    host_price: float
    ids: list[int]
    records: list[bytes]
    anchors_ms: list[float]


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """Counts and times of one shard."""

    pages: int
    leases: int
    priced_at: float | None  # until when the prices its pages are ranked by were seen to hold
    fresh_weight: float
    weight: float


class Shards:
    """Reads and re-ranks shards."""

    def __init__(self, server: Server, shards: int) -> None:
        self._server = server
        self.prefixes = keys.shard_prefixes(shards)

    async def hosts(self, shard: int) -> AsyncIterator[list[str]]:
        """Ids of the shard's hosts, some at a time."""
        cursor = b"0"
        while True:
            key = keys.hosts(self.prefixes[shard])
            cursor, members = await self._server.execute("SSCAN", key, cursor, "COUNT", 200)
            if members:
                yield [member.decode() for member in members]
            if int(cursor) == 0:
                return

    async def bins(self, shard: int) -> AsyncIterator[list[Bin]]:
        """Every bin of the shard, some at a time; two round trips per group of bins."""
        async for host_ids in self.hosts(shard):
            names = await self._bin_names(shard, host_ids)
            todo = iter(names)
            while group := list(islice(todo, BINS_AT_ONCE)):
                yield await self.read_bins(shard, group)

    async def full_bins(self, shard: int) -> AsyncIterator[list[Bin]]:
        """Every bin of the shard that has pages, some at a time."""
        async for bins in self.bins(shard):
            full = [page_bin for page_bin in bins if page_bin.ids]
            if full:
                yield full

    async def _bin_names(self, shard: int, host_ids: Sequence[str]) -> list[tuple[str, int, float]]:
        pipeline = self._server.pipeline()
        for host_id in host_ids:
            key = keys.host(self.prefixes[shard], host_id)
            pipeline.execute_command("HMGET", key, "bins", "price")
        answers = await self._server.run(pipeline)
        return [
            (host_id, number, float(price or 0))
            for host_id, (bins, price) in zip(host_ids, answers, strict=True)
            for number in range(int(bins or 0))
        ]

    async def read_bins(self, shard: int, names: Sequence[tuple[str, int, float]]) -> list[Bin]:
        prefix = self.prefixes[shard]
        pipeline = self._server.pipeline()
        for host_id, number, _ in names:
            pipeline.execute_command("HGETALL", keys.records(prefix, host_id, number))
            pipeline.execute_command("ZRANGE", keys.anchors(prefix, host_id, number), 0, -1, "WITHSCORES")
        answers = await self._server.run(pipeline)
        return [_bin(name, answers[2 * at], answers[2 * at + 1]) for at, name in enumerate(names)]

    async def host_names(self, shard: int, host_ids: Sequence[str]) -> list[str]:
        """What the hosts are called; one round trip."""
        pipeline = self._server.pipeline()
        for host_id in host_ids:
            pipeline.execute_command("HGET", keys.host(self.prefixes[shard], host_id), "name")
        return [name.decode() if name else "" for name in await self._server.run(pipeline)]

    async def reprice(self, shard: int, items: Sequence[tuple[Bin, list[tuple[int, int, bytes]]]]) -> int:
        """Write rankings back, bin by bin; one call each, so that no call is long. Returns how many."""
        calls = [(page_bin.host_id, page_bin.number, pack(pages)) for page_bin, pages in items]
        replies = await self._server.call_many("reprice", [self.prefixes[shard]], calls)
        return sum(int(reply[1]) for reply in replies)

    async def promote(self, shard: int, pages: list[tuple[str, int]]) -> int:
        """Let these pages be served next, whatever they are worth; how many waited."""
        calls = [(pack(pages[at : at + PAGES_PER_CALL]), at) for at in range(0, len(pages), PAGES_PER_CALL)]
        replies = await self._server.call_many("promote", [self.prefixes[shard]], calls)
        return sum(int(reply[1]) for reply in replies)

    async def ranked_by(self, shard: int) -> str | None:
        """Which value the shard's last sweep ranked its pages by."""
        name = await self._server.execute("HGET", keys.meta(self.prefixes[shard]), "ranked_by")
        return name.decode() if name else None

    async def forget_host_prices(self, shard: int) -> None:
        """What hosts were served at, which says nothing once pages have another value."""
        async for host_ids in self.hosts(shard):
            pipeline = self._server.pipeline()
            for host_id in host_ids:
                pipeline.execute_command("HDEL", keys.host(self.prefixes[shard], host_id), "price")
            await self._server.run(pipeline)

    async def finish_sweep(
        self, shard: int, *, swept_at: float, ranked_by: str, fresh_weight: float, weight: float, top: bytes
    ) -> None:
        """Note when the prices of this shard's sweep were read, and what freshness and values it saw."""
        seen = ("fresh", repr(fresh_weight), "weight", repr(weight), "top", top, "ranked_by", ranked_by)
        await self._server.execute(
            "HSET", keys.meta(self.prefixes[shard]), "priced_at", f"{swept_at:.3f}", *seen
        )

    async def top_values(self, ranked_by: str) -> list[bytes]:
        """The largest values of this name each shard's last sweep saw, packed; one round trip."""
        pipeline = self._server.pipeline()
        for prefix in self.prefixes:
            pipeline.execute_command("HMGET", keys.meta(prefix), "top", "ranked_by")
        found = [row for row in await self._server.run(pipeline, partly=True) if row]
        return [top for top, name in found if top and name == ranked_by.encode()]

    async def confirm_price(self, shard: int, *, checked_at: float) -> None:
        """Note that the prices this shard is ranked by still hold."""
        await self._server.execute("HSET", keys.meta(self.prefixes[shard]), "priced_at", f"{checked_at:.3f}")

    async def status(self, *, partly: bool = False) -> list[ShardStatus]:
        """Counts of every shard; one round trip. Partly: none of shards that cannot be asked."""
        pipeline = self._server.pipeline()
        for prefix in self.prefixes:
            fields = ("pages", "leases", "priced_at", "fresh", "weight")
            pipeline.execute_command("HMGET", keys.meta(prefix), *fields)
        return [_status(row or [None] * 5) for row in await self._server.run(pipeline, partly=partly)]

    async def signal_counts(self) -> dict[int, int]:
        """Signals accepted so far, by source number; one round trip."""
        counts: dict[int, int] = {}
        for number, count in await self._by_source(keys.counted):
            counts[number] = counts.get(number, 0) + int(count)
        return counts

    async def source_figures(self) -> dict[int, list[float]]:
        """What was learned of each source: Σγ, Σγ·precision, ΣΔ of the pages hearing it, and how many they
        are; one round trip.
        """
        figures: dict[int, list[float]] = {}
        for number, raw in await self._by_source(keys.sources):
            learned = figures.get(number, [])
            figures[number] = [a + float(b) for a, b in zip_longest(learned, unpack(raw), fillvalue=0.0)]
        return figures

    async def _by_source(self, key: Callable[[str], str]) -> list[tuple[int, bytes]]:
        """The fields of one hash of every shard, whichever protocol version shaped the answer."""
        pipeline = self._server.pipeline()
        for prefix in self.prefixes:
            pipeline.execute_command("HGETALL", key(prefix))
        return [
            (int(number), value)
            for stored in await self._server.run(pipeline)
            for number, value in pairs(stored)
        ]

    async def read_host(self, shard: int, host_id: str, default_delay_s: float, now_at: float) -> Host | None:
        """Rules and state of a host, or None."""
        fields = ("pages", "delay_ms", "gap_ms", "paused_until", "price", "rest_until")
        key = keys.host(self.prefixes[shard], host_id)
        pages, delay, gap, paused, price, rests = await self._server.execute("HMGET", key, *fields)
        if pages is None:
            return None
        return Host(
            pages=int(pages),
            min_delay_s=default_delay_s if delay is None else float(delay) / 1000,
            max_crawls_per_second=1000 / float(gap) if gap and float(gap) > 0 else None,
            paused_until=float(paused) / 1000 if paused and float(paused) > 0 else None,
            rests_until=float(rests) / 1000 if rests and float(rests) > now_at * 1000 else None,
            price=float(price) if price else None,
        )

    async def list_host(self, shard: int, host_id: str, first: int) -> tuple[list[bytes], int | None] | None:
        """Records of the host's bins from `first` on, and the bin to go on with."""
        prefix = self.prefixes[shard]
        bins = await self._server.execute("HGET", keys.host(prefix, host_id), "bins")
        if bins is None:
            return None
        numbers = range(first, min(int(bins), first + BINS_PER_LIST))
        read = await self.read_bins(shard, [(host_id, number, 0.0) for number in numbers])
        records = [raw for page_bin in read for raw in page_bin.records]
        following = first + BINS_PER_LIST
        return records, following if following < int(bins) else None

    async def memory_bytes(self) -> int:
        """Memory the servers use."""
        return sum(int(info["used_memory"]) for info in await self._server.everywhere("INFO", "memory"))

    async def probe(self) -> None:
        """Run a script on every shard and the control hash; StoreUnavailable if one does not answer."""
        places = (keys.CONTROL, *self.prefixes)
        await self._server.call_shards("probe", [([place], []) for place in places])


def _status(row: list[bytes | None]) -> ShardStatus:
    pages, leases, priced_at, fresh, weight = row
    return ShardStatus(
        pages=int(pages or 0),
        leases=int(leases or 0),
        priced_at=float(priced_at) if priced_at else None,
        fresh_weight=float(fresh or 0),
        weight=float(weight or 0),
    )


def _bin(name: tuple[str, int, float], stored: Any, scored: Any) -> Bin:
    host_id, number, host_price = name
    records = {int(id_): raw for id_, raw in pairs(stored) if raw}
    anchors = {int(id_): float(score) for id_, score in _scores(scored)}
    ids = [id_ for id_ in records if id_ in anchors]
    return Bin(host_id, number, host_price, ids, [records[i] for i in ids], [anchors[i] for i in ids])


def _scores(scored: Any) -> list[tuple[bytes, bytes]]:
    """Pairs of member and score, whichever protocol version shaped the answer."""
    if scored and isinstance(scored[0], list | tuple):
        return [(member, score) for member, score in scored]
    return list(zip(scored[::2], scored[1::2], strict=True))
