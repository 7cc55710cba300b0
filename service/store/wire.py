"""Batches as MessagePack, the form Lua's `cmsgpack` reads: it knows no binary type, bytes go as strings."""

from __future__ import annotations

from typing import Any, cast

import msgpack


def pack(value: Any) -> bytes:
    return cast(bytes, msgpack.packb(value, use_bin_type=False))


def unpack(raw: bytes) -> list[Any]:
    return cast(list[Any], msgpack.unpackb(raw))
