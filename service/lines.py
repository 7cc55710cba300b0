"""A page as one line of text: a plain URL, or JSON with what is believed of it and when it was crawled.

What `freshet export` writes, `freshet import` reads.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from service.address import url_of
from service.api.instants import parse_instant, render_instant, render_ms
from service.api.pages import read_page
from service.api.schemas import Instant, PageInput, Short
from service.domain import NewOutcome, NewPage
from service.errors import SchedulerError
from service.store.records import CRAWLED, FIXED, LEASED, PARKED, STARTED, read_record

DAY_S = 86400.0
PARKED_STATE = "parked"


class InvalidLine(SchedulerError):
    """Neither a URL nor a page as JSON."""


class PageLine(PageInput, forbid_unknown_fields=True, omit_defaults=True):
    """A page with its state; of `state` only whether it was given up comes back."""

    last_crawled_at: Instant | None = None
    etag: Short | None = None
    last_modified: Instant | None = None
    state: Annotated[str, Meta(max_length=16)] = "waiting"


_decoder = msgspec.json.Decoder(PageLine)


def read_line(line: bytes) -> tuple[NewPage, NewOutcome | None, bool]:
    """The page, the crawl that is known of it, and whether it was given up; SchedulerError with what is
    wrong with the line.
    """
    try:
        item = _decoder.decode(line) if line.startswith(b"{") else PageLine(line.decode())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidLine(str(error)) from None
    page = read_page(item)
    return page, _crawl_of(item, page), item.state == PARKED_STATE


def _crawl_of(item: PageLine, page: NewPage) -> NewOutcome | None:
    crawled_at = parse_instant(item.last_crawled_at)
    if crawled_at is None:
        return None
    return NewOutcome(
        lease=None,
        address=page.address,
        fetched_at=crawled_at,
        kind="ok",
        changed=None,
        digest=b"",
        etag=item.etag or "",
        modified=int(parse_instant(item.last_modified) or 0),
        retry_after_s=0.0,
    )


def write_line(host: str, raw: bytes) -> bytes:
    """A stored page as a line; a model nobody gave and no crawl has tested is left out."""
    record = read_record(raw)
    model, known = record.model, record.flags & (CRAWLED | FIXED | STARTED)
    line = PageLine(
        url=url_of(host, record.path),
        importance=float(model.importance[0]),
        change_rate_per_day=float(model.change_rate[0]) * DAY_S if known else None,
        precision=float(model.precision[0]) if known else None,
        recall=float(model.recall[0]) if known else None,
        min_crawls_per_day=record.min_crawls_per_day or None,
        fixed=True if record.flags & FIXED else None,
        last_crawled_at=render_ms(record.crawled_at_ms) if record.flags & CRAWLED else None,
        etag=record.etag or None,
        last_modified=render_instant(record.modified) if record.modified else None,
        state="leased" if record.flags & LEASED else PARKED_STATE if record.flags & PARKED else "waiting",
    )
    return msgspec.json.encode(line) + b"\n"
