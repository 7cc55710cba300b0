"""Best rates of random crawls: optimality, known cases, and what they are worth by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, minimize

from loadtest.lab.learning_delay import simulate_delay
from loadtest.lab.learning_explore import Web
from loadtest.lab.poisson_rates import (
    delay_cost,
    delay_optimal_rates,
    freshness_utility,
    optimal_rates,
    regular_utility,
)
from service.domain import Floats


def pages(seed: int, count: int) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    return np.exp(generator.normal(0.0, 1.5, count)), np.exp(generator.normal(0.0, 1.0, count))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bandwidth", [0.1, 2.0, 50.0])
def test_crawled_pages_have_one_price_and_the_others_are_not_worth_it(seed: int, bandwidth: float) -> None:
    change_rate, importance = pages(seed, 40)
    rates = optimal_rates(change_rate, importance, bandwidth)
    assert np.sum(rates) == pytest.approx(bandwidth, rel=1e-12)
    gain = importance * change_rate / (change_rate + rates) ** 2
    price = gain[rates > 0][0]
    np.testing.assert_allclose(gain[rates > 0], price, rtol=1e-9)
    assert np.all(gain[rates == 0] <= price * (1 + 1e-9))


@pytest.mark.parametrize("slotted", [False, True])
def test_rates_agree_with_a_general_optimiser(slotted: bool) -> None:
    """Its constraint tolerance and step limit the agreement to about 1e-4."""
    change_rate, importance = pages(9, 5)
    if slotted:
        change_rate = -np.expm1(-change_rate)
    bend = 1.0 - change_rate if slotted else np.ones(5)

    def loss(rates: Floats) -> float:
        return -float(freshness_utility(rates, change_rate, importance, bend))

    found = minimize(
        loss,
        np.full(5, 0.2),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(np.ones((1, 5)), 1.0, 1.0),
        method="SLSQP",
        tol=1e-13,
    )
    np.testing.assert_allclose(optimal_rates(change_rate, importance, 1.0, bend), found.x, atol=3e-4)


def test_many_instances_are_solved_as_each_alone() -> None:
    several = [pages(seed, 30) for seed in range(3)]
    together = optimal_rates(np.array([c for c, _ in several]), np.array([i for _, i in several]), 3.0)
    for row, (change_rate, importance) in zip(together, several, strict=True):
        np.testing.assert_allclose(row, optimal_rates(change_rate, importance, 3.0), rtol=1e-12)


def test_equal_pages_are_crawled_alike() -> None:
    np.testing.assert_allclose(optimal_rates(np.full(4, 0.3), np.full(4, 2.0), 1.0), 0.25)


def crawl_gaps(rng: np.random.Generator, rate: float, cycles: int, *, regular: bool) -> Floats:
    return np.full(cycles, 1 / rate) if regular else rng.exponential(1 / rate, cycles)


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize(("rate", "change_rate"), [(0.5, 0.2), (1.0, 3.0)])
def test_freshness_is_what_a_simulation_finds(regular: bool, rate: float, change_rate: float) -> None:
    """Within 3 standard errors over 200 runs of 1,000 crawls."""
    rng = np.random.default_rng(5)
    gaps = np.array([crawl_gaps(rng, rate, 1_000, regular=regular) for _ in range(200)])
    fresh = np.minimum(rng.exponential(1 / change_rate, gaps.shape), gaps)
    share = np.sum(fresh, axis=1) / np.sum(gaps, axis=1)
    equal = regular_utility(1 / rate, [change_rate], [1.0])
    stated = equal if regular else freshness_utility([rate], [change_rate], [1.0])
    assert abs(np.mean(share) - stated) < 3 * np.std(share, ddof=1) / np.sqrt(len(share))


def test_delay_is_what_a_simulation_finds() -> None:
    """Within 3 standard errors over 40 runs of 2,000 crawls of each page."""
    change_rate, importance = pages(2, 6)
    web = Web(change_rate, importance, 3.0)
    for rates in (delay_optimal_rates(change_rate, importance, 3.0), np.full(6, 0.5)):
        found = [simulate_delay(web, rates, 2_000, np.random.default_rng([8, each])) for each in range(40)]
        error = np.std(found, ddof=1) / np.sqrt(len(found))
        assert abs(np.mean(found) - delay_cost(rates, change_rate, importance)) < 3 * error


def test_rates_best_for_delay_cannot_be_improved_and_cost_what_the_closed_form_says() -> None:
    change_rate, importance = pages(3, 8)
    rates = delay_optimal_rates(change_rate, importance, 2.0)
    least = float(delay_cost(rates, change_rate, importance))
    assert np.sum(rates) == pytest.approx(2.0)
    assert least == pytest.approx(np.sum(np.sqrt(change_rate * importance)) ** 2 / 2.0)
    rng = np.random.default_rng(4)
    for _ in range(50):
        other = rates * np.exp(rng.normal(0.0, 0.1, 8))
        assert delay_cost(other * 2.0 / np.sum(other), change_rate, importance) > least


def test_a_page_never_crawled_is_delayed_for_ever() -> None:
    assert delay_cost([0.0, 1.0], [1.0, 1.0], [1.0, 1.0]) == np.inf
