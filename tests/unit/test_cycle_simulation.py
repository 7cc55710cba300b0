"""Cycle time and freshness against simulated pages under a threshold policy."""

from __future__ import annotations

import numpy as np
import pytest

from service.domain import Floats, Model
from service.policy.crawl_value import evaluate


def simulate(
    depth: float, model: Model, cycles: int, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """(cycle time, fresh time in it) of many cycles of one page crawled at a depth."""
    silent, weight, signals = model.silent_rate, model.signal_weight, model.signal_rate
    first_change = generator.exponential(1.0, cycles) / silent
    clock, heard, length = np.zeros(cycles), 0, np.zeros(cycles)
    open_ = np.arange(cycles)
    while open_.size:
        crossing = (depth - weight * heard) / silent
        arrival = clock[open_] + generator.exponential(1.0 / signals, open_.size)
        true = generator.random(open_.size) < model.precision
        length[open_] = np.minimum(crossing, arrival)
        came = arrival < crossing
        changed = open_[came & true]
        first_change[changed] = np.minimum(first_change[changed], arrival[came & true])
        clock[open_], heard = arrival, heard + 1
        # The signal itself may carry the page to its depth.
        open_ = open_[came & (silent * arrival + weight * heard < depth)]
    return length, np.minimum(length, first_change)


@pytest.mark.parametrize(
    ("depth", "silent", "weight", "signals"),
    [(1.2, 0.3, 0.5, 0.9), (0.4, 0.8, 1.1, 0.3), (3.0, 0.05, 0.7, 0.5), (2.0, 0.4, 0.06, 2.0)],
)
def test_simulated_pages_match_within_four_standard_errors(
    depth: float, silent: float, weight: float, signals: float
) -> None:
    cycles = 200_000
    model = Model(*(np.array(x) for x in (1.0, silent, weight, signals)))
    length, fresh = simulate(depth, model, cycles, np.random.default_rng(17))
    cycle = evaluate(depth, model)
    root = np.sqrt(cycles)
    assert abs(length.mean() - cycle.time_s) < 4 * length.std() / root
    assert abs(fresh.mean() - cycle.fresh_s) < 4 * fresh.std() / root
    frequency, freshness = 1 / cycle.time_s, cycle.fresh_s / cycle.time_s
    frequency_error = length.std() / root / length.mean() ** 2
    freshness_error = (fresh - freshness * length).std() / root / length.mean()
    assert abs(1 / length.mean() - frequency) < 4 * frequency_error
    assert abs(fresh.mean() / length.mean() - freshness) < 4 * freshness_error
