"""Metrics, named once; the words are those of the API. No URL and no unbounded host in a label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from service.timings import Count, Timings

REGISTRY = CollectorRegistry()

_FAST = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

PAGES = Gauge("freshet_pages", "Pages registered.", registry=REGISTRY)
LEASES = Gauge("freshet_leases", "Pages on lease.", registry=REGISTRY)
PARKED = Gauge("freshet_parked", "Pages given up on.", registry=REGISTRY)
BANDWIDTH = Gauge("freshet_bandwidth_crawls_per_second", "Crawls per second allowed.", registry=REGISTRY)
PRICE = Gauge("freshet_price", "Crawl value being served.", registry=REGISTRY)
EXPECTED_FRESHNESS = Gauge(
    "freshet_expected_freshness",
    "Importance-weighted chance that a copy is fresh, as of the last sweep.",
    registry=REGISTRY,
)
REPRICED_LAG = Gauge(
    "freshet_repriced_lag_seconds",
    "Age of the oldest price a page is ranked by.",
    registry=REGISTRY,
)
CALIBRATION_ERROR = Gauge(
    "freshet_calibration_error",
    "Mean gap between predicted and observed chances of a change.",
    registry=REGISTRY,
)
SIGNAL_PRECISION = Gauge(
    "freshet_signal_precision", "Share of a source's signals that are true.", ["source"], registry=REGISTRY
)
BACKLOG = Gauge("freshet_observations", "Observations not yet learned from.", registry=REGISTRY)
WORKER_RUN = Gauge(
    "freshet_worker_last_run_timestamp_seconds",
    "When a worker last finished a pass over a shard.",
    ["worker"],
    registry=REGISTRY,
)
BYTES_PER_PAGE = Gauge(
    "freshet_bytes_per_page", "Memory the store uses, per page registered.", registry=REGISTRY
)
NEXT_PAGES = Count("freshet_next_pages_total", "Pages handed out.")
NEXT_UNUSED = Count(
    "freshet_next_unused_total", "Pages leased ahead of requests and given back because nobody came for them."
)
NEXT_EMPTY = Counter(
    "freshet_next_empty_total",
    "Requests for pages answered with none.",
    ["reason"],
    registry=REGISTRY,
)
for _reason in ("pace", "politeness", "no-pages", "paused"):
    NEXT_EMPTY.labels(_reason)  # so that there is a 0 to count from
OUTCOMES = Counter(
    "freshet_outcomes_total", "Outcomes by what became of them.", ["result"], registry=REGISTRY
)
SIGNALS = Counter(
    "freshet_signals_total",
    "Signals by source and by what became of them.",
    ["source", "result"],
    registry=REGISTRY,
)
REQUEST_SECONDS = Timings("freshet_request_seconds", "Time to answer.", "route", _FAST)
REDIS_SECONDS = Timings("freshet_redis_seconds", "Time a store function took.", "script", _FAST)
for _metric in (NEXT_PAGES, NEXT_UNUSED, REQUEST_SECONDS, REDIS_SECONDS):
    REGISTRY.register(_metric)

_MAX_SOURCES = 50
_sources: set[str] = set()


def source_label(source: str) -> str:
    """The source as a label, or `other` once there are too many."""
    if source not in _sources and len(_sources) >= _MAX_SOURCES:
        return "other"
    _sources.add(source)
    return source
