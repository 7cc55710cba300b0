"""Bodies: read up to a cap, decode, and keep good items apart from bad ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from fastapi import Request
from fastapi.responses import Response

from service.api.problems import Problem, invalid
from service.errors import SchedulerError

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_ITEMS = 1000
MAX_PAGES = 10_000
T = TypeVar("T")
U = TypeVar("U")


class Rejected(msgspec.Struct):
    """An item of a batch that was not applied."""

    index: int
    reason: str


class Batch(Generic[U]):
    """Good items with their places in the request, and the bad ones with their reasons."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.items: list[U] = []
        self.rejected: list[Rejected] = []

    def reject(self, place: int, reason: str) -> None:
        self.rejected.append(Rejected(place, reason))

    def in_order(self) -> list[Rejected]:
        return sorted(self.rejected, key=lambda r: r.index)


def is_number(text: str) -> bool:
    """Whether a header or parameter is a plain decimal number (`isdigit` alone takes superscripts)."""
    return text.isascii() and text.isdigit()


async def read_body(request: Request) -> bytes:
    """The whole body; 413 as soon as more than the cap has arrived, declared or not."""
    declared = request.headers.get("content-length", "0")
    if is_number(declared) and int(declared) > MAX_BODY_BYTES:
        raise _too_large()
    parts: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        parts.append(chunk)
    return b"".join(parts)


def _too_large() -> Problem:
    return Problem(413, f"the body may hold at most {MAX_BODY_BYTES} bytes", headers={"Connection": "close"})


async def decode(request: Request, kind: type[T]) -> T:
    """A body of one kind; 400 for what is no JSON, 422 for what does not fit."""
    return decode_bytes(await read_body(request), kind)


def decode_bytes(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        message, loc = _place(str(error))
        raise invalid(loc, message) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not valid JSON: {error}") from None


async def decode_batch(
    request: Request, field: str, kind: type[T], convert: Callable[[T], U], *, most: int = MAX_ITEMS
) -> tuple[Batch[U], dict[str, msgspec.Raw]]:
    """The items under `field`, each decoded and converted on its own; the other fields stay raw."""
    envelope = decode_bytes(await read_body(request), dict[str, msgspec.Raw])
    if field not in envelope:
        raise invalid(["body", field], "field is required")
    raws = decode_bytes(bytes(envelope.pop(field)), list[msgspec.Raw])
    if len(raws) > most:
        raise invalid(["body", field], f"at most {most} items in one request, not {len(raws)}")
    decoder = msgspec.json.Decoder(kind)
    batch: Batch[U] = Batch()
    for place, raw in enumerate(raws):
        try:
            item = convert(decoder.decode(raw))
        except (msgspec.ValidationError, SchedulerError, UnicodeDecodeError) as error:
            batch.reject(place, str(error))
        else:
            batch.places.append(place)
            batch.items.append(item)
    return batch, envelope


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response without going through models."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _place(message: str) -> tuple[str, list[str | int]]:
    """msgspec says `… - at `$.a[0]``; RFC 9457 users want a list."""
    text, _, where = message.partition(" - at `$")
    parts = where.rstrip("`").replace("[", ".").replace("]", "").split(".")
    return text, ["body", *(int(p) if p.isdigit() else p for p in parts if p and p != "...")]
