"""Checks the whole store against itself: no page lost, every index exact, nothing left behind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import redis.asyncio as redis_asyncio

from service.store.hosts import StoredHost, read_stored_host
from service.store.keys import CONTROL, shard_prefixes
from service.store.records import CRAWLED, HELD, LEASED, PARKED, read_heads

NEVER_CRAWLED, PROMOTED, NEW_PAGES, DORMANT = -4e15, -2e15, -1e15, 4e15


async def audit(url: str, shards: int) -> dict[str, int]:
    """Raises AssertionError with every contradiction found; returns how many pages are in which state."""
    async with _connected(url) as client:
        stores = [await _read(client, prefix) for prefix in shard_prefixes(shards)]
        clocks = [await client.hmget(CONTROL, "raw", "offset")]
    metas = [store.get("meta", {}) for store in stores]
    clocks += [(meta.get(b"raw"), meta.get(b"offset")) for meta in metas]
    now = max(float(raw or 0) + float(offset or 0) for raw, offset in clocks)
    faults: list[str] = []
    counts = dict.fromkeys(("waiting", "leased", "held", "parked"), 0)
    for store in stores:
        faults += _ShardAudit(store, counts, now).faults()
    assert not faults, "\n".join(faults)
    return counts


def _connected(url: str) -> Any:
    """The library's own client, for one server or for a cluster: nothing of the service's door."""
    _, _, places = url.partition("+cluster://")
    if not places:
        return redis_asyncio.Redis.from_url(url)
    host, _, port = places.split(",")[0].partition(":")
    return redis_asyncio.RedisCluster(host, int(port))


async def _read(client: Any, prefix: str) -> dict[str, Any]:
    """Everything under a shard's prefix, by the rest of the key's name."""
    names = [raw async for raw in client.scan_iter(match=f"{prefix}:*", count=10_000)]
    kinds = client.pipeline()
    for name in names:
        kinds.type(name)
    values = client.pipeline()
    for name, kind in zip(names, await kinds.execute(), strict=True):
        if kind == b"hash":
            values.hgetall(name)
        elif kind == b"zset":
            values.zrange(name, 0, -1, withscores=True)
        elif kind == b"set":
            values.smembers(name)
        else:
            values.exists(name)
    found = zip(names, await values.execute(), strict=True)
    return {name.decode()[len(prefix) + 1 :]: _plain(value) for name, value in found}


def _plain(value: Any) -> Any:
    """Sets and sorted sets with text members; hashes as they are."""
    if isinstance(value, list):
        return {member.decode(): float(score) for member, score in value}
    if isinstance(value, set):
        return {member.decode(errors="backslashreplace") for member in value}
    return value


class _ShardAudit:
    def __init__(self, store: dict[str, Any], counts: dict[str, int], now: float) -> None:
        self.store = store
        self.counts = counts
        self.now = now  # the latest instant anything was done at: a shard that gives no page keeps none
        self.meta = {k.decode(): v.decode(errors="replace") for k, v in store.get("meta", {}).items()}
        self.leases: dict[str, float] = store.get("leases", {})
        self.held: dict[str, float] = store.get("held", {})
        self.resting: dict[str, float] = store.get("resting", {})
        self.parked: dict[str, float] = store.get("parked", {})
        self.tokens = {member.decode() for member in store.get("tokens", {})}
        self.known = {"meta", "hosts", "awake", "turns", "resting", "leases", "held", "parked", "late"}
        self.known |= {"probe", "observed", "dirty", "counted", "sources", "sample", "tokens", "audit"}
        self.hosts = {host_id.decode(): raw for host_id, raw in store.get("hosts", {}).items()}
        self.members: set[str] = set()
        self.leased: set[str] = set()
        self.awake: dict[str, float] = {}
        self.turns: dict[str, float] = {}

    def faults(self) -> list[str]:
        found: list[str] = []
        for host_id, raw in sorted(self.hosts.items()):
            found += self._host(host_id, read_stored_host(raw))
        found += self._indexes()
        found += self._leftovers()
        return found

    def _host(self, host_id: str, host: StoredHost) -> Iterator[str]:
        self.known |= {f"h:{host_id}", f"b:{host_id}"}
        bins, pages = host.bins, 0
        earliest: dict[str, float] = {}
        for number in range(bins):
            self.known |= {f"{letter}:{host_id}:{number}" for letter in "radeq"}
            dues = self.store.get(f"d:{host_id}:{number}", {})
            if dues:
                earliest[str(number)] = min(dues.values())
            records = self.store.get(f"r:{host_id}:{number}", {})
            pages += sum(1 for record in records.values() if record)
            yield from self._bin(host_id, number, bins, records, dues)
        if pages != host.pages:
            yield f"host {host_id} counts {host.pages} pages, holds {pages}"
        index = self.store.get(f"b:{host_id}", {})
        if index != (earliest if bins > 1 else {}):
            yield f"bins of {host_id} are indexed as {index}, are {earliest}"
        yield from self._rest(host_id, host, min(earliest.values(), default=None))

    def _rest(self, host_id: str, host: StoredHost, due: float | None) -> Iterator[str]:
        """A host waits by its best page; where that is due before its rest ends, by that end. One without
        pages may wait for its end.
        """
        rest_until = host.rest_until_ms
        if due is not None and NEW_PAGES < due < rest_until and rest_until > 0:
            self.turns[host_id] = rest_until
            if host_id in self.resting:
                yield f"{host_id} takes turns, and rests until {self.resting[host_id]} besides"
        elif host_id in self.resting:  # its pages wait for the end of a rest, and its timer
            if self.resting[host_id] != rest_until or (due is None and host.pages):
                yield f"{host_id} rests until {self.resting[host_id]}, is due at {due}, says {rest_until}"
        elif due is not None:
            self.awake[host_id] = due
            if due < rest_until and rest_until > self.now + 100:
                yield f"{host_id} is awake at {self.now} though it rests until {rest_until}"

    def _bin(
        self, host_id: str, number: int, bins: int, records: dict[bytes, bytes], dues: dict[str, float]
    ) -> Iterator[str]:
        anchors = self.store.get(f"a:{host_id}:{number}", {})
        pages = {int(id_): record for id_, record in records.items() if record}
        for id_ in (int(id_) for id_, record in records.items() if not record):
            if str(id_ + 1).encode() not in self.store.get(f"r:{host_id}:{bin_of(id_ + 1, bins)}", {}):
                yield f"{host_id}:{id_} is a gap before nothing"
        kept = {
            kind: {id_.decode() for id_ in self.store.get(f"{letter}:{host_id}:{number}", {})}
            for kind, letter in (("evidence", "e"), ("requests", "q"))
        }
        for kind, index in {"anchors": set(anchors), "due times": set(dues), **kept}.items():
            strangers = index - {str(id_) for id_ in pages}
            if strangers:
                yield f"{kind} of {host_id}:{number} without a page: {strangers}"
        for id_, record in pages.items():
            if bin_of(id_, bins) != number:
                yield f"{host_id}:{id_} is in bin {number} of {bins}"
            anchor = anchors.get(str(id_))
            if (anchor is None) == bool(record[0] & CRAWLED):
                yield f"{host_id}:{id_} has the anchor {anchor}, its flags say {record[0]}"
                continue
            yield from self._page(f"{host_id}:{id_}", record, anchor, dues.get(str(id_)))

    def _page(self, member: str, record: bytes, anchor: float | None, due: float | None) -> Iterator[str]:
        self.members.add(member)
        head = read_heads([record])[0]
        flags = int(head["flags"])
        places = {
            "waiting": (due is not None, not flags & (LEASED | HELD | PARKED) and member not in self.tokens),
            "leased": (member in self.leases, member in self.tokens),
            "held": (member in self.held, bool(flags & HELD)),
            "parked": (member in self.parked, bool(flags & PARKED)),
        }
        for place, (is_there, says_so) in places.items():
            self.counts[place] += is_there
            if is_there != says_so:
                yield f"{member} is {'' if is_there else 'not '}{place}, its flags say {flags}"
        if sum(is_there for is_there, _ in places.values()) != 1:
            yield f"{member} is in {[p for p, (is_there, _) in places.items() if is_there]}"
        if flags & LEASED:
            yield f"{member} has its lease in its record"
        if member in self.tokens or int(head["expiries"]):
            self.leased.add(member)
        is_promoted = due is not None and PROMOTED < due < NEW_PAGES and bool(flags & CRAWLED)
        if due is not None and not is_promoted and abs(due - due_score(head, anchor)) > 1:
            yield f"{member} is due at {due}, its anchor says {due_score(head, anchor)}"

    def _indexes(self) -> Iterator[str]:
        for name, wanted in (("awake", self.awake), ("turns", self.turns)):
            if self.store.get(name, {}) != wanted:
                yield f"{name} is {self.store.get(name, {})}, should be {wanted}"
        if int(self.meta.get("pages", 0)) != len(self.members):
            yield f"meta counts {self.meta.get('pages')} pages, there are {len(self.members)}"

    def _leftovers(self) -> Iterator[str]:
        unknown = {name for name in self.store if name not in self.known}
        unknown = {name for name in unknown if not name.startswith("seen:")}
        if unknown:
            yield f"keys of no host: {sorted(unknown)}"
        strangers = self.store.get("dirty", set()) - set(self.hosts)
        if strangers:
            yield f"dirty keeps {strangers}"
        if self.tokens != set(self.leases):
            yield f"tokens of {sorted(self.tokens)}, leases of {sorted(self.leases)}"
        kept = {"leases": self.leases, "held": self.held, "parked": self.parked}
        for name, members in (*kept.items(), ("late", self.store.get("late", {}))):
            strangers = {m.decode() if isinstance(m, bytes) else m for m in members}
            strangers -= self.leased if name == "late" else self.members
            if strangers:
                yield f"{name} keeps {strangers}"


def bin_of(id_: int, bins: int) -> int:
    """Linear hashing as the scripts do it."""
    level = 1 << (bins.bit_length() - 1)
    at = id_ % (level * 2)
    return at if at < bins else id_ % level


def due_score(head: Any, anchor: float | None) -> float:
    """The due time a page's record and anchor imply."""
    if not int(head["flags"]) & CRAWLED:
        return NEVER_CRAWLED - math.floor(math.log(float(head["model"]["importance"])) * 1e9)
    interval_s = float(head["ranking"]["interval_s"])
    if interval_s < 0:
        ceiling = min(max(float(head["ranking"]["ceiling"]), 1e-300), 1e300)
        return DORMANT - math.floor(math.log(ceiling) * 1e9)
    since, credit_s = anchor, float(head["ranking"]["credit_s"])
    if credit_s >= 0:
        crawled_at = int.from_bytes(head["crawled_at"].tobytes(), "little")
        since = max(crawled_at - int(head["signals"]) * credit_s * 1000, -5e14)
    return math.floor(min(max(since + interval_s * 1000, -9e14), 2.9e15))
