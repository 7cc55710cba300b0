"""Whole shards as workers and operators see them: counts, sources, hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from service.domain import Host
from service.store import keys
from service.store.bins import Bin, Bins
from service.store.connection import Server
from service.store.records import SAMPLE_HEAD
from service.store.wire import pack, pairs, unpack

BINS_PER_LIST = 8
PAGES_PER_CALL = 32
SCANNED = 100  # pages by one step
Listed = tuple[bytes, float | None]  # a record, and the due score of a page that waits
_STATUS = "pages", "priced_at", "learned_at", "fresh", "weight"


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """Counts and times of one shard."""

    pages: int
    leases: int
    parked: int
    priced_at: float | None  # until when the prices its pages are ranked by were seen to hold
    learned_at: float | None  # when a worker last learned from what was observed there
    fresh_weight: float
    weight: float


class Shards:
    """Reads shards."""

    def __init__(self, server: Server, shards: int) -> None:
        self._server = server
        self.prefixes = keys.shard_prefixes(shards)
        self._bins = Bins(server, shards)

    async def host_names(self, shard: int, host_ids: Sequence[str]) -> list[str]:
        """What the hosts are called; one round trip."""
        return [host.name if host else "" for host in await self._bins.some_hosts(shard, host_ids)]

    async def promote(self, shard: int, pages: list[tuple[str, int]]) -> int:
        """Let these pages be served next, whatever they are worth; how many waited."""
        calls = [(pack(pages[at : at + PAGES_PER_CALL]), at) for at in range(0, len(pages), PAGES_PER_CALL)]
        replies = await self._server.call_many("promote", [self.prefixes[shard]], calls)
        return sum(int(reply[1]) for reply in replies)

    async def status(self, *, partly: bool = False) -> list[ShardStatus]:
        """Counts of every shard; one round trip. Partly: none of shards that cannot be asked."""
        pipeline = self._server.pipeline()
        for prefix in self.prefixes:
            pipeline.execute_command("HMGET", keys.meta(prefix), *_STATUS)
            pipeline.execute_command("ZCARD", keys.leases(prefix))
            pipeline.execute_command("ZCARD", keys.parked(prefix))
        found = await self._server.run(pipeline, partly=partly)
        unknown: list[bytes | None] = [None] * len(_STATUS)
        shards = zip(found[::3], found[1::3], found[2::3], strict=True)
        return [_status(row or unknown, leases, parked) for row, leases, parked in shards]

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
        (host,) = await self._bins.some_hosts(shard, [host_id])
        if host is None:
            return None
        rests_until = host.rest_until_ms / 1000
        return Host(
            pages=host.pages,
            min_delay_s=default_delay_s if host.delay_ms is None else host.delay_ms / 1000,
            max_crawls_per_second=1000 / host.gap_ms if host.gap_ms > 0 else None,
            paused_until=host.paused_until_ms / 1000 or None,
            rests_until=rests_until if rests_until > now_at else None,
            price=host.price or None,
        )

    async def list_host(self, shard: int, host_id: str, first: int) -> tuple[list[Listed], int | None] | None:
        """Pages of the host's bins from `first` on, and the bin to go on with."""
        (host,) = await self._bins.some_hosts(shard, [host_id])
        if host is None:
            return None
        numbers = range(first, min(host.bins, first + BINS_PER_LIST))
        read = await self._bins.read(shard, [(host_id, number, 0, 0.0) for number in numbers])
        following = first + BINS_PER_LIST
        return await self._with_dues(shard, read), following if following < host.bins else None

    async def _with_dues(self, shard: int, bins: Sequence[Bin]) -> list[Listed]:
        pipeline, filled = self._server.pipeline(), [page_bin for page_bin in bins if page_bin.names]
        for page_bin in filled:
            key = keys.dues(self.prefixes[shard], page_bin.host_id, page_bin.number)
            pipeline.execute_command("ZMSCORE", key, *page_bin.names)
        found = zip(filled, await self._server.run(pipeline) if filled else [], strict=True)
        pages = [page for page_bin, scores in found for page in zip(page_bin.records, scores, strict=True)]
        return [(raw, None if score is None else float(score)) for raw, score in pages]

    async def samples(self) -> list[bytes]:
        """What the last sweep of each shard drew, of those where it found pages; one round trip."""
        pipeline = self._server.pipeline()
        for prefix in self.prefixes:
            pipeline.execute_command("GET", keys.sample(prefix))
        return [raw for raw in await self._server.run(pipeline) if raw and len(raw) > SAMPLE_HEAD]

    async def parked_counts(self) -> list[int]:
        """How many pages of each shard were given up; one round trip."""
        pipeline = self._server.pipeline()
        for prefix in self.prefixes:
            pipeline.execute_command("ZCARD", keys.parked(prefix))
        return [int(count) for count in await self._server.run(pipeline)]

    async def scan_parked(self, shard: int, scan: int) -> tuple[list[tuple[str, int]], int]:
        """Host and page ids of some pages that were given up, and where to go on; 0 at the end."""
        found = await self._server.execute("ZSCAN", keys.parked(self.prefixes[shard]), scan, "COUNT", SCANNED)
        members = [member.decode().split(":") for member, _ in found[1]]
        return [(host_id, int(page_id)) for host_id, page_id in members], int(found[0])

    async def memory_bytes(self) -> int:
        """Memory the servers use."""
        return sum(int(info["used_memory"]) for info in await self._server.everywhere("INFO", "memory"))

    async def probe(self) -> None:
        """Run a script on every shard and the control hash; StoreUnavailable if one does not answer."""
        places = (keys.CONTROL, *self.prefixes)
        await self._server.call_shards("probe", [([place], []) for place in places])


def _status(row: list[bytes | None], leases: int | None, parked: int | None) -> ShardStatus:
    pages, priced_at, learned_at, fresh, weight = row
    return ShardStatus(
        pages=int(pages or 0),
        leases=int(leases or 0),
        parked=int(parked or 0),
        priced_at=float(priced_at) if priced_at else None,
        learned_at=float(learned_at) if learned_at else None,
        fresh_weight=float(fresh or 0),
        weight=float(weight or 0),
    )
