"""Hosts as they are kept: one packed value each, whose fields `lua/common_host.lua` names."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEAD = struct.Struct("<6sdIIdd6s6sBH")
_EXTENT = struct.Struct("<6sdI")


@dataclass(frozen=True, slots=True)
class StoredHost:
    """What there is of a host but its pages; instants in milliseconds, 0 for none."""

    rest_until_ms: int
    price: float  # what its pages are served at where politeness holds it back; 0 before it did
    bins: int
    pages: int
    delay_ms: float | None  # None: as everywhere
    gap_ms: float
    paused_until_ms: int
    name: str


def read_stored_host(raw: bytes) -> StoredHost:
    """A value of the `hosts` hash."""
    rests, price, bins, pages, delay_ms, gap_ms, paused, _, _, weights = _HEAD.unpack_from(raw)
    return StoredHost(
        rest_until_ms=int.from_bytes(rests, "little"),
        price=price,
        bins=bins,
        pages=pages,
        delay_ms=None if delay_ms < 0 else delay_ms,
        gap_ms=gap_ms,
        paused_until_ms=int.from_bytes(paused, "little"),
        name=raw[_HEAD.size + weights :].decode(),
    )


def read_extent(raw: bytes) -> tuple[int, float, int]:
    """What a walk needs of each of many hosts: until when it rests in ms, its price and how many bins."""
    rests, price, bins = _EXTENT.unpack_from(raw)
    return int.from_bytes(rests, "little"), price, bins
