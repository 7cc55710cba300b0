"""The bins of a shard's hosts as workers walk over them: records and anchors to read, rankings to write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.store import keys
from service.store.connection import Server
from service.store.hosts import StoredHost, read_extent, read_stored_host
from service.store.pipe import Argument
from service.store.records import CRAWLED, LEASED, RANKING
from service.store.wire import pairs

HOSTS_AT_ONCE = 200  # found by one step of a scan
BINS_AT_ONCE = 64  # read in one round trip, in less than a millisecond
PAGES_AT_ONCE = 4096  # given to a worker together: few, so that it reads, ranks and writes side by side
PAGES_PER_WRITE = 64  # re-ranked by one call, so that it takes less than a millisecond
WRITES_AT_ONCE = 2  # the server has the next call when it is done with one


@dataclass(frozen=True, slots=True)
class Bin:
    """The pages of one bin of a host: ids as the store writes them and raw records in one order.

    The anchor of a crawled page is its last crawl, unless it had signals since: those anchors stand in
    `anchors_ms`, with the page's place in that order.
    """

    host_id: str
    number: int
    host_rests_until_ms: int
    host_price: float
    names: list[bytes]
    records: list[bytes]
    anchors_ms: list[tuple[int, float]]

    @property
    def ids(self) -> list[int]:
        return list(map(int, self.names))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk goes on: at a bin of a host, among the hosts that one step of a scan finds."""

    scan: int = 0
    host_id: str = ""
    number: int = 0


START = Place()
BinName = tuple[str, int, int, float]  # host id, number, until when the host rests in ms, its price
_SIGNALS = slice(73, 75)  # of a record: how many since the last crawl
_NONE = bytes(2)
_SIZES = [bytes([size]) for size in range(11)]  # of a page id as text
Rankings = tuple[list[bytes], bytes, bytes]  # pages by their ids, versions, rankings one after the other


