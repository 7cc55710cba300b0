"""A long random walk over every verb, checked against a model and audited on the way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from service.address import parse_url
from service.domain import Lease
from service.store.rows import lease_from
from tests.store.audit import audit
from tests.store.conftest import MakeWorld
from tests.store.pace import Pace
from tests.store.test_reprice import bins_of, reprice
from tests.store.world import SHARDS, World, key_of, outcome

HOSTS = ("a.example", "b.example", "c.example")
OPERATIONS = 2000
LEASE_S, REST_S = 20.0, 0.5


@dataclass
class Known:
    """What a reader of the contract knows of one page."""

    newest: Lease | None = None  # the lease whose token is the newest
    settled: dict[str, str] = field(default_factory=dict)  # lease: the outcome that was accepted
    voided: bool = False  # released: the newest token is worth nothing


class Walk:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.generator = random.Random(seed)
        self.pages: dict[str, Known] = {}
        self.leases: list[Lease] = []
        self.tokens: dict[str, int] = {}
        self.last_start: dict[str, float] = {}
        self.pace = Pace()
        self.urls = [f"https://{host}/{at}" for host in HOSTS for at in range(10)]
        self.bulk = [f"https://{HOSTS[0]}/bulk/{at}" for at in range(90)]

    async def step(self) -> None:
        verbs = {
            self.serve: 30,
            self.serve_nobody: 5,
            self.report: 25,
            self.signal: 12,
            self.request: 4,
            self.add: 6,
            self.remove: 4,
            self.release: 3,
            self.extend: 3,
            self.report_by_url: 3,
            self.turn: 3,
            self.rule: 3,
            self.reprice: 2,
            self.grow: 1,
            self.shrink: 0.3,
        }
        verb = self.generator.choices(list(verbs), list(verbs.values()))[0]
        await verb()
        pause = self.generator.choice([0, 0.05, 0.2, self.generator.expovariate(1)])
        self.world.advance(round(pause, 3))

    def some_url(self) -> str:
        return self.generator.choice(self.urls)

    def some_lease(self) -> Lease | None:
        return self.generator.choice(self.leases[-60:]) if self.leases else None

    async def serve(self) -> None:
        for lease in await self.world.next(self.generator.choice([1, 1, 3])):
            self.last_start[lease.host] = self.check(lease)

    async def serve_nobody(self) -> None:
        """A page is leased ahead, and nobody comes: as if it had not been, but for its slot."""
        (rows,), _, _ = await self.world.frontier._serve([("", 1, False)])
        await self.world.frontier._give_back(rows)
        for row in rows:
            lease = lease_from(row)
            self.check(lease)
            self.pages[lease.url].voided = True

    def check(self, lease: Lease) -> float:
        """Note a page that was leased; the instant from which its host rests."""
        known = self.pages[lease.url]
        token = key_of(lease).token >> 16
        assert token > self.tokens.get(lease.url, 0), "tokens of a page must increase"
        holder = known.newest
        if holder and holder.lease not in known.settled and not known.voided:
            assert self.world.clock.now_at >= holder.lease_expires_at - 0.01, "one holder"
        start = max(self.world.clock.now_at, lease.not_before)
        assert start - self.last_start.get(lease.host, 0) >= REST_S - 1e-3, "politeness"
        self.tokens[lease.url] = token
        known.newest, known.voided = lease, False
        self.leases.append(lease)
        self.pace.grant(lease.not_before)
        return start

    async def report(self) -> None:
        lease = self.some_lease()
        if lease is None:
            return
        kind = self.generator.choice(["ok", "ok", "ok", "ok", "failed", "gone", "busy"])
        changed = self.generator.random() < 0.5
        word = await self.world.report(lease, kind, changed=changed, etag=f'"{len(self.leases)}"')
        said = f"{kind}{changed}" if kind == "ok" else kind
        assert word == self.expected(lease, said), (word, kind, lease)
        if word == "accepted":
            self.pages[lease.url].settled = {lease.lease: said}

    def expected(self, lease: Lease, said: str) -> str:
        known = self.pages.get(lease.url)
        if known is None:
            return "unknown"
        if lease.lease in known.settled:
            return "duplicate" if known.settled[lease.lease] == said else "conflict"
        newest = known.newest is not None and known.newest.lease == lease.lease
        return "accepted" if newest and not known.voided else "stale"

    async def report_by_url(self) -> None:
        url = self.some_url()
        found = outcome(url=url, fetched_at=self.world.clock.now_at)
        (word,) = await self.world.frontier.record_outcomes([found])
        assert word in (("accepted", "duplicate") if url in self.pages else ("unknown",))
        if word == "accepted":
            # What the lease's holder says later is no longer comparable: forget its answers.
            self.pages[url].settled = {}
            self.leases = [lease for lease in self.leases if lease.url != url]
            self.pages[url].voided = True

    async def signal(self) -> None:
        url = self.some_url()
        id_ = str(self.generator.randrange(10**9)) if self.generator.random() < 0.8 else ""
        at = self.world.clock.now_at - self.generator.choice([0, 0, 1, 30])
        word = await self.world.signal(url, id=id_, at=at, source=self.generator.choice("xyz"))
        assert (word == "unknown") == (url not in self.pages)

    async def request(self) -> None:
        urls = [self.some_url(), self.generator.choice(self.bulk)]
        id_ = str(self.generator.randrange(10**9))
        words = await self.world.request(*((url, 3) for url in urls), id=id_)
        assert words == ["accepted" if url in self.pages else "unknown" for url in urls]
        again = await self.world.request(*((url, 3) for url in urls), id=id_)
        assert again == ["duplicate" if url in self.pages else "unknown" for url in urls]

    async def add(self) -> None:
        url = self.some_url()
        word = await self.put(url, importance=self.generator.choice([0.1, 1, 10]))
        if self.generator.random() < 0.3:
            await self.world.put(url, change_rate_per_day=self.generator.choice([0, 0.1, 50]))
        assert word in ("added", "updated")

    async def put(self, *urls: str, **belief: float) -> str:
        words = await self.world.put(*urls, **belief)
        for url, word in zip(urls, words, strict=True):
            assert (word == "added") == (url not in self.pages)
            self.pages.setdefault(url, Known())
        return words[0]

    async def remove(self) -> None:
        await self.drop([self.some_url()])

    async def drop(self, urls: list[str]) -> None:
        words = await self.world.delete(*urls)
        assert words == ["deleted" if url in self.pages else "unknown" for url in urls]
        for url in urls:
            self.pages.pop(url, None)
        for host in HOSTS:  # an emptied host is forgotten, its rest with it
            if not any(parse_url(url).host == host for url in self.pages):
                self.last_start.pop(host, None)

    async def release(self) -> None:
        lease = self.some_lease()
        if lease is None:
            return
        word = await self.world.release(lease)
        expected = self.expected(lease, "released")
        allowed = {"accepted": ("released", "stale"), "unknown": ("unknown",)}
        assert word in allowed.get(expected, ("stale",)), (word, expected)
        if word == "released":
            self.pages[lease.url].voided = True

    async def extend(self) -> None:
        lease = self.some_lease()
        if lease is None:
            return
        word = await self.world.extend(lease, 5)
        if word not in ("stale", "unknown"):
            assert self.expected(lease, "extended") == "accepted"
            self.pages[lease.url].newest = Lease(
                **{name: getattr(lease, name) for name in Lease.__slots__ if name != "lease_expires_at"},
                lease_expires_at=float(word) / 1000,
            )

    async def turn(self) -> None:
        rate = self.generator.choice([0, 1, 5, 5, 20, 20, 100])
        await self.world.bandwidth(rate)
        self.pace.turn(self.world.clock.now_at, rate)

    async def rule(self) -> None:
        """Rules only ever stricter than REST_S, so that one bound holds throughout."""
        host = self.generator.choice(HOSTS)
        now_ms = self.world.clock.now_at * 1000
        rules = [
            {"delay_ms": self.generator.choice([500.0, 1000.0])},
            {"gap_ms": self.generator.choice([0.0, 800.0])},
            {"paused_until": now_ms + self.generator.uniform(0, 5000)},
        ]
        await self.world.host(host, **self.generator.choice(rules))

    async def reprice(self) -> None:
        url = f"https://{self.generator.choice(HOSTS)}/"
        bins = [page_bin for page_bin in await bins_of(self.world, url) if page_bin.names]
        await reprice(self.world, bins, 10 ** self.generator.uniform(-3, 8), url)

    async def grow(self) -> None:
        await self.put(*self.generator.sample(self.bulk, 30))

    async def shrink(self) -> None:
        await self.drop(self.bulk)


@pytest.mark.parametrize("seed", [11, 12, 13])
async def test_a_random_walk_loses_no_page_and_keeps_every_promise(make_world: MakeWorld, seed: int) -> None:
    world = await make_world(bandwidth=None, lease_s=LEASE_S, min_delay_s=REST_S)
    walk = Walk(world, seed)
    await walk.turn()
    await walk.put(*walk.urls[::2])
    for at in range(OPERATIONS):
        await walk.step()
        if at % 20 == 19:
            counts = await audit(world.settings.redis_url, SHARDS)
            assert sum(counts.values()) == len(walk.pages)
    assert walk.pace.granted > 100
    assert walk.pace.worst_excess() <= 2e-3
    await world.delete(*walk.pages)
    counts = await audit(world.settings.redis_url, SHARDS)
    assert sum(counts.values()) == 0
