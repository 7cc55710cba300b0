"""Whether it costs freshness that pages are spread over shards, where hosts and rates are unequal."""

from __future__ import annotations

import argparse

import numpy as np

from loadtest.findings import Cell, Findings
from loadtest.record import Run
from loadtest.scene import TOLD, Scene, try_all
from service.address import parse_url, shard_of
from service.domain import Floats

SHARDS = 16


def skew(scenes: list[Scene], options: argparse.Namespace) -> Findings:
    """Freshness with 16 shards relative to one, on hosts of Zipf sizes whose pages change at Zipf rates.

    Both services face the same web; `largest shard` is the share of all pages, and of all changes, it has.
    """
    findings = Findings("skew", "Shards of unequal hosts", ("time (units)", "freshness ÷ unsharded"))
    plans = {count: {"shards": count, "explore": 0.0, **TOLD} for count in (1, SHARDS)}
    runs = try_all(scenes, plans, options.jobs)
    window = (options.time / 3, options.time)
    ratios = np.array([_ratio(*pair, window) for pair in zip(runs[SHARDS], runs[1], strict=True)])
    for scene, ratio in zip(scenes, ratios.tolist(), strict=True):
        pages, changes = _largest(scene)
        findings.rows.append(
            {"seed": str(scene.seed), "largest shard": pages, "of changes": changes, "16 shards ÷ 1": ratio}
        )
    if len(ratios) > 1:
        error = float(np.std(ratios, ddof=1) / np.sqrt(len(ratios)))
        mean: dict[str, Cell] = {"seed": f"mean ± {error:.4f}", "largest shard": np.nan, "of changes": np.nan}
        findings.rows.append({**mean, "16 shards ÷ 1": float(np.mean(ratios))})
    at = np.arange(options.window, options.time - options.window / 2, options.window / 4)
    curves = [_moving(*pair, at, options.window) for pair in zip(runs[SHARDS], runs[1], strict=True)]
    findings.curves["16 shards"] = at, np.mean(curves, axis=0)
    return findings


def _ratio(sharded: Run, whole: Run, window: tuple[float, float]) -> float:
    return sharded.expected_freshness(*window) / whole.expected_freshness(*window)


def _moving(sharded: Run, whole: Run, at: Floats, width: float) -> Floats:
    return np.asarray(sharded.moving(at, width) / whole.moving(at, width))


def _largest(scene: Scene) -> tuple[float, float]:
    """The largest share of pages, and of changes, one shard has."""
    web = scene.population
    shard = [shard_of(parse_url(url).host_id, SHARDS) for url in web.urls]
    counts, changes = np.bincount(shard), np.bincount(shard, weights=web.change_rate)
    return float(counts.max() / counts.sum()), float(changes.max() / changes.sum())
