"""State that concerns all shards: bandwidth, price, source numbers."""

from __future__ import annotations

from service.clock import Clock
from service.domain import Bandwidth, Price
from service.errors import InvalidSetting, VersionMoved
from service.store.connection import Server
from service.store.keys import CONTROL

DEFAULT_SLACK = 0.1  # before any worker has aimed it


class Control:
    """The control hash and what hangs on it."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._sources: dict[str, int] = {}

    async def claim_shards(self, shards: int) -> None:
        """Fix the number of shards at the first start; InvalidSetting if it differs later."""
        await self._server.execute("HSETNX", CONTROL, "shards", shards)
        stored = int(await self._server.execute("HGET", CONTROL, "shards"))
        if stored != shards:
            raise InvalidSetting(f"this store was made with FRESHET_SHARDS={stored}, not {shards}")

    async def bandwidth(self) -> Bandwidth:
        rate, version = await self._server.execute("HMGET", CONTROL, "rate", "version")
        return Bandwidth(float(rate or 0), int(version or 0))

    async def set_bandwidth(
        self, crawls_per_second: float, *, expected: int | None = None, only_first: bool = False
    ) -> Bandwidth:
        """Turn the dial; VersionMoved if `expected` is no longer the version. One round trip."""
        args = (
            await self._clock.argument(),
            repr(float(crawls_per_second)),
            "" if expected is None else expected,
            "1" if only_first else "",
        )
        word, rate, version = await self._server.call("set_bandwidth", [CONTROL], args)
        if word == b"moved":
            raise VersionMoved(f"the version is now {int(version)}")
        return Bandwidth(float(rate), int(version))

    async def price(self) -> Price:
        served, slack = await self._server.execute("HMGET", CONTROL, "price", "slack")
        return Price(float(served or 0), DEFAULT_SLACK if slack is None else float(slack))

    async def granted(self) -> int:
        """Pages handed out since the store was made."""
        return int(await self._server.execute("HGET", CONTROL, "granted") or 0)

    async def set_slack(self, slack: float) -> None:
        """How far below the price pages are made ready; workers aim it, the next sweeps obey."""
        await self._server.execute("HSET", CONTROL, "slack", f"{slack:.6f}")

    async def now(self) -> float:
        """The scheduler's clock, epoch seconds."""
        given = await self._clock.argument()
        reply = await self._server.call("now", [CONTROL], [given])
        return float(reply[1]) / 1000

    async def source_numbers(self, names: set[str]) -> dict[str, int]:
        """Numbers of signal sources in the records; asks the store only for new names."""
        unknown = sorted(names - self._sources.keys())
        if unknown:
            numbers = await self._server.call("source", [CONTROL], unknown)
            self._sources.update(zip(unknown, map(int, numbers[1:]), strict=True))
        return {name: self._sources[name] for name in names}

    async def source_names(self) -> dict[int, str]:
        stored = await self._server.execute("HGETALL", f"{CONTROL}:sources")
        pairs = stored.items() if isinstance(stored, dict) else zip(stored[::2], stored[1::2], strict=True)
        return {int(number): name.decode() for name, number in pairs}
