"""Batches as MessagePack, the form Lua's `cmsgpack` reads: it knows no binary type, bytes go as strings."""

from __future__ import annotations

from typing import Any, cast

import msgpack


def pack(value: Any) -> bytes:
    return cast(bytes, msgpack.packb(value, use_bin_type=False))


def unpack(raw: bytes) -> list[Any]:
    return cast(list[Any], msgpack.unpackb(raw))


def pairs(answer: Any) -> list[tuple[bytes, bytes]]:
    """Fields and values of a hash, whichever protocol version shaped the answer."""
    if isinstance(answer, dict):
        return list(answer.items())
    return list(zip(answer[::2], answer[1::2], strict=True))
