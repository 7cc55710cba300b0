"""Bodies: read up to a cap, decode, and keep good items apart from bad ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from fastapi import Request
from fastapi.responses import Response

from service.api.problems import Problem, invalid
from service.errors import SchedulerError

MAX_BODY_BYTES = 8 * 1024 * 1024
BODY_S = 30.0
MAX_ITEMS = 1000
MAX_PAGES = 10_000
NAME_SHOWN = 64  # of a field's name
T = TypeVar("T")
U = TypeVar("U")
JSON = (b"content-type", b"application/json")
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Rejected(msgspec.Struct):
    """An item of a batch that was not applied."""

    index: int
    reason: str


@dataclass(slots=True)
class Batch(Generic[U]):
    """Good items with their places in the request, and the bad ones with their reasons."""

    places: list[int] = field(default_factory=list)
    items: list[U] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    def reject(self, place: int, reason: str) -> None:
        self.rejected.append(Rejected(place, reason))

    def in_order(self) -> list[Rejected]:
        return sorted(self.rejected, key=lambda r: r.index)


class BatchForm(Generic[T]):
    """What a body with a list of items under one field looks like, perhaps beside others."""

    def __init__(
        self, field: str, kind: type[T], *, most: int = MAX_ITEMS, beside: frozenset[str] = frozenset()
    ) -> None:
        """The body may hold fields `beside`, which are not looked at."""
        self._field = field
        self._beside = beside
        self._most = most
        self._one = msgspec.json.Decoder(kind)
        fields: list[tuple[str, Any, Any]] = [(name, msgspec.Raw, msgspec.Raw()) for name in beside]
        fields.insert(0, ("items", list[kind], msgspec.NODEFAULT))  # type: ignore[valid-type]
        whole = msgspec.defstruct("Whole", fields, rename={"items": field}, forbid_unknown_fields=True)
        self._whole: msgspec.json.Decoder[Any] = msgspec.json.Decoder(whole)

    def read(self, body: bytes, convert: Callable[[T], U]) -> Batch[U]:
        """The items, each converted on its own; a bad one does not spoil the others."""
        given = self.take(body)
        batch: Batch[U] = Batch(rejected=given.rejected)
        for place, item in zip(given.places, given.items, strict=True):
            try:
                batch.items.append(convert(item))
                batch.places.append(place)
            except SchedulerError as error:
                batch.reject(place, str(error))
        return batch

    def take(self, body: bytes) -> Batch[T]:
        """The items as they are, without those that do not fit."""
        items = self._decode(body)
        if not items or type(items[0]) is not msgspec.Raw:
            return Batch(list(range(len(items))), items)
        batch: Batch[T] = Batch()
        for place, item in enumerate(items):
            try:
                batch.items.append(self._one.decode(item))
                batch.places.append(place)
            except (msgspec.ValidationError, UnicodeDecodeError) as error:
                batch.reject(place, str(error))
        return batch

    def _decode(self, body: bytes) -> list[Any]:
        """All items at once where all are good, else raw ones."""
        # A body of a million empty items must not become a million objects.
        if body.count(b"{") <= self._most + 1:
            try:
                items: list[Any] = self._whole.decode(body).items
            except _NO_JSON:
                items = self._split(body)
        else:
            items = self._split(body)
        if len(items) > self._most:
            message = f"at most {self._most} items in one request, not {len(items)}"
            raise invalid(["body", self._field], message)
        return items

    def _split(self, body: bytes) -> list[msgspec.Raw]:
        envelope = decode_bytes(body, dict[str, msgspec.Raw])
        if self._field not in envelope:
            raise invalid(["body", self._field], "field is required")
        for name in envelope.keys() - self._beside - {self._field}:
            raise invalid(["body", name[:NAME_SHOWN]], "no such field")
        return decode_bytes(bytes(envelope[self._field]), list[msgspec.Raw])


class RawResponse(Response):
    """A response whose headers are bytes already."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
        self.status_code = status
        self.raw_headers = headers
        self.body = body
        self.background = None


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
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise _too_large()
                parts.append(chunk)
    except TimeoutError:
        raise Problem(
            408, f"the body must come within {BODY_S:g} s", headers={"Connection": "close"}
        ) from None
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
    except _NO_JSON as error:
        raise Problem(400, f"the body is not valid JSON: {error}") from None


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response without going through models."""
    body = msgspec.json.encode(value)
    given = [(name.lower().encode(), text.encode()) for name, text in (headers or {}).items()]
    return RawResponse(status, [*given, (b"content-length", b"%d" % len(body)), JSON], body)


def _place(message: str) -> tuple[str, list[str | int]]:
    """msgspec says `… - at `$.a[0]``; RFC 9457 users want a list."""
    text, _, where = message.partition(" - at `$")
    parts = where.rstrip("`").replace("[", ".").replace("]", "").split(".")
    return text, ["body", *(int(p) if is_number(p) and len(p) < 10 else p for p in parts if p and p != "...")]
