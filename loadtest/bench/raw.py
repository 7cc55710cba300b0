"""The store alone: functions called with prepared arguments and no service in between."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from importlib import resources
from typing import Any

from loadtest.bench.resp import Store, encode
from service.address import shard_of
from service.clock import ServerClock
from service.domain import NewOutcome, NewSignal
from service.settings import Settings
from service.store.connection import Call as ShardCall
from service.store.connection import Server
from service.store.pages import Groups, Pages
from service.store.rows import Order, Row, lease_from, outcome_row, signal_row
from service.store.scripts import function_name

GROUP = 16  # commands sent at a time
FILL_AT_ONCE = 10_000
MINIMAL_KEYS = ("bench:pages", "bench:leases", "bench:deadlines")
Call = Callable[[Pages], Coroutine[Any, Any, Any]]
GroupCall = Callable[[Pages, Groups], Coroutine[Any, Any, Any]]


class Recorder(Server):
    """Takes the calls the product would make, sends none, and answers all of them the same."""

    def __init__(self, reply: list[Any]) -> None:
        self.commands: list[bytes] = []
        self._reply = reply

    @property
    def is_cluster(self) -> bool:
        return False

    async def call_shards(self, name: str, calls: Sequence[ShardCall]) -> list[Any]:
        for keys, args in calls:
            self.commands.append(encode("FCALL", function_name(name), len(keys), *keys, *args))
        return [self._reply] * len(calls)


class Minimal:
    """One sorted set, popped by the smallest script that writes a lease."""

    def __init__(self, store: Store, pages: int) -> None:
        self._store = store
        self._pages = pages
        source = (resources.files("loadtest.bench") / "lua" / "pop.lua").read_text()
        store.run("FUNCTION", "LOAD", "REPLACE", source)

    def fill(self) -> None:
        """All pages wait again; none is leased."""
        self._store.run("UNLINK", *MINIMAL_KEYS)
        for begin in range(0, self._pages, FILL_AT_ONCE):
            end = min(begin + FILL_AT_ONCE, self._pages)
            pairs = [word for i in range(begin, end) for word in (i * 7919 % 1_000_003, f"page{i:07d}")]
            self._store.run("ZADD", MINIMAL_KEYS[0], *pairs)

    def urls_per_s(self, count: int, seconds: float) -> float:
        """Pages popped per second."""
        deadline_ms = int(time.time() * 1000) + 60_000
        command = encode("FCALL", "pop", 3, *MINIMAL_KEYS, count, "token", deadline_ms)
        groups = _for_a_while([command] * GROUP, seconds, self._pages // (count * GROUP))
        spent, replies = self._store.pipeline(groups)
        return sum(len(reply) for reply in replies) / spent


class Functions:
    """The product's own functions."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def next(self, counts: Sequence[int], seconds: float, most: int) -> tuple[float, list[str]]:
        """(pages per second, their leases) of requests for so many pages each, served by one call."""
        (command,) = self._record([lambda pages: self._next(pages, counts)])
        calls = most // (sum(counts) * GROUP)
        spent, replies = self._store.pipeline(_for_a_while([command] * GROUP, seconds, calls))
        leases = [lease for reply in replies for lease in self._leases(reply, counts)]
        return len(leases) / spent, leases

    def outcomes(self, outcomes: Sequence[NewOutcome], size: int) -> float:
        """Outcomes taken per second, in batches of `size` over all shards."""
        rows = [outcome_row(outcome) for outcome in outcomes]
        hosts = [outcome.host_id for outcome in outcomes]
        return self._send(rows, hosts, size, lambda pages, groups: pages.outcomes(groups))

    def signals(self, signals: Sequence[NewSignal], source: int, size: int) -> float:
        """Signals counted per second, in batches of `size` over all shards."""
        window_s, delay_s = self._settings.signal_window_s, self._settings.signal_delay_s
        rows = [signal_row(signal, source, delay_s) for signal in signals]
        hosts = [signal.address.host_id for signal in signals]
        return self._send(rows, hosts, size, lambda pages, groups: pages.signals(groups, window_s=window_s))

    def _send(
        self,
        rows: Sequence[Row],
        hosts: Sequence[str],
        size: int,
        call: GroupCall,
    ) -> float:
        groups = []
        for begin in range(0, len(rows), size):
            by_shard: dict[int, list[Row]] = defaultdict(list)
            for row, host_id in zip(rows[begin : begin + size], hosts[begin : begin + size], strict=True):
                by_shard[shard_of(host_id, self._settings.shards)].append(row)
            groups.append(self._record([partial(_call, call, list(by_shard.items()))]))
        spent, replies = self._store.pipeline(groups)
        taken = sum(list(reply[1:]).count(b"accepted") for reply in replies)
        if taken != len(rows):
            raise RuntimeError(f"the store took {taken} of {len(rows)} items")
        return taken / spent

    def _next(self, pages: Pages, counts: Sequence[int]) -> Coroutine[Any, Any, Any]:
        settings = self._settings
        order = Order(settings.lease_s, settings.lookahead_s, settings.min_delay_s, hold_s=0.0, salt=7)
        return pages.next([("", count, False) for count in counts], 0, order)

    def _leases(self, reply: list[Any], counts: Sequence[int]) -> list[str]:
        """What the product reads from such a reply."""
        call = self._next(self._pages(Recorder(reply)), counts)
        _, _, answers, _ = _finish(call)
        return [lease_from(row).lease for rows in answers for row in rows]

    def _record(self, calls: Iterable[Call]) -> list[bytes]:
        """The commands the product would send for these calls."""
        recorder = Recorder([b"recorded", 0, 0, b""])
        for call in calls:
            _finish(call(self._pages(recorder)))
        return recorder.commands

    def _pages(self, server: Server) -> Pages:
        return Pages(server, ServerClock(), self._settings.shards)


def _for_a_while(group: list[bytes], seconds: float, most: int) -> Iterator[list[bytes]]:
    """The group again and again until the time is up or there is nothing left to take."""
    end = time.perf_counter() + seconds
    for _ in range(max(1, most)):
        if time.perf_counter() > end:
            return
        yield group


def _call(call: GroupCall, groups: Groups, pages: Pages) -> Coroutine[Any, Any, Any]:
    return call(pages, groups)


def _finish(call: Coroutine[Any, Any, Any]) -> Any:
    """The value of a call that waits for nothing, as no recorded one does."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a recorded call waited for something else than the store")
