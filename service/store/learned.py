"""What has been learned: evidence of pages, sums of hosts, and what the shards say to each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from service.store import keys
from service.store.bins import Bin, BinName, Bins
from service.store.connection import Server
from service.store.wire import pack, pairs

BINS_AT_ONCE = 32
PAGES_PER_WRITE = 64  # remodelled by one call, so that no call is long


@dataclass(frozen=True, slots=True)
class HostHead:
    """What there is of a host beside its pages."""

    host_id: str
    bins: int
    price: float
    sums: bytes
    trust: bytes


@dataclass(frozen=True, slots=True)
class HostPages:
    """A host with some of its bins, and beside each the evidence and the requests kept of its pages."""

    host_id: str
    sums: bytes
    trust: bytes
    bins: list[Bin]
    evidence: list[dict[int, bytes]]
    requests: list[dict[int, bytes]]


class Learned:
    """Reads what there is to learn from, writes what was learned."""

    def __init__(self, server: Server, shards: int) -> None:
        self._server = server
        self._bins = Bins(server, shards)
        self._prefixes = keys.shard_prefixes(shards)

    async def hosts_with_news(self, shard: int) -> AsyncIterator[list[HostHead]]:
        """Hosts whose pages have new evidence, some at a time."""
        given: set[str] = set()  # a scan may find a host twice
        async for host_ids in self._bins.dirty_hosts(shard):
            new = [host_id for host_id in host_ids if host_id not in given]
            given.update(new)
            yield await self._heads(shard, new)

    async def note_pass(self, shard: int, at: float) -> None:
        """Note when a worker was through with a shard."""
        await self._server.execute("HSET", keys.meta(self._prefixes[shard]), "learned_at", f"{at:.3f}")

    async def _heads(self, shard: int, host_ids: Sequence[str]) -> list[HostHead]:
        hosts = await self._bins.some_hosts(shard, host_ids)
        pipeline = self._server.pipeline()
        for host_id in host_ids:
            pipeline.execute_command("HMGET", keys.host(self._prefixes[shard], host_id), "sums", "trust")
        rows = zip(host_ids, hosts, await self._server.run(pipeline), strict=True)
        return [
            HostHead(host_id, host.bins, host.price, sums or b"", trust or b"")
            if host
            else HostHead(host_id, 0, 0.0, b"", b"")
            for host_id, host, (sums, trust) in rows
        ]

    async def read(self, shard: int, hosts: Sequence[HostHead], bins: range | None = None) -> list[HostPages]:
        """Hosts with all their pages, or with those of some bins; two round trips for every so many bins."""
        names = [(h.host_id, number, 0, h.price) for h in hosts for number in (bins or range(h.bins))]
        found: dict[str, list[tuple[Bin, dict[int, bytes], dict[int, bytes]]]] = defaultdict(list)
        for at in range(0, len(names), BINS_AT_ONCE):
            for row in await self._read_bins(shard, names[at : at + BINS_AT_ONCE]):
                found[row[0].host_id].append(row)
        return [HostPages(h.host_id, h.sums, h.trust, *_columns(found[h.host_id])) for h in hosts]

    async def evidence(self, shard: int, host: HostHead) -> AsyncIterator[list[bytes]]:
        """All evidence kept of a host's pages, some at a time."""
        prefix = self._prefixes[shard]
        for begin in range(0, host.bins, BINS_AT_ONCE):
            pipeline = self._server.pipeline()
            for number in range(begin, min(begin + BINS_AT_ONCE, host.bins)):
                pipeline.execute_command("HGETALL", keys.evidence(prefix, host.host_id, number))
            yield [raw for kept in await self._server.run(pipeline) for _, raw in pairs(kept)]

    async def _read_bins(
        self, shard: int, names: Sequence[BinName]
    ) -> list[tuple[Bin, dict[int, bytes], dict[int, bytes]]]:
        """Bins with the evidence and the requests kept of their pages."""
        prefix, pipeline = self._prefixes[shard], self._server.pipeline()
        for host_id, number, *_ in names:
            pipeline.execute_command("HGETALL", keys.evidence(prefix, host_id, number))
            pipeline.execute_command("HGETALL", keys.requests(prefix, host_id, number))
        kept = [_by_id(answer) for answer in await self._server.run(pipeline)]
        bins = await self._bins.read(shard, names)
        return list(zip(bins, kept[::2], kept[1::2], strict=True))

    async def believe(self, shard: int, hosts: Sequence[tuple[str, bytes, bytes, bool]]) -> None:
        """Keep hosts' sums and their sources' weights; `True` if nothing is new about a host any more."""
        calls = [(host_id, sums, weights, "1" if clean else "") for host_id, sums, weights, clean in hosts]
        await self._server.call_many("believe", [self._prefixes[shard]], calls)

    async def remodel(self, shard: int, bins: Sequence[tuple[Bin, list[tuple[int, int, bytes]]]]) -> int:
        """Write models and rankings of bins' pages, some per call; how many were taken."""
        taken = 0
        for page_bin, pages in bins:
            for at in range(0, len(pages), PAGES_PER_WRITE):
                args = (page_bin.host_id, page_bin.number, pack(pages[at : at + PAGES_PER_WRITE]))
                taken += int((await self._server.call("remodel", [self._prefixes[shard]], args))[1])
        return taken

    async def all_sums(self, shard: int) -> list[bytes]:
        """The sums of every host of a shard that has any."""
        found: list[bytes] = []
        async for hosts in self._bins.hosts(shard):
            pipeline = self._server.pipeline()
            for host_id in hosts:
                pipeline.execute_command("HGET", keys.host(self._prefixes[shard], host_id), "sums")
            found += [sums for sums in await self._server.run(pipeline) if sums]
        return found

    async def page(self, shard: int, host_id: str, page_id: int) -> tuple[bytes, bytes]:
        """The evidence of one page and the sums of its host ('' where there is none); two round trips."""
        prefix = self._prefixes[shard]
        (host,) = await self._bins.some_hosts(shard, [host_id])
        key = keys.evidence(prefix, host_id, keys.bin_of(page_id, host.bins if host else 1))
        pipeline = self._server.pipeline()
        pipeline.execute_command("HGET", key, page_id)
        pipeline.execute_command("HGET", keys.host(prefix, host_id), "sums")
        evidence, sums = await self._server.run(pipeline)
        return evidence or b"", sums or b""

    async def say(self, shard: int, said: bytes, figures: dict[int, list[float]]) -> None:
        """Tell the other shards what this one's hosts have in common, and operators of its sources."""
        prefix = self._prefixes[shard]
        pipeline = self._server.pipeline()
        pipeline.execute_command("HSET", keys.meta(prefix), "said", said)
        for number, row in figures.items():
            pipeline.execute_command("HSET", keys.sources(prefix), number, pack(row))
        await self._server.run(pipeline)

    async def said(self) -> list[bytes]:
        """What every shard that can be asked has said; one round trip."""
        pipeline = self._server.pipeline()
        for prefix in self._prefixes:
            pipeline.execute_command("HGET", keys.meta(prefix), "said")
        return [raw for raw in await self._server.run(pipeline, partly=True) if raw]


def _by_id(answer: Any) -> dict[int, bytes]:
    return {int(page_id): raw for page_id, raw in pairs(answer)}


def _columns(
    rows: list[tuple[Bin, dict[int, bytes], dict[int, bytes]]],
) -> tuple[list[Bin], list[dict[int, bytes]], list[dict[int, bytes]]]:
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
