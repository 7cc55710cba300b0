"""Costs in closed form are what simulated crawls cost."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.lab.staleness import Events, count_staleness, harmonic_number, run_rates
from service.domain import Floats
from service.policy.staleness import Pages, binary_cost, delay_cost, harmonic_cost


def events(*pairs: tuple[int, float]) -> Events:
    return Events(np.array([page for page, _ in pairs]), np.array([at for _, at in pairs]))


def test_missed_changes_are_counted_by_hand() -> None:
    """Page 0 misses 1 change for 2, then 2 for 1, is crawled, and misses 1 for the last 3 of 10."""
    changes = events((0, 2.0), (1, 9.0), (0, 4.0), (0, 7.0))
    crawls = events((0, 5.0), (1, 1.0))
    found = count_staleness(changes, crawls, 3, 10.0)
    np.testing.assert_allclose(found.delay, [(2 + 2 + 3) / 10, 0.1, 0.0])
    np.testing.assert_allclose(found.binary, [6 / 10, 0.1, 0.0])
    np.testing.assert_allclose(found.harmonic, [(2 + 1.5 + 3) / 10, 0.1, 0.0], atol=1e-12)


def test_only_the_time_counted_counts() -> None:
    changes, crawls = events((0, 2.0), (0, 6.0)), events((0, 5.0))
    found = count_staleness(changes, crawls, 1, 10.0, since=4.0)
    np.testing.assert_allclose(found.delay, [(1 + 4) / 6])


def test_a_crawl_at_a_change_gets_it() -> None:
    found = count_staleness(events((0, 2.0)), events((0, 2.0)), 1, 10.0)
    assert found.delay[0] == 0


def test_harmonic_numbers() -> None:
    np.testing.assert_allclose(
        harmonic_number(np.array([0.0, 1.0, 2.0, 4.0])), [0, 1, 1.5, 25 / 12], atol=1e-12
    )


@pytest.mark.parametrize("observed", [False, True])
def test_closed_form_costs_are_those_of_simulated_crawls(observed: bool) -> None:
    """Twenty kinds of pages, 300 copies of each: within 3 standard errors, at most one of 20 beyond.

    The chance that two of 20 normal deviations exceed 3 is about 0.1 %; the generator is fixed.
    The time before 60, at least six mean intervals between crawls, is not counted.
    """
    rng, copies, kinds = np.random.default_rng(11), 300, 20
    change_rate, importance = rng.uniform(0.1, 2.0, kinds), rng.uniform(0.5, 2.0, kinds)
    rate = change_rate * rng.uniform(0.4, 0.9, kinds) if observed else rng.uniform(0.1, 1.0, kinds)
    pages = Pages(importance, change_rate, np.full(kinds, observed))
    many = pages.select(np.tile(np.arange(kinds), copies))
    found, crawls = run_rates(many, np.tile(rate, copies), 100.0, rng, since=60.0)
    expected = copies * float(np.sum(rate)) * 100.0
    assert abs(crawls - expected) < 3 * np.sqrt(expected)
    for cost, seen in (
        (harmonic_cost, found.harmonic),
        (binary_cost, found.binary),
        (delay_cost, found.delay),
    ):
        sample = seen.reshape(copies, kinds) * importance
        error = np.std(sample, axis=0, ddof=1) / np.sqrt(copies)
        off = np.abs(np.mean(sample, axis=0) - cost(rate, pages)) / error
        assert np.sum(off > 3) <= 1, cost.__name__
        assert np.max(off) < 5


@pytest.mark.parametrize("cost", [harmonic_cost, binary_cost, delay_cost])
def test_costs_at_the_edges(cost: object) -> None:
    assert callable(cost)
    one = np.ones(1)
    for observed in (True, False):
        flags = np.array([observed])
        never = Pages(one, 0.0 * one, flags)
        worthless = Pages(0.0 * one, one, flags)
        assert cost(0.0 * one, never)[0] == 0
        assert cost(one, never)[0] == 0
        assert cost(0.0 * one, worthless)[0] == 0
        starved: Floats = cost(0.0 * one, Pages(one, one, flags))
        assert starved[0] == (1.0 if cost is binary_cost else np.inf)
    assert cost(one, Pages(one, one, np.array([True])))[0] == 0  # crawled at every change
