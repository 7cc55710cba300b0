"""What is known of the sweeps over each shard: when, by which value, and what they saw."""

from __future__ import annotations

from service.store import keys
from service.store.bins import Bins
from service.store.connection import Server
from service.store.records import pack_sample


class Sweeps:
    """The notes workers leave each other, and operators, in the shards' own hashes."""

    def __init__(self, server: Server, shards: int) -> None:
        self._server = server
        self._prefixes = keys.shard_prefixes(shards)
        self._bins = Bins(server, shards)

    async def ranked_by(self, shard: int) -> str | None:
        """Which value the shard's last sweep ranked its pages by."""
        name = await self._server.execute("HGET", keys.meta(self._prefixes[shard]), "ranked_by")
        return name.decode() if name else None

    async def forget_host_prices(self, shard: int) -> None:
        """What hosts were served at, which says nothing once pages have another value."""
        async for hosts in self._bins.hosts(shard):
            priced = [host_id for host_id, host in hosts.items() if host.price > 0]
            if priced:
                await self._server.call("unprice", [self._prefixes[shard]], priced)

    async def keep(self, shard: int, sweep: bytes) -> None:
        """Keep how far a sweep has got, for whoever goes on with it."""
        await self._server.call("cursor", [self._prefixes[shard]], [sweep])

    async def begun(self, shard: int) -> bytes | None:
        """How far an unfinished sweep had got; None if there is none that can be gone on with."""
        word, *kept = await self._server.call("cursor", [self._prefixes[shard]], [""])
        return bytes(kept[0]) if word == b"begun" else None

    async def finish(
        self,
        shard: int,
        *,
        swept_at: float,
        ranked_by: str,
        fresh_weight: float,
        weight: float,
        top: bytes,
        sample: tuple[int, bytes],
    ) -> None:
        """Note when the prices of this shard's sweep were read, what freshness and values it saw, and the
        models of some of its pages, which stand for so many.
        """
        seen = ("fresh", repr(fresh_weight), "weight", repr(weight), "top", top, "ranked_by", ranked_by)
        meta, pipeline = keys.meta(self._prefixes[shard]), self._server.pipeline()
        pipeline.execute_command("HSET", meta, "priced_at", f"{swept_at:.3f}", *seen)
        pipeline.execute_command("HDEL", meta, "sweeping", "sweep")  # an earlier release's
        pipeline.execute_command("SET", keys.sample(self._prefixes[shard]), pack_sample(*sample))
        await self._server.run(pipeline)

    async def top_values(self, ranked_by: str) -> list[bytes]:
        """The largest values of this name each shard's last sweep saw, packed; one round trip."""
        pipeline = self._server.pipeline()
        for prefix in self._prefixes:
            pipeline.execute_command("HMGET", keys.meta(prefix), "top", "ranked_by")
        found = [row for row in await self._server.run(pipeline, partly=True) if row]
        return [top for top, name in found if top and name == ranked_by.encode()]

    async def confirm_price(self, shard: int, *, checked_at: float) -> None:
        """Note that the prices this shard is ranked by still hold."""
        await self._server.execute("HSET", keys.meta(self._prefixes[shard]), "priced_at", f"{checked_at:.3f}")
