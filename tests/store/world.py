"""A frontier on a store of its own with a clock that stands still, and the short verbs of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from service.address import Address, parse_url, shard_of
from service.clock import ManualClock
from service.domain import Belief, Lease, LeaseKey, NewOutcome, NewPage, NewRequests, NewSignal, Nothing
from service.frontier import Frontier
from service.settings import Settings
from service.store import keys
from service.store.connection import Server
from service.store.hosts import read_stored_host
from service.store.keys import shard_prefixes
from service.store.pages import PageState
from service.store.records import Record, read_record
from service.store.rows import lease_from

SHARDS = 4
DEFAULTS: dict[str, Any] = {
    "shards": SHARDS,
    "min_delay_s": 0.0,
    "lookahead_s": 0.0,
    "ahead_s": 0.0,  # its clock stands still while leases would grow old
    "lease_s": 60.0,
}


class World:
    """One process as the store sees it."""

    def __init__(self, url: str, clock: ManualClock, **settings: Any) -> None:
        self.settings = Settings(redis_url=url, **{**DEFAULTS, **settings})
        self.server = Server(url)
        self.clock = clock
        self.frontier = Frontier(self.server, clock, self.settings)
        self.prefixes = shard_prefixes(self.settings.shards)

    async def close(self) -> None:
        await self.frontier.close()
        await self.server.close()

    async def bandwidth(self, crawls_per_second: float) -> None:
        await self.frontier.set_bandwidth(crawls_per_second, None)

    async def put(
        self, *urls: str | Address, fixed: bool | None = None, floor: float | None = None, **belief: float
    ) -> list[str]:
        pages = [NewPage(_address(url), Belief(**belief), fixed, floor) for url in urls]
        return await self.frontier.put_pages(pages)

    async def delete(self, *urls: str | Address) -> list[str]:
        return await self.frontier.delete_pages([_address(url) for url in urls])

    async def ask(self, n: int = 1, request_id: str = "") -> list[Lease] | Nothing:
        answer = await self.frontier.next(request_id, n, 0.0)
        return answer if isinstance(answer, Nothing) else [lease_from(row) for row in answer]

    async def next(self, n: int = 1, request_id: str = "") -> list[Lease]:
        answer = await self.ask(n, request_id)
        return [] if isinstance(answer, Nothing) else answer

    async def put_due(self, *urls: str) -> None:
        """Pages that were crawled at different times, and are all due."""
        await self.put(*urls, change_rate_per_day=1.0)
        now_at = self.clock.now_at
        crawls = [outcome(url=url, fetched_at=now_at - at * 701 % 1000) for at, url in enumerate(urls)]
        assert set(await self.frontier.record_outcomes(crawls)) == {"accepted"}
        self.advance(86400 * 30)

    async def lease(self) -> Lease:
        """Exactly one page, or the test fails."""
        (lease,) = await self.next()
        return lease

    async def why(self) -> Nothing:
        """The reason why there is no page."""
        answer = await self.ask()
        assert isinstance(answer, Nothing), f"got {answer}"
        return answer

    async def report(self, lease: Lease | str, kind: str = "ok", **fields: Any) -> str:
        text = lease if isinstance(lease, str) else lease.lease
        (word,) = await self.frontier.record_outcomes([outcome(text, kind, **fields)])
        return word

    async def crawl(self, **fields: Any) -> Lease:
        """Lease one page and report it as fetched."""
        lease = await self.lease()
        assert await self.report(lease, **fields) == "accepted"
        return lease

    async def signal(
        self,
        url: str | Address,
        *,
        source: str = "api",
        at: float | None = None,
        id: str = "",
        sender: str = "",
    ) -> str:
        dedupe = blake2b(f"{source}{id}{url}".encode(), digest_size=8).digest() if id else b""
        (word,) = await self.frontier.record_signals([NewSignal(_address(url), source, at, dedupe, sender)])
        return word

    async def request(self, *counts: tuple[str | Address, int], id: str) -> list[str]:
        """Readers' requests per page, as one batch."""
        batch = blake2b(id.encode(), digest_size=8).digest()
        requests = [NewRequests(_address(url), count) for url, count in counts]
        return await self.frontier.record_requests(requests, batch)

    async def requests_of(self, url: str | Address) -> bytes | None:
        """What is kept of a page's requests."""
        address = _address(url)
        prefix = self.prefix_of(url)
        raw_host = await self.server.execute("HGET", keys.hosts(prefix), address.host_id)
        for number in range(read_stored_host(raw_host).bins if raw_host else 0):
            key = keys.requests(prefix, address.host_id, number)
            raw: bytes | None = await self.server.execute("HGET", key, address.page_id)
            if raw is not None:
                return raw
        return None

    async def release(self, lease: Lease) -> str:
        (word,) = await self.frontier.release([key_of(lease)])
        return word

    async def extend(self, lease: Lease, seconds: float) -> str:
        (word,) = await self.frontier.extend([key_of(lease)], seconds)
        return word

    async def host(self, host: str, **changes: float) -> None:
        await self.frontier.set_host(parse_url(f"http://{host}/"), changes)

    async def state(self, url: str | Address) -> PageState:
        state = await self.frontier.inspect(_address(url))
        assert state is not None, f"{url} is unknown"
        return state

    async def record(self, url: str | Address) -> Record:
        return read_record((await self.state(url)).record)

    async def keys(self) -> set[str]:
        return {key.decode() for found in await self.server.everywhere("KEYS", "f:*") for key in found}

    def prefix_of(self, url: str | Address) -> str:
        return self.prefixes[shard_of(_address(url).host_id, self.settings.shards)]

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


def key_of(lease: Lease | str) -> LeaseKey:
    key = LeaseKey.parse(lease if isinstance(lease, str) else lease.lease)
    assert key is not None
    return key


def outcome(
    lease: str | None = None,
    kind: str = "ok",
    *,
    url: str | Address | None = None,
    fetched_at: float | None = None,
    changed: bool | None = True,
    digest: bytes = b"",
    etag: str = "",
    modified: int = 0,
    retry_after_s: float = 0.0,
) -> NewOutcome:
    return NewOutcome(
        lease=None if lease is None else key_of(lease),
        address=None if url is None else _address(url),
        fetched_at=fetched_at,
        kind=kind,
        changed=changed,
        digest=digest,
        etag=etag,
        modified=modified,
        retry_after_s=retry_after_s,
    )


def urls_of(count: int, host: str = "one.example") -> list[str]:
    return [f"https://{host}/{at}" for at in range(count)]


def hosts_of(count: int) -> list[str]:
    """One page on each of so many hosts."""
    return [f"https://h{at}.example/" for at in range(count)]


def colliding(*urls: str) -> list[Address]:
    """Addresses of one host whose paths are taken to have one hash."""
    first = parse_url(urls[0])
    return [replace(parse_url(url), page_id=first.page_id) for url in urls]


def urls(leases: Sequence[Lease]) -> list[str]:
    return [lease.url for lease in leases]


def _address(url: str | Address) -> Address:
    return parse_url(url) if isinstance(url, str) else url
