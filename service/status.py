"""One look at the whole: what the dashboard, the metrics and readiness are made of."""

from __future__ import annotations

import time
from typing import Any

from service import telemetry
from service.frontier import Frontier


async def gather_status(frontier: Frontier) -> dict[str, Any]:
    """Counts, dial, price, freshness and ages; a handful of round trips, none of them long."""
    shards = await frontier.shards.status()
    bandwidth = await frontier.control.bandwidth()
    price = await frontier.control.price()
    now_at = await frontier.control.now()
    pages = sum(shard.pages for shard in shards)
    weight = sum(shard.weight for shard in shards)
    memory = await frontier.shards.memory_bytes()
    priced = [shard.priced_at for shard in shards if shard.pages]
    return {
        "pages": pages,
        "next_pages_total": await frontier.control.granted(),
        "leases": sum(shard.leases for shard in shards),
        "parked": sum(shard.parked for shard in shards),
        "bandwidth_crawls_per_second": bandwidth.crawls_per_second,
        "price": price.served,
        "due_price": price.due,
        "expected_freshness": sum(s.fresh_weight for s in shards) / weight if weight else None,
        "repriced_lag_s": _lag(priced, now_at),
        "worker_elapsed_s": {
            "reprice": _elapsed([shard.priced_at for shard in shards], now_at),
            "learn": _elapsed([shard.learned_at for shard in shards], now_at),
        },
        "calibration_error": (await frontier.calibration()).error,
        "observations": await frontier.observations.backlog(),
        "signal_precision": await _precision(frontier),
        "bytes_per_page": memory / pages if pages else None,
        "shards": [
            {"pages": s.pages, "leases": s.leases, "repriced_lag_s": _lag([s.priced_at], now_at)}
            for s in shards
        ],
    }


async def _precision(frontier: Frontier) -> dict[str, float]:
    """The learned precision of each source, whoever sends it."""
    names = await frontier.control.source_names()
    rates: dict[str, tuple[float, float]] = {}
    for number, row in (await frontier.shards.source_figures()).items():
        source = names.get(number, "other").partition("@")[0]
        signals, true = rates.get(source, (0.0, 0.0))
        rates[source] = signals + row[0], true + row[1]
    return {source: true / signals for source, (signals, true) in rates.items() if signals > 0}


def _lag(priced: list[float | None], now_at: float) -> float | None:
    """Age of the oldest price; None while there is nothing to sweep or a shard never was."""
    ages = [now_at - at for at in priced if at is not None]
    return max(0.0, *ages, 0.0) if priced and len(ages) == len(priced) else None


def _elapsed(passes: list[float | None], now_at: float) -> float | None:
    """Since a worker was last through with any shard; None before the first time."""
    return min((max(0.0, now_at - at) for at in passes if at is not None), default=None)


def set_gauges(status: dict[str, Any]) -> None:
    """Bring the gauges of the shared state up to date before a scrape."""
    unknown = float("nan")
    telemetry.PAGES.set(status["pages"])
    telemetry.LEASES.set(status["leases"])
    telemetry.PARKED.set(status["parked"])
    telemetry.BANDWIDTH.set(status["bandwidth_crawls_per_second"])
    telemetry.PRICE.set(status["price"])
    telemetry.EXPECTED_FRESHNESS.set(_or(status["expected_freshness"], unknown))
    telemetry.REPRICED_LAG.set(_or(status["repriced_lag_s"], unknown))
    for worker, elapsed_s in status["worker_elapsed_s"].items():
        telemetry.WORKER_RUN.labels(worker).set(time.time() - _or(elapsed_s, unknown))
    telemetry.CALIBRATION_ERROR.set(_or(status["calibration_error"], unknown))
    telemetry.BACKLOG.set(status["observations"])
    for source, precision in status["signal_precision"].items():
        telemetry.SIGNAL_PRECISION.labels(telemetry.source_label(source)).set(precision)
    telemetry.BYTES_PER_PAGE.set(_or(status["bytes_per_page"], unknown))


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
