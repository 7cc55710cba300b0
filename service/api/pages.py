"""PUT, GET and DELETE /pages: the register, and why a page is or is not served."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service.address import Address, parse_host, parse_url
from service.api.auth import allow
from service.api.body import MAX_PAGES, Batch, BatchForm, is_number, json_answer, read_body
from service.api.deps import frontier_of
from service.api.explain import Learnt, explain, list_row
from service.api.openapi import documented
from service.api.problems import Problem, invalid
from service.api.schemas import (
    DeleteAnswer,
    DeletePages,
    PageAnswer,
    PageInput,
    PageList,
    PutAnswer,
    PutPages,
)
from service.beliefs import model_from
from service.domain import Belief, NewPage
from service.errors import InvalidUrl, SchedulerError

router = APIRouter(tags=["pages"])
PUT_FORM = BatchForm("pages", PageInput, most=MAX_PAGES)
DELETE_FORM = BatchForm("urls", str, most=MAX_PAGES)
READ_AT_ONCE = 250  # pages, about a millisecond: then others have their turn
REASONS = {
    "crowded": "too many pages share this page's hash",
    "moved": "changed by others again and again",
}


@router.put(
    "/pages", summary="Add or update pages", dependencies=[allow()], **documented(PutPages, PutAnswer)
)
async def put_pages(request: Request) -> Response:
    """Only `url` is required. The model fields are starting beliefs, or the truth with `fixed`."""
    batch = PUT_FORM.take(await read_body(request))
    places, pages = await _read_pages(batch)
    words = await frontier_of(request).put_pages(pages)
    added, updated = words.count("added"), words.count("updated")
    if added + updated < len(words):
        for place, word in zip(places, words, strict=True):
            if word not in ("added", "updated"):
                batch.reject(place, REASONS.get(word, word))
    return json_answer(PutAnswer(added, updated, batch.in_order()))


async def _read_pages(batch: Batch[PageInput]) -> tuple[list[int], list[NewPage]]:
    """Places and pages of a batch, some at a time: a large one must not keep others waiting."""
    places: list[int] = []
    pages: list[NewPage] = []
    for start in range(0, len(batch.items), READ_AT_ONCE):
        await asyncio.sleep(0)
        for at in range(start, min(start + READ_AT_ONCE, len(batch.items))):
            try:
                pages.append(read_page(batch.items[at]))
                places.append(batch.places[at])
            except SchedulerError as error:
                batch.reject(batch.places[at], str(error))
    return places, pages


@router.delete(
    "/pages", summary="Remove pages", dependencies=[allow()], **documented(DeletePages, DeleteAnswer)
)
async def delete_pages(request: Request) -> Response:
    """A removed page is served no more; an outcome that arrives later is answered as unknown."""
    batch = DELETE_FORM.read(await read_body(request), parse_url)
    words = await frontier_of(request).delete_pages(batch.items)
    return json_answer(DeleteAnswer(words.count("deleted"), words.count("unknown"), batch.in_order()))


@router.get(
    "/pages",
    summary="One page and why, or a host's pages",
    dependencies=[allow("reader")],
    **documented(answer=PageAnswer),
)
async def get_pages(
    request: Request,
    url: Annotated[str | None, Query(max_length=8192, description="the page to explain")] = None,
    host: Annotated[str | None, Query(max_length=300, description="the host to list")] = None,
    cursor: Annotated[str, Query(max_length=20, description="where to go on, from the last answer")] = "",
) -> Response:
    """With `url`: everything known of the page and the reason it is served when it is. With `host`: its
    pages, some at a time.
    """
    if (url is None) == (host is None):
        raise invalid(["query"], "give either url or host")
    if url is not None:
        return await _explain(request, _address(url))
    assert host is not None
    return await _list(request, host, cursor)


async def _explain(request: Request, address: Address) -> Response:
    frontier = frontier_of(request)
    state = await frontier.inspect(address)
    if state is None:
        raise Problem(404, "no such page is registered")
    price, policy = await frontier.control.price(), await frontier.control.policy()
    names = await frontier.control.source_names()
    estimate, sources = await frontier.estimate(address, state)
    return json_answer(explain(address, state, price, policy, Learnt(estimate, sources, names)))


async def _list(request: Request, host: str, cursor: str) -> Response:
    try:
        address = parse_host(host)
    except InvalidUrl as error:
        raise invalid(["query", "host"], str(error)) from None
    if cursor and not is_number(cursor):
        raise invalid(["query", "cursor"], "not a cursor of this service")
    frontier = frontier_of(request)
    found = await frontier.list_host(address, int(cursor or 0))
    if found is None:
        raise Problem(404, "no page of this host is registered")
    pages, following = found
    now_ms = await frontier.control.now() * 1000
    rows = [list_row(address.host, raw, due_score, now_ms) for raw, due_score in pages]
    return json_answer(PageList(rows, None if following is None else str(following)))


def _address(url: str) -> Address:
    try:
        return parse_url(url)
    except InvalidUrl as error:
        raise invalid(["query", "url"], str(error)) from None


def read_page(item: PageInput) -> NewPage:
    """A page the frontier understands; contradictory beliefs are refused here already."""
    belief = Belief(
        item.importance, item.change_rate_per_day, item.precision, item.recall, item.signal_rate_per_day
    )
    if item.signal_rate_per_day is not None:  # else nothing can contradict the rest
        model_from(belief)
    return NewPage(parse_url(item.url), belief, item.fixed, item.min_crawls_per_day)
