"""Observations on their way to the workers, and the evidence kept of them per page.

Each shard's outcomes append to a stream; its owner reads them through a consumer group, always under one
name, so that whoever owns the shard next finds what a dead owner had begun.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from service.errors import StoreUnavailable
from service.store import keys
from service.store.connection import Server
from service.store.hosts import read_stored_host
from service.store.wire import pack

GROUP, CONSUMER = "learn", "owner"
_FIXED = struct.Struct("<I6s6sBf")
_HOST_ID_SIZE = 11
PageName = tuple[str, int]  # host id, page id


@dataclass(frozen=True, slots=True)
class Observation:
    """What one crawl showed: as `observe` in `lua/outcomes.lua` packs it."""

    entry: bytes
    page: PageName
    elapsed_s: float
    since_change_s: float  # by the page's own date, changed or not; 0: it gave none
    changed: bool
    predicted_depth: float
    signals: dict[int, int]  # by source number


class Observations:
    """The streams and the evidence of every shard."""

    def __init__(self, server: Server, shards: int) -> None:
        self._server = server
        self._prefixes = keys.shard_prefixes(shards)
        self._grouped: set[int] = set()

    async def read(self, shard: int, most: int, *, begun: bool = True) -> list[Observation]:
        """The oldest observations that were read before but not finished, or else the oldest never read.

        What was begun must be finished first: a page's observations are folded in their order.
        """
        await self._ensure_group(shard)
        command = ("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", most, "STREAMS")
        stream = keys.observed(self._prefixes[shard])
        answer = await self._server.execute(*command, stream, "0" if begun else ">")
        return [_observation(entry, fields) for entry, fields in _entries(answer)]

    async def evidence(
        self, shard: int, pages: Sequence[PageName]
    ) -> tuple[list[bytes], dict[str, bytes], bytes]:
        """The evidence of some pages, the trust in their hosts' sources, the calibration; two round trips."""
        prefix = self._prefixes[shard]
        host_ids = sorted({host_id for host_id, _ in pages})
        if not host_ids:
            calibration = await self._server.execute("HGET", keys.meta(prefix), "calibration")
            return [], {}, calibration or b""
        pipeline = self._server.pipeline()
        for host_id in host_ids:
            pipeline.execute_command("HGET", keys.host(prefix, host_id), "trust")
        pipeline.execute_command("HMGET", keys.hosts(prefix), *host_ids)
        pipeline.execute_command("HGET", keys.meta(prefix), "calibration")
        *found_trusts, raws, calibration = await self._server.run(pipeline)
        host_bins = {
            h: read_stored_host(raw).bins if raw else 1 for h, raw in zip(host_ids, raws, strict=True)
        }
        bins: dict[tuple[str, int], list[PageName]] = defaultdict(list)
        for host_id, page_id in pages:
            number = keys.bin_of(page_id, host_bins[host_id])
            bins[host_id, number].append((host_id, page_id))
        pipeline = self._server.pipeline()
        for (host_id, number), group in bins.items():
            ids = [page_id for _, page_id in group]
            pipeline.execute_command("HMGET", keys.evidence(prefix, host_id, number), *ids)
        found: dict[PageName, bytes] = {}
        for group, raws in zip(bins.values(), await self._server.run(pipeline), strict=True):
            found.update((page, raw or b"") for page, raw in zip(group, raws, strict=True))
        trusts = {h: trust or b"" for h, trust in zip(host_ids, found_trusts, strict=True)}
        return [found[page] for page in pages], trusts, calibration or b""

    async def fold(
        self,
        shard: int,
        entries: Sequence[bytes],
        items: Sequence[tuple[str, int, bytes]],
        *,
        trusts: Sequence[tuple[str, bytes]],
        checked: bytes,
    ) -> bool:
        """Keep what was learned and finish the observations it came from, at once; False if others had."""
        args = (pack(list(entries)), pack(list(items)), checked, pack(list(trusts)))
        reply = await self._server.call("fold", [self._prefixes[shard]], args)
        return bool(reply[0] == b"folded")

    async def calibration(self) -> list[bytes]:
        """What each shard has found of predictions against changes, packed; one round trip."""
        pipeline = self._server.pipeline()
        for prefix in self._prefixes:
            pipeline.execute_command("HGET", keys.meta(prefix), "calibration")
        return [raw or b"" for raw in await self._server.run(pipeline)]

    async def backlog(self) -> int:
        """Observations nobody has learned from yet; one round trip."""
        pipeline = self._server.pipeline()
        for prefix in self._prefixes:
            pipeline.execute_command("XLEN", keys.observed(prefix))
        return sum(map(int, await self._server.run(pipeline)))

    async def _ensure_group(self, shard: int) -> None:
        if shard in self._grouped:
            return
        stream = keys.observed(self._prefixes[shard])
        try:
            await self._server.execute("XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM")
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, ResponseError) or "BUSYGROUP" not in str(error.__cause__):
                raise
        self._grouped.add(shard)


def _entries(answer: Any) -> list[tuple[bytes, Any]]:
    """Entries of the one stream asked for, whichever protocol version shaped the answer."""
    if not answer:
        return []
    streams = answer.values() if isinstance(answer, dict) else [answer[0][1]]
    (entries,) = streams
    if entries and isinstance(entries[0], list) and entries[0] and isinstance(entries[0][0], list | tuple):
        entries = entries[0]
    return [(entry, fields) for entry, fields in entries if fields]


def _observation(entry: bytes, fields: Any) -> Observation:
    raw: bytes = fields[b"o"] if isinstance(fields, dict) else fields[1]
    page_id, elapsed, since, changed, depth = _FIXED.unpack_from(raw)
    rest = raw[_FIXED.size :]
    pairs = rest[_HOST_ID_SIZE:]
    return Observation(
        entry=entry,
        page=(rest[:_HOST_ID_SIZE].decode(), page_id),
        elapsed_s=int.from_bytes(elapsed, "little") / 1000,
        since_change_s=int.from_bytes(since, "little") / 1000,
        changed=bool(changed),
        predicted_depth=depth,
        signals=dict(zip(pairs[::2], pairs[1::2], strict=True)),
    )
