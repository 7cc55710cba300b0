"""POST /leases/extend and /leases/release."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from msgspec import Meta

from service.api.auth import allow
from service.api.body import MAX_ITEMS, Rejected, decode, json_answer
from service.api.deps import frontier_of
from service.api.instants import render_ms
from service.api.openapi import documented
from service.api.schemas import ExtendAnswer, ExtendLeases, ReleaseAnswer, ReleaseLeases
from service.domain import LeaseKey

router = APIRouter(tags=["crawlers"], dependencies=[allow("crawler")])
REASONS = {"stale": "the lease is void", "unknown": "the page is gone from the register"}
NOT_OURS = "not a lease of this service"
Anything = Annotated[list[Any], Meta(max_length=MAX_ITEMS)]  # looked at one by one


class _Extend(ExtendLeases, forbid_unknown_fields=True):
    leases: Anything


class _Release(ReleaseLeases, forbid_unknown_fields=True):
    leases: Anything


@router.post("/leases/extend", summary="Keep pages longer", **documented(ExtendLeases, ExtendAnswer))
async def extend(request: Request) -> Response:
    """Moves the expiry of each lease to `seconds` from now, never earlier."""
    body = await decode(request, _Extend)
    places, keys, rejected = _read(body.leases)
    words = await frontier_of(request).extend(keys, body.seconds)
    extended: list[dict[str, Any]] = []
    for place, word in zip(places, words, strict=True):
        if word in REASONS:
            rejected.append(Rejected(place, REASONS[word]))
        else:
            expires_at = render_ms(float(word))
            extended.append({"lease": body.leases[place], "lease_expires_at": expires_at})
    return json_answer(ExtendAnswer(extended, sorted(rejected, key=lambda r: r.index)))


@router.post("/leases/release", summary="Give pages back", **documented(ReleaseLeases, ReleaseAnswer))
async def release(request: Request) -> Response:
    """The pages wait again at once, as if they had not been leased."""
    body = await decode(request, _Release)
    places, keys, rejected = _read(body.leases)
    words = await frontier_of(request).release(keys)
    for place, word in zip(places, words, strict=True):
        if word in REASONS:
            rejected.append(Rejected(place, REASONS[word]))
    released = sum(word == "released" for word in words)
    return json_answer(ReleaseAnswer(released, sorted(rejected, key=lambda r: r.index)))


def _read(texts: list[Any]) -> tuple[list[int], list[LeaseKey], list[Rejected]]:
    places, keys, rejected = [], [], []
    for place, text in enumerate(texts):
        key = LeaseKey.parse(text) if isinstance(text, str) else None
        if key is None:
            rejected.append(Rejected(place, NOT_OURS))
        else:
            places.append(place)
            keys.append(key)
    return places, keys, rejected
