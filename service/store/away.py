"""Shards of a cluster that do not answer, as one process knows them.

A server that is silent costs whoever asks it the whole deadline. So nobody asks these shards for pages: they
are asked beside, again and again, until they answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from service.errors import StoreUnavailable
from service.store.connection import Server

ASK_AGAIN_S = 0.2
log = logging.getLogger("freshet.store")


class Away:
    """By shard, why it is away."""

    def __init__(self, server: Server, prefixes: Sequence[str]) -> None:
        self._server = server
        self._prefixes = prefixes
        self._asking: asyncio.Task[None] | None = None
        self.shards: dict[int, str] = {}

    def add(self, shard: int, error: str) -> None:
        """This shard does not answer."""
        if shard not in self.shards:
            log.warning("shard_away", extra={"shard": shard, "error": error})
        self.shards[shard] = error
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_again())

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask_again(self) -> None:
        while self.shards:
            await asyncio.sleep(ASK_AGAIN_S)
            asked = list(self.shards)
            calls = [([self._prefixes[shard]], ()) for shard in asked]
            try:
                replies = await self._server.call_each("probe", calls)
            except StoreUnavailable:  # or nobody would ask these shards any more
                continue
            for shard, reply in zip(asked, replies, strict=True):
                if not isinstance(reply, Exception):
                    del self.shards[shard]
                    log.info("shard_back", extra={"shard": shard})
