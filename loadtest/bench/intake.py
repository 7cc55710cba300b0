"""Part `batches`: outcomes and signals over HTTP, and by the store's functions alone."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from typing import Any

from loadtest.bench import state
from loadtest.bench.client import Job
from loadtest.bench.shared import Shared
from loadtest.bench.web import batches, leased
from service.address import parse_url
from service.api.instants import parse_instant
from service.domain import LeaseKey, NewOutcome, NewSignal
from service.store.keys import CONTROL

ITEMS = 100  # in a batch
CONNECTIONS = 32
REFETCHED_S = 60.0  # after the page's last crawl, so that it stays as due as it was
SOURCE = "bench"
_messages = count()


def http_name(what: str, processes: int) -> str:
    return f"POST /{what}, {processes} process{'es' * (processes > 1)}"


def raw_name(what: str) -> str:
    return f"`{what}` alone"


def batches_round(shared: Shared) -> None:
    """Items per second, each way with leases and messages of its own."""
    findings = shared.bench.findings
    findings.add("batches", raw_name("outcomes"), _raw_outcomes(shared), "items/s")
    findings.add("batches", raw_name("signals"), _raw_signals(shared), "items/s")
    for processes in shared.bench.plan.processes:
        outcomes = [_outcome_json(page) for page in _leased(shared)]
        for what, items in (("outcomes", outcomes), ("signals", _signals_json(shared))):
            rate = _post(shared, what, items, processes)
            findings.add("batches", http_name(what, processes), rate, "items/s")


def _post(shared: Shared, what: str, items: Sequence[str], processes: int) -> float:
    requests = batches("POST", f"/{what}", what, items, ITEMS)
    port = shared.stack.services[processes].port
    tally = shared.bench.load.run(Job(port, requests, CONNECTIONS, keep=True))
    bad = [body for body in tally.bodies if f'"accepted":{ITEMS},'.encode() not in body]
    if bad or set(tally.statuses) - {200, 202}:
        raise state.Refused(f"POST /{what}: {dict(tally.statuses)} {bad[:1]!r:.300}")
    return len(items) / tally.seconds


def _leased(shared: Shared) -> list[dict[str, Any]]:
    """Pages on lease, as many as one measurement needs."""
    needed = shared.bench.plan.batches * ITEMS
    pages = list(leased(state.take(shared.bench.load, shared.stack.service, needed)))
    spare = [page["lease"] for page in pages[needed:]]
    state.release(shared.bench.load, shared.stack.service, spare)
    return pages[:needed]


def _fetched_at(page: dict[str, Any]) -> float:
    return (parse_instant(page["last_crawled_at"]) or 0.0) + REFETCHED_S


def _outcome_json(page: dict[str, Any]) -> str:
    return f'{{"lease":"{page["lease"]}","fetched_at":{_fetched_at(page):.3f},"status":200,"changed":false}}'


def _raw_outcomes(shared: Shared) -> float:
    outcomes = [
        NewOutcome(LeaseKey.parse(page["lease"]), None, _fetched_at(page), "ok", False, b"", "", 0, 0.0)
        for page in _leased(shared)
    ]
    return shared.functions.outcomes(outcomes, ITEMS)


def _messages_of(shared: Shared) -> list[tuple[int, str]]:
    """Page numbers spread over the web, each with a message never sent before."""
    pages, needed = shared.web.pages, shared.bench.plan.batches * ITEMS
    return [(number * 7919 % pages, f"m{number}") for number in (next(_messages) for _ in range(needed))]


def _signals_json(shared: Shared) -> list[str]:
    return [shared.web.signal(number, message) for number, message in _messages_of(shared)]


def _raw_signals(shared: Shared) -> float:
    source = int(shared.stack.store.run("HGET", f"{CONTROL}:sources", SOURCE))
    signals = [
        NewSignal(
            parse_url(shared.web.url(number)), SOURCE, None, blake2b(message.encode(), digest_size=8).digest()
        )
        for number, message in _messages_of(shared)
    ]
    return shared.functions.signals(signals, source, ITEMS)
