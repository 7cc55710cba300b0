"""Which worker does which shard: renewable locks, shared out evenly among the workers that live."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from secrets import token_hex

from service.clock import Clock
from service.store.connection import Server
from service.store.keys import CONTROL, shard_prefixes

GoOn = Callable[[], Awaitable[bool]]  # asked in the middle of long work: may it go on?
OWNED_S = 15.0  # a dead worker's shards are taken over after this long


async def always() -> bool:
    """Where nobody else could take over."""
    return True


class Ownership:
    """The shards this worker owns."""

    def __init__(self, server: Server, clock: Clock, shards: int) -> None:
        self.worker_id = token_hex(8)
        self.owned: set[int] = set()
        self._server = server
        self._clock = clock
        self._prefixes = shard_prefixes(shards)
        self._renewed_at = float("-inf")

    async def renew(self) -> set[int]:
        """Keep what is owned, take what is free up to a fair share, give up what is over it."""
        self._renewed_at = time.monotonic()
        now = await self._clock.argument()
        reply = await self._server.call("enlist", [CONTROL], (now, self.worker_id, OWNED_S * 1000))
        fair = math.ceil(len(self._prefixes) / max(1, int(reply[1])))
        await self._own(sorted(self.owned)[fair:], 0.0)
        await self._own(sorted(self.owned), OWNED_S)
        free = [shard for shard in range(len(self._prefixes)) if shard not in self.owned]
        while free and len(self.owned) < fair:
            some = fair - len(self.owned)
            await self._own(free[:some], OWNED_S)
            free = free[some:]
        return self.owned

    async def keep(self, shard: int) -> bool:
        """Renew one shard in the middle of long work; False if it was lost meanwhile."""
        await self._own([shard], OWNED_S)
        return shard in self.owned

    async def still_owns(self, shard: int) -> bool:
        """Renew everything now and then during long work; False if this shard was lost or given up."""
        if time.monotonic() - self._renewed_at > OWNED_S / 3:
            await self.renew()
        return shard in self.owned

    async def leave(self) -> None:
        """Give everything up, so that others need not wait."""
        await self._own(sorted(self.owned), 0.0)
        now = await self._clock.argument()
        await self._server.call("enlist", [CONTROL], (now, self.worker_id, 0))

    async def _own(self, shards: Sequence[int], duration_s: float) -> None:
        """Take, keep or give up shards; one that cannot be asked is not owned."""
        args = (await self._clock.argument(), self.worker_id, duration_s * 1000)
        replies = await self._server.call_each("own", [([self._prefixes[shard]], args) for shard in shards])
        for shard, reply in zip(shards, replies, strict=True):
            if reply == [b"owned"]:
                self.owned.add(shard)
            else:
                self.owned.discard(shard)
