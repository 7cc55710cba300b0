"""Values of the domain as the rows scripts take and give; each script's header names the fields."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from service.address import url_of
from service.domain import Lease, NewOutcome, NewRequests, NewSignal

Row = tuple[Any, ...]
# A lease as `lua/common_lease.lua` packs it; host id, host and record follow, of the sizes it ends with.
_LEASED = struct.Struct("<BIdddddBHH")
# What of a record (`lua/common.lua`) a crawler gets: silent rate, when it was crawled in two parts, signals,
# last_modified; then how many sources follow.
_RECORD = struct.Struct("<44xf8xIH11xH4xI4xB")
_ORDER = struct.Struct("<ddddH")
_GOES_ON, _AHEAD = 0x8000, 0x4000  # set in the number of pages of who goes on with a batch; of who may come
# Kept for a part of a request that got no page; told where a first try is under way (`common_answers.lua`).
NOTHING, WAIT = b"-", b"~"
PRICED, SLOT, VALUE, PACKED = 0, 6, 8, 15  # where a lease that was read has them
_HOST_SIZE = 53  # of a host without the weights of sources and its name; its last two bytes count the former


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


class Order(NamedTuple):
    """How pages are to be leased: what `next` and `lease` need to know of every lease."""

    lease_s: float
    lookahead_s: float
    rest_s: float  # of a host without a delay of its own
    hold_s: float  # that pages may lie before they are handed out: leases and rests begin so much later
    salt: int  # of the tokens

    def packed(self) -> bytes:
        lease_s, lookahead_s, rest_s, hold_s, salt = self
        return _ORDER.pack(lease_s * 1000, lookahead_s * 1000, rest_s * 1000, hold_s * 1000, salt)


def requests_for_pages(asks: Sequence[tuple[str, int, bool]], ahead: int) -> tuple[bytes | str, ...]:
    """Requests (id or '', pages, whether it goes on) as `next` and `grant` take them, and how many pages more
    for those who may come; most have no id.
    """
    words = [n | _GOES_ON if goes_on else n for _, n, goes_on in asks]
    if ahead:
        words.append(ahead | _AHEAD)
    counts = struct.pack(f"<{len(words)}H", *words)
    ids = [request_id for request_id, _, _ in asks]
    return (counts, *ids) if any(ids) else (counts,)


def read_leases(raw: bytes) -> list[Row]:
    """Pages as `next` and `lease` give them, one after the other.

    Each: whether the price follows its value, host id, page id, token, host, path, slot, expiry, value,
    elapsed_ms (-1: never crawled), silent rate, signals, crawled_at, etag, last_modified, and the bytes all
    that was read from; instants in ms.
    """
    rows: list[Row] = []
    at = 0
    while at < len(raw):
        row, at = _read_lease(raw, at)
        rows.append(row)
    return rows


def _read_lease(raw: bytes, at: int) -> tuple[Row, int]:
    """The lease that starts at a place, and where the next one does."""
    priced, page_id, token, slot, expires, value, elapsed_ms, *sizes = _LEASED.unpack_from(raw, at)
    id_at = at + _LEASED.size
    host_at = id_at + sizes[0]
    record_at = host_at + sizes[1]
    end = record_at + sizes[2]
    weights = raw[host_at + _HOST_SIZE - 2] + 256 * raw[host_at + _HOST_SIZE - 1]
    silent_rate, crawled, crawled_high, signals, modified, sources = _RECORD.unpack_from(raw, record_at)
    etag_at = record_at + _RECORD.size + 2 * sources + 1
    path_at = etag_at + raw[etag_at - 1]
    row = (
        priced,
        raw[id_at:host_at].decode(),
        page_id,
        int(token),
        raw[host_at + _HOST_SIZE + weights : record_at].decode(),
        raw[path_at:end].decode(),
        slot,
        expires,
        value,
        elapsed_ms,
        silent_rate,
        signals,
        crawled + (crawled_high << 32),
        raw[etag_at:path_at].decode("latin-1"),
        modified,
        raw[at:end],
    )
    return row, end


def unused_row(row: Row) -> Row:
    """A row of `release` for a page nobody was given: with it ends the rest that its lease began."""
    host_id, page_id, token, raw = row[1], row[2], row[3], row[PACKED]
    rest_at = _LEASED.size + len(host_id)
    return host_id, page_id, token, int.from_bytes(raw[rest_at : rest_at + 6], "little")


def lease_from(row: Row) -> Lease:
    """A page as `read_leases` gives it."""
    (_, host_id, page_id, token, host, path, slot, expires, value, elapsed_ms, silent, signals) = row[:12]
    crawled_ms, etag, modified = row[12:15]
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
