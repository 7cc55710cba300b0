"""POST /requests: what readers asked for, which says how important pages are."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.address import parse_url
from service.api.auth import allow
from service.api.body import BatchForm, decode_bytes, json_answer, read_body
from service.api.deps import frontier_of
from service.api.openapi import documented
from service.api.problems import invalid
from service.api.schemas import Requests, RequestsAnswer, RequestsInput, Short
from service.domain import NewRequests

router = APIRouter(tags=["senders"], dependencies=[allow("sender")])
FORM = BatchForm("requests", RequestsInput, beside=frozenset({"id"}))
_ID: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(Short | None)


class _WithId(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw(b"null")


@router.post(
    "/requests",
    summary="Report what readers asked for",
    **documented(Requests, RequestsAnswer, 202, "Taken; importance follows by and by"),
)
async def post_requests(request: Request) -> Response:
    """Counts of readers' requests per page since the last batch, from which importance is learned. A batch
    sent again within ten minutes counts once: by its `id`, or without one by its content, so senders whose
    batches may look alike should give an `id`. `duplicate` says that it, or some of it, was counted before.
    """
    body = await read_body(request)
    batch = FORM.read(body, read_requests)
    name = batch_name(_read_id(decode_bytes(body, _WithId).id), batch.items)
    words = await frontier_of(request).record_requests(batch.items, name)
    answer = RequestsAnswer(
        accepted=words.count("accepted"),
        unknown=words.count("unknown"),
        duplicate="duplicate" in words,
        rejected=batch.in_order(),
    )
    return json_answer(answer, 202)


def read_requests(item: RequestsInput) -> NewRequests:
    return NewRequests(parse_url(item.url), item.count)


def batch_name(given: str | None, items: Sequence[NewRequests]) -> bytes:
    """What the batch counts once by; signals' names, kept in the same place, are hashed differently."""
    text = given or "\n".join(f"{r.address.host}{r.address.path} {r.count}" for r in items)
    kind = b"id" if given else b"content"
    return blake2b(text.encode(), digest_size=8, person=kind).digest()


def _read_id(raw: msgspec.Raw) -> str | None:
    try:
        return _ID.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(["body", "id"], str(error)) from None