class Bins:
    """The bins of every shard."""

    def __init__(self, server: Server, shards: int) -> None:
        self._server = server
        self._prefixes = keys.shard_prefixes(shards)

    async def hosts(self, shard: int) -> AsyncIterator[dict[str, StoredHost]]:
        """The shard's hosts by their ids, some at a time."""
        async for _, found in self._scan_hosts(shard):
            yield {host_id.decode(): read_stored_host(raw) for host_id, raw in found}

    async def _scan_hosts(
        self, shard: int, begin: int = 0
    ) -> AsyncIterator[tuple[int, list[tuple[bytes, bytes]]]]:
        """The shard's hosts as they are kept, some at a time in order, and where a scan finds them again."""
        cursor, key = begin, keys.hosts(self._prefixes[shard])
        while True:
            following, found = await self._server.execute("HSCAN", key, cursor, "COUNT", HOSTS_AT_ONCE)
            if found:
                yield cursor, sorted(pairs(found))
            cursor = int(following)
            if cursor == 0:
                return

    async def some_hosts(self, shard: int, host_ids: Sequence[str]) -> list[StoredHost | None]:
        """Hosts by their ids, None where there is none; one round trip."""
        if not host_ids:
            return []
        raws = await self._server.execute("HMGET", keys.hosts(self._prefixes[shard]), *host_ids)
        return [read_stored_host(raw) if raw else None for raw in raws]

    async def dirty_hosts(self, shard: int) -> AsyncIterator[list[str]]:
        """Ids of hosts with new evidence, some at a time; one may come twice."""
        cursor, key = 0, keys.dirty(self._prefixes[shard])
        while True:
            following, members = await self._server.execute("SSCAN", key, cursor, "COUNT", HOSTS_AT_ONCE)
            if members:
                yield sorted(member.decode() for member in members)
            cursor = int(following)
            if cursor == 0:
                return

    async def walk(self, shard: int, place: Place = START) -> AsyncIterator[tuple[list[Bin], Place]]:
        """Every bin of the shard that has pages, from a place on: some thousand pages at a time, and the
        place behind them.
        """
        group, size = list[Bin](), 0
        async for scan, names in self._bin_names(shard, place):
            for bin_ in await self.read(shard, names):
                if bin_.names:
                    group.append(bin_)
                    size += len(bin_.names)
            if size >= PAGES_AT_ONCE:
                host_id, number, *_ = names[-1]
                place = Place(scan, host_id, number + 1)
                yield group, place
                group, size = [], 0
        if group:
            yield group, place

    async def _bin_names(self, shard: int, place: Place) -> AsyncIterator[tuple[int, list[BinName]]]:
        """Names of bins from a place on, as many at a time as are read together."""
        begin = (place.host_id, place.number)
        names: list[BinName] = []
        async for scan, hosts in self._scan_hosts(shard, place.scan):
            for raw_id, raw in hosts:
                host_id, (rests_until, price, bins) = raw_id.decode(), read_extent(raw)
                first = begin[1] if host_id == begin[0] else 0
                for number in range(first, bins if host_id >= begin[0] else 0):
                    names.append((host_id, number, rests_until, price))
                    if len(names) == BINS_AT_ONCE:
                        yield scan, names
                        names = []
            begin = ("", 0)
            if names:
                yield scan, names
                names = []

    async def read(self, shard: int, names: Sequence[BinName]) -> list[Bin]:
        """Some bins; one round trip for their records, and one for the anchors and leases that these do not
        tell.
        """
        prefix, pipeline = self._prefixes[shard], self._server.pipeline()
        for host_id, number, *_ in names:
            pipeline.execute_command("HGETALL", keys.records(prefix, host_id, number))
        pipeline.execute_command("HLEN", keys.tokens(prefix))
        *answers, leases = await self._server.run(pipeline)
        bins = [_bin(name, answer) for name, answer in zip(names, answers, strict=True)]
        signalled = [(bin_, places) for bin_ in bins if (places := _signalled(bin_))]
        await self._read_more(prefix, signalled, [bin_ for bin_ in bins if bin_.names and leases])
        return bins

    async def _read_more(
        self, prefix: str, signalled: Sequence[tuple[Bin, list[int]]], leased: Sequence[Bin]
    ) -> None:
        """Note the anchors of the pages at these places of bins, one that is gone by now has none; and which
        pages of bins are on lease.
        """
        if not signalled and not leased:
            return
        pipeline = self._server.pipeline()
        for bin_, places in signalled:
            key = keys.anchors(prefix, bin_.host_id, bin_.number)
            pipeline.execute_command("ZMSCORE", key, *[bin_.names[at] for at in places])
        for bin_ in leased:
            members = [b"%b:%b" % (bin_.host_id.encode(), name) for name in bin_.names]
            pipeline.execute_command("HMGET", keys.tokens(prefix), *members)
        answers = await self._server.run(pipeline)
        for (bin_, places), scores in zip(signalled, answers, strict=False):
            found = zip(places, scores, strict=True)
            bin_.anchors_ms.extend((at, float(score)) for at, score in found if score is not None)
        for bin_, tokens in zip(leased, answers[len(signalled) :], strict=True):
            _note_leases(bin_, tokens)

    async def reprice(self, shard: int, items: Sequence[tuple[Bin, Rankings]]) -> int:
        """Write rankings back, some bins per call; how many were taken.

        Few calls are under way at a time: a server runs all it has received before it listens to others.
        """
        calls: list[list[Argument]] = []
        room = done = 0
        keyed_by = _keyed_by(b"".join([rankings for _, (_, _, rankings) in items]))
        for bin_, (names, versions, rankings) in items:
            for at in range(0, len(names), PAGES_PER_WRITE):
                end = min(at + PAGES_PER_WRITE, len(names))
                if end - at > room:
                    calls.append([])
                    room = PAGES_PER_WRITE
                calls[-1] += (
                    bin_.host_id,
                    bin_.number,
                    _sized(names[at:end]),
                    versions[at:end],
                    rankings[at * RANKING.itemsize : end * RANKING.itemsize],
                    keyed_by[(done + at) * 8 : (done + end) * 8],
                )
                room -= end - at
            done += len(names)
        ways = [self._reprice_each(shard, calls[way::WRITES_AT_ONCE]) for way in range(WRITES_AT_ONCE)]
        return sum(await asyncio.gather(*ways))

    async def _reprice_each(self, shard: int, calls: list[list[Argument]]) -> int:
        replies = [await self._server.call("reprice", [self._prefixes[shard]], call) for call in calls]
        return sum(int(reply[1]) for reply in replies)


def _sized(names: list[bytes]) -> bytes:
    """Page ids as text, with its size before each."""
    return b"".join([_SIZES[len(name)] + name for name in names])


def _keyed_by(rankings: bytes) -> bytes:
    """Intervals and credits of rankings, beside each other."""
    rows = np.frombuffer(rankings, dtype=RANKING)
    return np.stack((rows["interval_s"], rows["credit_s"]), axis=1).tobytes()


def _bin(name: BinName, stored: Any) -> Bin:
    is_paired = isinstance(stored, dict)  # which protocol version shaped the answer
    names, records = (list(stored), list(stored.values())) if is_paired else (stored[::2], stored[1::2])
    if not all(records):  # a removed page left a gap
        names = [page for page, raw in zip(names, records, strict=True) if raw]
        records = [raw for raw in records if raw]
    return Bin(*name, names, records, [])


def _note_leases(bin_: Bin, tokens: Sequence[bytes | None]) -> None:
    """Have the records say of which pages there are leases."""
    for at, token in enumerate(tokens):
        if token is not None:
            record = bin_.records[at]
            bin_.records[at] = bytes([record[0] | LEASED]) + record[1:]


def _signalled(bin_: Bin) -> list[int]:
    """Where in the bin the crawled pages stand that had signals since."""
    return [at for at, raw in enumerate(bin_.records) if raw[_SIGNALS] != _NONE and raw[0] & CRAWLED]
