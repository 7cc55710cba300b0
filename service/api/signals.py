"""POST /signals: hints that pages may have changed."""

from __future__ import annotations

from collections import Counter
from functools import partial
from hashlib import blake2b

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service import telemetry
from service.address import parse_url
from service.api.auth import allow, sender_of
from service.api.body import BatchForm, json_answer, read_body
from service.api.deps import frontier_of
from service.api.instants import parse_instant
from service.api.openapi import documented
from service.api.schemas import SignalInput, Signals, SignalsAnswer
from service.domain import NewSignal
from service.errors import SchedulerError


class InvalidSignal(SchedulerError):
    """This signal cannot be understood."""


router = APIRouter(tags=["senders"], dependencies=[allow("sender")])
FORM = BatchForm("signals", SignalInput)


@router.post(
    "/signals",
    summary="Report changes",
    **documented(Signals, SignalsAnswer, 202, "Taken; no crawl is promised"),
)
async def post_signals(request: Request) -> Response:
    """A signal ages its page by what its source is worth. With an `id` it counts once; with only `at`, once
    per page, source and instant; with neither, once per page, source and minute. Signals that speak of a
    time before the last crawl are answered as `duplicates`: that change has been fetched already. What a
    source is worth is learned for each sender (each key's name) apart.
    """
    batch = FORM.read(await read_body(request), partial(read_signal, sender_of(request)))
    words = await frontier_of(request).record_signals(batch.items)
    for (source, word), count in Counter(zip((s.source for s in batch.items), words, strict=True)).items():
        telemetry.SIGNALS.labels(telemetry.source_label(source), word).inc(count)
    telemetry.SIGNALS.labels("other", "rejected").inc(len(batch.rejected))
    answer = SignalsAnswer(
        accepted=words.count("accepted"),
        duplicates=words.count("duplicate") + words.count("stale"),
        unknown=words.count("unknown"),
        rejected=batch.in_order(),
    )
    return json_answer(answer, 202)


def read_signal(sender: str, item: SignalInput) -> NewSignal:
    """A signal with the key that makes it count once; nobody's id hides another sender's signal."""
    if item.source.endswith("\n"):
        raise InvalidSignal("source must be a short name of letters, digits, dots, dashes and colons")
    at = parse_instant(item.at)
    address = parse_url(item.url)
    dedupe = b""
    if item.id is not None or at is not None:
        name = item.id if item.id is not None else f"@{at}"
        text = f"{item.source}@{sender}\n{name}\n{address.host}{address.path}"
        dedupe = blake2b(text.encode(), digest_size=8).digest()
    return NewSignal(address, item.source, at, dedupe, sender)
