"""What has been learned: evidence of pages, sums of hosts, and what the shards say to each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from service.store import keys
from service.store.connection import Server
from service.store.shards import Bin, Shards
from service.store.wire import pack, pairs


@dataclass(frozen=True, slots=True)
class HostPages:
    """A host with all its pages: bins, and beside each the evidence and the requests kept of its pages."""

    host_id: str
    sums: bytes
    trust: bytes
    bins: list[Bin]
    evidence: list[dict[int, bytes]]
    requests: list[dict[int, bytes]]

    @property
    def size(self) -> int:
        return sum(len(page_bin.ids) for page_bin in self.bins)


class Learned:
    """Reads what there is to learn from, writes what was learned."""

    def __init__(self, server: Server, shards: int) -> None:
        self._server = server
        self._shards = Shards(server, shards)
        self._prefixes = keys.shard_prefixes(shards)

    async def hosts_with_news(self, shard: int, most: int) -> AsyncIterator[list[HostPages]]:
        """Hosts whose pages have new evidence, in groups of about `most` pages."""
        members = await self._server.execute("SMEMBERS", keys.dirty(self._prefixes[shard]))
        group: list[HostPages] = []
        for host_id in sorted(member.decode() for member in members):
            group.append(await self.read_host(shard, host_id))
            if sum(host.size for host in group) >= most:
                yield group
                group = []
        if group:
            yield group

    async def read_host(self, shard: int, host_id: str) -> HostPages:
        """One host with all its pages; three round trips."""
        prefix = self._prefixes[shard]
        fields = ("bins", "price", "sums", "trust")
        bins, price, sums, trust = await self._server.execute("HMGET", keys.host(prefix, host_id), *fields)
        names = [(host_id, number, float(price or 0)) for number in range(int(bins or 0))]
        pipeline = self._server.pipeline()
        for _, number, _ in names:
            pipeline.execute_command("HGETALL", keys.evidence(prefix, host_id, number))
            pipeline.execute_command("HGETALL", keys.requests(prefix, host_id, number))
        kept = [_by_id(answer) for answer in await self._server.run(pipeline)] if names else []
        read = await self._shards.read_bins(shard, names) if names else []
        return HostPages(host_id, sums or b"", trust or b"", read, kept[::2], kept[1::2])

    async def believe(self, shard: int, host_id: str, sums: bytes, weights: bytes, *, clean: bool) -> None:
        """Keep a host's sums and its sources' weights; `clean` if nothing is new about it any more."""
        args = (host_id, sums, weights, "1" if clean else "")
        await self._server.call("believe", [self._prefixes[shard]], args)

    async def remodel(self, shard: int, page_bin: Bin, pages: Sequence[tuple[int, int, bytes]]) -> int:
        """Write models and rankings of a bin's pages; how many were taken."""
        args = (page_bin.host_id, page_bin.number, pack(list(pages)))
        reply = await self._server.call("remodel", [self._prefixes[shard]], args)
        return int(reply[1])

    async def all_sums(self, shard: int) -> list[bytes]:
        """The sums of every host of a shard that has any."""
        found: list[bytes] = []
        async for host_ids in self._shards.hosts(shard):
            pipeline = self._server.pipeline()
            for host_id in host_ids:
                pipeline.execute_command("HGET", keys.host(self._prefixes[shard], host_id), "sums")
            found += [sums for sums in await self._server.run(pipeline) if sums]
        return found

    async def page(self, shard: int, host_id: str, page_id: int) -> tuple[bytes, bytes]:
        """The evidence of one page and the sums of its host ('' where there is none); two round trips."""
        prefix = self._prefixes[shard]
        bins, sums = await self._server.execute("HMGET", keys.host(prefix, host_id), "bins", "sums")
        key = keys.evidence(prefix, host_id, keys.bin_of(page_id, int(bins or 1)))
        return await self._server.execute("HGET", key, page_id) or b"", sums or b""

    async def say(self, shard: int, said: bytes, figures: dict[int, list[float]]) -> None:
        """Tell the other shards what this one's hosts have in common, and operators of its sources."""
        prefix = self._prefixes[shard]
        pipeline = self._server.pipeline()
        pipeline.execute_command("HSET", keys.meta(prefix), "said", said)
        for number, row in figures.items():
            pipeline.execute_command("HSET", keys.sources(prefix), number, pack(row))
        await self._server.run(pipeline)

    async def said(self) -> list[bytes]:
        """What every shard has said; one round trip."""
        pipeline = self._server.pipeline()
        for prefix in self._prefixes:
            pipeline.execute_command("HGET", keys.meta(prefix), "said")
        return [raw for raw in await self._server.run(pipeline) if raw]


def _by_id(answer: Any) -> dict[int, bytes]:
    return {int(page_id): raw for page_id, raw in pairs(answer)}
