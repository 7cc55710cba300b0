"""The values everything else speaks about: pages, models, signals, outcomes, leases.

Frozen and without behaviour beyond what follows from their own fields; those made once per item of a
request are Structs, which are far cheaper to make, and those of a bulk load are not looked at by the
garbage collector, as they can be part of no cycle. Rates are per second, instants (`_at`) are epoch
seconds, durations end in `_s`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NewType

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from service.address import Address, shard_of

Floats = NDArray[np.float64]

ShardId = NewType("ShardId", int)
PageId = NewType("PageId", int)
LeaseToken = NewType("LeaseToken", int)


@dataclass(frozen=True, slots=True)
class Model:
    """What is believed of one page (scalars) or of many (arrays of one length).

    (α, κ, γ) carry everything: ν = γe^(−κ), λΔ = γ(1 − e^(−κ)), Δ = α + λΔ.
    """

    importance: Floats  # μ, any positive weight
    silent_rate: Floats  # α, changes per second nobody signals
    signal_weight: Floats  # κ, depth one signal adds; infinite for signals that never lie
    signal_rate: Floats  # γ, signals per second, true and false

    @property
    def precision(self) -> Floats:
        """Share of signals that are true, 1 − e^(−κ)."""
        return np.asarray(-np.expm1(-np.asarray(self.signal_weight, dtype=np.float64)))

    @property
    def false_rate(self) -> Floats:
        """ν, false signals per second."""
        weight = np.asarray(self.signal_weight, dtype=np.float64)
        return np.asarray(self.signal_rate * np.exp(-weight))

    @property
    def change_rate(self) -> Floats:
        """Δ, changes per second, signalled or not."""
        return np.asarray(self.silent_rate + self.signal_rate * self.precision)

    @property
    def recall(self) -> Floats:
        """λ, share of changes that are signalled; 0 for a page that never changes."""
        changes = self.change_rate
        signalled = self.signal_rate * self.precision
        return np.divide(signalled, changes, out=np.zeros_like(changes), where=changes > 0)


class Lease(Struct, frozen=True):
    """The right to crawl one page until a deadline."""

    url: str
    host: str
    lease: str
    lease_expires_at: float
    not_before: float
    value: float
    freshness: float
    effective_elapsed_s: float | None  # None: never crawled
    signals: int
    last_crawled_at: float | None
    etag: str | None
    last_modified: float | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """Why there is no page to hand out, and when asking again may help."""

    reason: str  # pace, politeness, no-pages or paused
    retry_after_s: float


UNDER_WAY: list[Any] = []  # the leases of who tries again while a first try is under way; told by identity


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Crawls per second allowed in total, and how often that was changed."""

    crawls_per_second: float
    version: int


@dataclass(frozen=True, slots=True)
class Policy:
    """How pages are ranked beyond their crawl value, and how often that was changed."""

    objective: str = "freshness"
    policy: str = "ncis"
    explore: float = 0.02  # share of the crawls that may be spent on learning
    min_crawls_per_day: float = 0.0  # what every page gets, whatever it is worth
    version: int = 0

    @property
    def value_name(self) -> str:
        """Which value pages are compared by: prices of different ones have nothing in common."""
        return f"{self.policy}/{self.objective}"


@dataclass(frozen=True, slots=True)
class Price:
    """The crawl value being served, and the lowest worth being ready for."""

    served: float
    slack: float
    lift: float = 1.0  # level of the next pages to be served, as a share of the price
    of: str = "ncis/freshness"  # which value it is a price of, as far as pages are ranked by it

    @property
    def due(self) -> float:
        """Pages are keyed by when they reach this: a little below what is served."""
        return self.served * (1 - self.slack)

    @property
    def centre(self) -> float:
        """Around this the pages that stand ready are compared."""
        return max(self.due, self.served * self.lift)


class Belief(Struct, frozen=True, gc=False):
    """Starting beliefs in a user's terms; None is what the user did not say."""

    importance: float | None = None
    change_rate_per_day: float | None = None
    precision: float | None = None
    recall: float | None = None
    signal_rate_per_day: float | None = None

    @property
    def says_nothing_of_model(self) -> bool:
        return (
            self.change_rate_per_day is None
            and self.precision is None
            and self.recall is None
            and self.signal_rate_per_day is None
        )


class LeaseKey(Struct, frozen=True):
    """What a lease text says: which page, and by which token."""

    host_id: str
    page_id: int
    token: int

    @classmethod
    def parse(cls, text: str) -> LeaseKey | None:
        """The key in a lease text, or None if it is none of ours."""
        try:
            host_id, page_id, token = text.split(".")
            shard_of(host_id, 1)
            key = cls(host_id, int(page_id, 16), int(token, 16))
        except ValueError:
            return None
        in_range = 0 <= key.page_id < 2**31 and 0 < key.token < 2**48
        return key if in_range and len(host_id) == 11 else None

    def is_for(self, address: Address) -> bool:
        """Whether it may be this page's: a colliding page was given one of the next ids."""
        shift = (self.page_id - address.page_id) % 2**31
        return self.host_id == address.host_id and shift < 4

    def __str__(self) -> str:
        return f"{self.host_id}.{self.page_id:x}.{self.token:x}"


class NewPage(Struct, frozen=True, gc=False):
    """A page to add or update."""

    address: Address
    belief: Belief
    fixed: bool | None  # None: as it is
    min_crawls_per_day: float | None = None  # None: as it is; 0: no floor of its own


class NewSignal(Struct, frozen=True):
    """A signal as received: the dedupe key is empty when the sender gave neither id nor time."""

    address: Address
    source: str
    at: float | None
    dedupe: bytes
    sender: str = ""  # whose key vouches for it

    @property
    def origin(self) -> str:
        """What its quality is learned under: the source, and who sent it if that is known."""
        return f"{self.source}@{self.sender}" if self.sender else self.source


@dataclass(frozen=True, slots=True)
class NewRequests:
    """How often readers asked for a page since the sender last said."""

    address: Address
    count: int


class NewOutcome(Struct, frozen=True):
    """What a crawl found, by lease or by address."""

    lease: LeaseKey | None
    address: Address | None
    fetched_at: float | None
    kind: str  # ok, failed, gone or busy
    changed: bool | None
    digest: bytes  # three bytes, or none
    etag: str
    modified: int
    retry_after_s: float

    @property
    def host_id(self) -> str:
        if self.lease is not None:
            return self.lease.host_id
        assert self.address is not None
        return self.address.host_id


@dataclass(frozen=True, slots=True)
class Host:
    """Rules and state of one host."""

    pages: int
    min_delay_s: float
    max_crawls_per_second: float | None
    paused_until: float | None
    rests_until: float | None
    price: float | None  # what its pages are served at while politeness holds it back; None before it did
