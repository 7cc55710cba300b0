"""What requests and answers look like; decoded by msgspec, described in OpenAPI from the same types
(see `openapi.py`)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from service.api.body import Rejected

Instant = Annotated[str | float, Meta(description="RFC 3339, or epoch seconds")]
Url = Annotated[str, Meta(max_length=8192, description="absolute http or https URL")]
Share = Annotated[float, Meta(ge=0, le=1)]
Rate = Annotated[float, Meta(ge=0, le=1e9)]
Importance = Annotated[float, Meta(gt=0, le=1e12, description="any positive weight")]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[A-Za-z0-9._:-]+$")]
Short = Annotated[str, Meta(max_length=256)]
Validator = Annotated[str, Meta(description="as sent; one of over 128 bytes or not ASCII counts as none")]


class PageInput(Struct, forbid_unknown_fields=True, gc=False):
    """A page to add or update; what is left out keeps its value, or starts from the defaults."""

    url: Url
    importance: Importance | None = None
    change_rate_per_day: Rate | None = None
    precision: Share | None = None
    recall: Share | None = None
    signal_rate_per_day: Rate | None = None
    min_crawls_per_day: Annotated[float, Meta(ge=0, le=1000)] | None = None
    fixed: bool | None = None


class PutPages(Struct, forbid_unknown_fields=True):
    pages: list[PageInput]


class PutAnswer(Struct):
    added: int
    updated: int
    rejected: list[Rejected]


class DeletePages(Struct, forbid_unknown_fields=True):
    urls: list[Url]


class DeleteAnswer(Struct):
    deleted: int
    unknown: int
    rejected: list[Rejected]


class SignalInput(Struct, forbid_unknown_fields=True):
    """A hint that a page may have changed."""

    url: Url
    source: Name = "api"
    at: Instant | None = None
    id: Short | None = None


class Signals(Struct, forbid_unknown_fields=True):
    signals: list[SignalInput]


class SignalsAnswer(Struct):
    accepted: int
    duplicates: int
    unknown: int
    rejected: list[Rejected]


class RequestsInput(Struct, forbid_unknown_fields=True):
    """How often readers asked for a page since the last batch."""

    url: Url
    count: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 1


class Requests(Struct, forbid_unknown_fields=True):
    """What readers asked for; with an `id` the batch counts once by it, else by its content."""

    requests: list[RequestsInput]
    id: Short | None = None


class RequestsAnswer(Struct):
    accepted: int
    unknown: int
    duplicate: bool
    rejected: list[Rejected]


class OutcomeInput(Struct, forbid_unknown_fields=True):
    """What a crawl found; `lease`, or `url` for a crawl made without one."""

    lease: Short | None = None
    url: Url | None = None
    fetched_at: Instant | None = None
    status: Annotated[int, Meta(ge=100, le=999)] | None = None
    changed: bool | None = None
    digest: str | None = None
    etag: Validator | None = None
    last_modified: Annotated[Instant, Meta(description="as sent; no date counts as none")] | None = None
    retry_after_s: Annotated[float, Meta(ge=0, le=1e9, description="a day at most counts")] | None = None
    error: str | None = None


class Outcomes(Struct, forbid_unknown_fields=True):
    outcomes: list[OutcomeInput]


class OutcomesAnswer(Struct):
    accepted: int
    duplicates: int
    rejected: list[Rejected]


class LeaseOut(Struct, gc=False):
    """A page to crawl, and the right to do so until `lease_expires_at`."""

    url: str
    host: str
    lease: str
    lease_expires_at: str
    not_before: str
    value: float
    freshness: float
    effective_elapsed_s: float | None
    signals: int
    last_crawled_at: str | None
    etag: str | None
    last_modified: str | None


class NextAnswer(Struct):
    pages: list[LeaseOut]


class ExtendLeases(Struct, forbid_unknown_fields=True):
    leases: Annotated[list[Short], Meta(max_length=1000)]
    seconds: Annotated[float, Meta(gt=0, le=86400)] = 60.0


class ReleaseLeases(Struct, forbid_unknown_fields=True):
    leases: Annotated[list[Short], Meta(max_length=1000)]


class ExtendAnswer(Struct):
    extended: list[dict[str, Any]]
    rejected: list[Rejected]


class ReleaseAnswer(Struct):
    released: int
    rejected: list[Rejected]


class ModelOut(Struct):
    """What is believed of a page; rates per day."""

    change_rate_per_day: float
    silent_rate_per_day: float
    signal_rate_per_day: float
    precision: float
    recall: float
    fixed: bool
    change_rate_low: float | None
    change_rate_high: float | None
    sources: dict[str, Any]


class PageAnswer(Struct):
    """One page, and why it is or is not served now."""

    url: str
    host: str
    state: str
    importance: float
    min_crawls_per_day: float
    model: ModelOut
    last_crawled_at: str | None
    effective_elapsed_s: float | None
    signals: int
    freshness: float
    value: float
    price: float
    due_at: str | None
    host_rests_until: str | None
    reason: str
    outcomes: list[dict[str, Any]]


class PageRow(Struct):
    url: str
    importance: float
    change_rate_per_day: float
    state: str


class PageList(Struct):
    pages: list[PageRow]
    cursor: str | None


class ProblemOut(Struct):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] = []
