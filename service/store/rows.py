"""Values of the domain as the rows scripts take and give; each script's header names the fields."""

from __future__ import annotations

import math
from typing import Any

from service.address import url_of
from service.domain import Lease, NewOutcome, NewRequests, NewSignal

Row = tuple[Any, ...]


def signal_row(signal: NewSignal, source: int, delay_s: float) -> Row:
    """A row of `signals`."""
    address = signal.address
    at_ms = -1 if signal.at is None else round(signal.at * 1000)
    return address.host_id, address.page_id, address.path, source, at_ms, signal.dedupe, delay_s * 1000


def requests_row(requests: NewRequests) -> Row:
    """A row of `requests`."""
    address = requests.address
    return address.host_id, address.page_id, address.path, requests.count


def outcome_row(outcome: NewOutcome) -> Row:
    """A row of `outcomes`."""
    lease, address = outcome.lease, outcome.address
    if lease is not None:
        where: Row = (lease.host_id, lease.page_id, "", lease.token)
    else:
        assert address is not None
        where = (address.host_id, address.page_id, address.path, 0)
    fetched_ms = -1 if outcome.fetched_at is None else round(outcome.fetched_at * 1000)
    changed = -1 if outcome.changed is None else int(outcome.changed)
    rest_ms = round(outcome.retry_after_s * 1000)
    return (
        *where,
        fetched_ms,
        outcome.kind,
        changed,
        outcome.digest,
        outcome.etag,
        outcome.modified,
        rest_ms,
    )


def lease_from(row: list[Any]) -> Lease:
    """A page as `next` gives it."""
    (_, host_id, page_id, token, host, path, slot, expires, value, elapsed_ms, silent, signals) = row[:12]
    crawled_ms, etag, modified = row[12:]
    crawled = elapsed_ms >= 0
    return Lease(
        url=url_of(host, path),
        host=host,
        lease=f"{host_id}.{page_id:x}.{token:x}",
        lease_expires_at=expires / 1000,
        not_before=slot / 1000,
        value=value,
        freshness=math.exp(-silent * elapsed_ms / 1000) if crawled else 0.0,
        effective_elapsed_s=elapsed_ms / 1000 if crawled else None,
        signals=signals,
        last_crawled_at=crawled_ms / 1000 if crawled else None,
        etag=etag or None,
        last_modified=float(modified) if modified else None,
    )
