"""GET /admin/parked and POST /admin/parked/release: pages that were given up."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service.address import parse_url, url_of
from service.api.auth import allow
from service.api.body import BatchForm, is_number, json_answer, read_body
from service.api.deps import frontier_of
from service.api.instants import render_ms
from service.api.openapi import documented
from service.api.operator_schemas import ParkedAnswer, ParkedOut, ReleasePages
from service.api.problems import invalid
from service.api.reasons import why_parked
from service.api.schemas import ReleaseAnswer
from service.parked import list_parked
from service.store.pages import PageState
from service.store.records import read_record

router = APIRouter(prefix="/admin/parked", tags=["operators"])
FORM = BatchForm("urls", str)
REASONS = {"unmoved": "the page is not parked", "unknown": "no such page is registered"}
MOST_SCAN = 2**64  # where the scan of a shard may go on


@router.get(
    "", summary="Pages given up on", dependencies=[allow("reader")], **documented(answer=ParkedAnswer)
)
async def get_parked(
    request: Request,
    cursor: Annotated[str, Query(max_length=24, description="where to go on, from the last answer")] = "",
) -> Response:
    """Why and since when, some at a time; `total` counts them all. They are not crawled until they are
    released, removed and added again, or a crawl of them is reported.
    """
    frontier = frontier_of(request)
    if cursor and not (is_number(cursor) and int(cursor) < MOST_SCAN * frontier.settings.shards):
        raise invalid(["query", "cursor"], "not a cursor of this service")
    found = await list_parked(frontier, int(cursor or 0))
    rows = [_row(host, state) for host, state in found.pages]
    return json_answer(
        ParkedAnswer(found.total, rows, None if found.following is None else str(found.following))
    )


@router.post(
    "/release",
    summary="Have pages given up on wait again",
    dependencies=[allow()],
    **documented(ReleasePages, ReleaseAnswer),
)
async def release_parked(request: Request) -> Response:
    """They are crawled again when their turn comes, as if no crawl of them had failed."""
    batch = FORM.read(await read_body(request), parse_url)
    words = await frontier_of(request).park(batch.items, parks=False)
    for place, word in zip(batch.places, words, strict=True):
        if word in REASONS:
            batch.reject(place, REASONS[word])
    return json_answer(ReleaseAnswer(words.count("released"), batch.in_order()))


def _row(host: str, state: PageState) -> ParkedOut:
    record = read_record(state.record)
    assert state.parked_ms is not None
    return ParkedOut(url_of(host, record.path), host, render_ms(state.parked_ms), why_parked(record))
