"""State that concerns all shards: bandwidth, price, policy, source numbers and delays."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from service.clock import Clock
from service.domain import Bandwidth, Policy, Price
from service.errors import InvalidSetting, VersionMoved
from service.store.connection import Server
from service.store.keys import CONTROL
from service.store.wire import pairs

LAYOUT = 7  # of records and keys; a release that means others by them must not touch them
# As well: in 5 pages never crawled had an anchor, and no host took turns; up to 6 leases stood in records.
READABLE = (5, 6)
DEFAULT_SLACK = 0.1  # before any worker has aimed it
FEW_PICKS = 8  # that an opening price is worth, in served values
DELAYS = f"{CONTROL}:delays"
DELAYS_AGE_S = 1.0  # how soon a new delay of a source is obeyed


class Control:
    """The control hash and what hangs on it."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._sources: dict[str, int] = {}
        self._delays: tuple[float, dict[str, float]] | None = None

    async def claim_shards(self, shards: int) -> None:
        """Fix the number of shards at the first start; InvalidSetting if it differs later."""
        known, layout = await self._server.execute("HMGET", CONTROL, "shards", "layout")
        if known is None:  # the layout first: a store with shards but without one is of an earlier release
            self._sources.clear()
            await self._server.execute("HSETNX", CONTROL, "layout", LAYOUT)
            await self._server.execute("HSETNX", CONTROL, "shards", shards)
            known, layout = await self._server.execute("HMGET", CONTROL, "shards", "layout")
        if int(known) != shards:
            raise InvalidSetting(f"this store was made with FRESHET_SHARDS={int(known)}, not {shards}")
        if int(layout or 1) not in (*READABLE, LAYOUT):
            raise InvalidSetting("this store was made by another release of Freshet")
        if int(layout) != LAYOUT:
            await self._server.execute("HSET", CONTROL, "layout", LAYOUT)

    async def bandwidth(self) -> Bandwidth:
        rate, version = await self._server.execute("HMGET", CONTROL, "rate", "version")
        return Bandwidth(float(rate or 0), int(version or 0))

    async def set_bandwidth(
        self,
        crawls_per_second: float,
        *,
        expected: int | None = None,
        only_first: bool = False,
        actor: str = "",
    ) -> Bandwidth:
        """Turn the dial; VersionMoved if `expected` is no longer the version. One round trip."""
        args = (
            await self._clock.argument(),
            repr(float(crawls_per_second)),
            "" if expected is None else expected,
            "1" if only_first else "",
            actor,
        )
        word, rate, version = await self._server.call("set_bandwidth", [CONTROL], args)
        if word == b"moved":
            raise VersionMoved(f"the version is now {int(version)}")
        return Bandwidth(float(rate), int(version))

    async def price(self) -> Price:
        fields = ("price", "slack", "lift", "priced")
        served, slack, lift, of = await self._server.execute("HMGET", CONTROL, *fields)
        return Price(
            served=float(served or 0),
            slack=DEFAULT_SLACK if slack is None else float(slack),
            lift=1.0 if lift is None else float(lift),
            of=Policy().value_name if of is None else of.decode(),
        )

    async def open_price(self, served: float, of: str) -> Price:
        """Begin a new price, of another value than before; what is served next moves it soon."""
        fields = ("price", repr(served), "picks", FEW_PICKS, "priced", of)
        await self._server.execute("HSET", CONTROL, *fields)
        return Price(served, DEFAULT_SLACK, of=of)

    async def policy(self) -> Policy:
        """What the operator chose of the policy; one round trip."""
        fields = ("explore", "floor", "policy", "objective", "policy_version")
        return _policy(*await self._server.execute("HMGET", CONTROL, *fields))

    async def set_policy(
        self,
        *,
        policy: str | None = None,
        objective: str | None = None,
        explore: float | None = None,
        min_crawls_per_day: float | None = None,
        expected: int | None = None,
        actor: str = "",
    ) -> Policy:
        """Change what is given; VersionMoved if `expected` is no longer the version. One round trip."""
        args: list[str | int] = [await self._clock.argument(), actor, "" if expected is None else expected]
        for field, value in (("explore", explore), ("floor", min_crawls_per_day)):
            if value is not None:
                args += [field, repr(float(value))]
        for field, name in (("policy", policy), ("objective", objective)):
            if name is not None:
                args += [field, name]
        word, *stored = await self._server.call("set_policy", [CONTROL], args)
        if word == b"moved":
            raise VersionMoved(f"the version is now {int(stored[4])}")
        return _policy(*stored)

    async def granted(self) -> int:
        """Pages handed out since the store was made."""
        return int(await self._server.execute("HGET", CONTROL, "granted") or 0)

    async def aim(self, *, slack: float, lift: float) -> None:
        """How far below the price pages are made ready, and around what they are compared.

        Workers aim it, the next sweeps obey.
        """
        await self._server.execute("HSET", CONTROL, "slack", f"{slack:.6f}", "lift", f"{lift:.6f}")

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
        return {int(number): name.decode() for name, number in pairs(stored)}

    async def source_delays(self) -> dict[str, float]:
        """By source: seconds after a crawl in which its signals are late, where it has a delay of its own.

        Asks the store once a second at most.
        """
        now = asyncio.get_running_loop().time()
        if self._delays is None or now - self._delays[0] > DELAYS_AGE_S:
            stored = await self._server.execute("HGETALL", DELAYS)
            self._delays = (now, {name.decode(): float(ms) / 1000 for name, ms in pairs(stored)})
        return self._delays[1]

    async def set_source_delay(self, source: str, delay_s: float | None, *, actor: str = "") -> None:
        """Give a source a delay of its own, or with None take it back."""
        delay = "" if delay_s is None else f"{delay_s * 1000:.3f}"
        args = (await self._clock.argument(), actor, source, delay)
        await self._server.call("set_delay", [CONTROL], args)
        self._delays = None


def _policy(
    explore: bytes | None,
    floor: bytes | None,
    policy: bytes | None,
    objective: bytes | None,
    version: bytes | None,
) -> Policy:
    chosen = Policy(version=int(version or 0))
    return replace(
        chosen,
        policy=policy.decode() if policy else chosen.policy,
        objective=objective.decode() if objective else chosen.objective,
        explore=float(explore) if explore else chosen.explore,
        min_crawls_per_day=float(floor) if floor else chosen.min_crawls_per_day,
    )
