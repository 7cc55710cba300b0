"""What operators send and read; decoded and described like the rest (see `schemas.py`)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from service.api.schemas import Instant, Url
from service.policy.objectives import OBJECTIVES
from service.policy.valuation import NAMES
from service.settings import LEAST_RATE

HostRate = Annotated[float, Meta(ge=LEAST_RATE, le=1e6)]
Objective = Annotated[str, Meta(extra_json_schema={"enum": list(OBJECTIVES)})]
PolicyName = Annotated[
    str, Meta(max_length=20, description=f"{', '.join(NAMES)}, or approx-J for J terms of ncis' sum (1–64)")
]


class BandwidthBody(Struct, forbid_unknown_fields=True):
    crawls_per_second: Annotated[float, Meta(ge=0, le=1e6, description="0 pauses; else at least 0.000001")]


class HostInput(Struct, forbid_unknown_fields=True):
    """Rules for one host; what is left out stays as it is, `null` takes a rule back. A `rests_until` of
    `null` ends a rest that an outcome asked for.
    """

    min_delay_s: Annotated[float, Meta(ge=0, le=86400)] | UnsetType | None = UNSET
    max_crawls_per_second: HostRate | UnsetType | None = UNSET
    paused_until: Instant | UnsetType | None = UNSET
    rests_until: UnsetType | None = UNSET


class HostAnswer(Struct):
    host: str
    pages: int
    min_delay_s: float
    max_crawls_per_second: float | None
    paused_until: str | None
    rests_until: str | None
    price: float | None


class PolicyInput(Struct, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    objective: Objective | UnsetType = UNSET
    policy: PolicyName | UnsetType = UNSET
    explore: Annotated[float, Meta(ge=0, le=0.5, description="share of crawls")] | UnsetType = UNSET
    min_crawls_per_day: Annotated[float, Meta(ge=0, le=1000)] | UnsetType = UNSET


class PolicyAnswer(Struct):
    objective: str
    policy: str
    explore: float
    min_crawls_per_day: float


class ForecastOut(Struct):
    crawls_per_second: float
    expected_freshness: float
    price: float
    never_crawled: float


class ForecastAnswer(Struct):
    """The long run at some bandwidths, as far as a sample of the pages tells."""

    sampled_pages: int
    forecasts: list[ForecastOut]


class ReleasePages(Struct, forbid_unknown_fields=True):
    urls: list[Url]


class ParkedOut(Struct):
    url: str
    host: str
    parked_at: str
    reason: str


class ParkedAnswer(Struct):
    """Pages given up on, the last first among those of one answer."""

    total: int
    pages: list[ParkedOut]
    cursor: str | None


class ChangeOut(Struct):
    """One change; `name` says of which host, source or key."""

    at: str
    actor: str | None
    what: Annotated[str, Meta(extra_json_schema={"enum": ["bandwidth", "policy", "source", "host", "key"]})]
    name: str | None
    old: dict[str, Any]
    new: dict[str, Any]


class AuditAnswer(Struct):
    """The latest first."""

    changes: list[ChangeOut]


class SourceInput(Struct, forbid_unknown_fields=True):
    """`null` takes a source's own delay back."""

    delay_s: Annotated[float, Meta(ge=0, le=86400)] | None


class SenderOut(Struct):
    """Who sends a source's signals; what is not learned yet is null."""

    signals: int
    share_of_signals: float | None
    share_of_crawls: float | None
    precision: float | None
    recall: float | None
    weight: float | None


class SourceOut(SenderOut):
    """A source of signals, all its senders together; and those by whose key they are known."""

    delay_s: float
    senders: dict[str, SenderOut]


class SourcesAnswer(Struct):
    sources: dict[str, SourceOut]
