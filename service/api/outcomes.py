"""POST /outcomes: what crawls found."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from hashlib import blake2b

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service import telemetry
from service.address import parse_url
from service.api.auth import allow
from service.api.body import BatchForm, json_answer, read_body
from service.api.deps import frontier_of
from service.api.instants import InvalidInstant, parse_instant
from service.api.openapi import documented
from service.api.schemas import OutcomeInput, Outcomes, OutcomesAnswer
from service.domain import LeaseKey, NewOutcome
from service.errors import SchedulerError

router = APIRouter(tags=["crawlers"], dependencies=[allow("crawler")])
FORM = BatchForm("outcomes", OutcomeInput)
ETAG = re.compile("[ -~]{1,128}")  # others are not kept
DIGEST_BYTES = 3  # kept of a digest, which is compared with the next only: one change in 16,000,000 is missed
REASONS = {
    "stale": "the lease is void: the page was leased again, released, or the token was never given",
    "conflict": "another outcome was accepted for this lease",
    "unknown": "the page is gone from the register",
}


class InvalidOutcome(SchedulerError):
    """This outcome cannot be understood."""


@router.post("/outcomes", summary="Report crawls", **documented(Outcomes, OutcomesAnswer))
async def post_outcomes(request: Request) -> Response:
    """Each outcome counts once; good items are applied, bad ones come back in `rejected`."""
    batch = FORM.read(await read_body(request), read_outcome)
    words = await frontier_of(request).record_outcomes(batch.items)
    results: Counter[str] = Counter()
    for place, outcome, word in zip(batch.places, batch.items, words, strict=True):
        if word == "accepted":
            results[result_of(outcome)] += 1
        elif word == "duplicate":
            results["duplicate"] += 1
        else:
            batch.reject(place, REASONS[word])
    accepted, duplicates = results.total() - results["duplicate"], results["duplicate"]
    results["rejected"] = len(batch.rejected)
    for result, count in results.items():
        telemetry.OUTCOMES.labels(result).inc(count)
    return json_answer(OutcomesAnswer(accepted, duplicates, batch.in_order()))


def read_outcome(item: OutcomeInput) -> NewOutcome:
    """An outcome the frontier understands, or why it is none."""
    lease = LeaseKey.parse(item.lease) if item.lease is not None else None
    if item.lease is not None and lease is None:
        raise InvalidOutcome("not a lease of this service")
    if item.lease is None and item.url is None:
        raise InvalidOutcome("lease or url is required")
    address = parse_url(item.url) if item.url is not None else None
    if lease is not None and address is not None and not lease.is_for(address):
        raise InvalidOutcome("the lease is for another page")
    kind = kind_of(item)
    return NewOutcome(
        lease=lease,
        address=address,
        fetched_at=parse_instant(item.fetched_at),
        kind=kind,
        changed=False if item.status == 304 and item.changed is None else item.changed,
        digest=blake2b(item.digest.encode(), digest_size=DIGEST_BYTES).digest() if item.digest else b"",
        etag=item.etag if item.etag and ETAG.fullmatch(item.etag) else "",
        modified=_modified(item),
        retry_after_s=item.retry_after_s or 0.0,
    )


def _modified(item: OutcomeInput) -> int:
    """What the page's server said; it may say anything, and the rest of the outcome is true all the same."""
    with suppress(InvalidInstant):
        return int(parse_instant(item.last_modified) or 0)
    return 0


def kind_of(item: OutcomeInput) -> str:
    """ok, busy (the host wants rest), gone, or failed (no evidence about the content)."""
    if item.status in (429, 503):
        return "busy"
    if item.error is None and item.status in (404, 410):
        return "gone"
    # Whoever was refused or told to log in has not seen the page.
    return "failed" if item.error is not None or (item.status is not None and item.status >= 400) else "ok"


def result_of(outcome: NewOutcome) -> str:
    """The label of an accepted outcome."""
    if outcome.kind != "ok":
        return outcome.kind
    if outcome.changed is None:
        return "crawled"
    return "changed" if outcome.changed else "unchanged"
