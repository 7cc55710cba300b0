"""Crawl rates are optimal, checked by their conditions, by brute force and in every limit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from service.domain import Floats
from service.policy.rates import (
    approximate_rates,
    binary_rates,
    complete_rates,
    harmonic_rates,
    importance_rates,
    proportional_rates,
    uniform_rates,
)
from service.policy.staleness import Pages, binary_cost, harmonic_cost

Solver = Callable[[Pages, float], Floats]


def epsilon_rates(pages: Pages, bandwidth: float) -> Floats:
    return binary_rates(pages, bandwidth, floor_share=0.4)


SOLVERS: tuple[Solver, ...] = (
    harmonic_rates,
    complete_rates,
    approximate_rates,
    binary_rates,
    epsilon_rates,
    uniform_rates,
    proportional_rates,
    importance_rates,
)
EACH = pytest.mark.parametrize("solve", SOLVERS, ids=lambda solver: solver.__name__)


def draw(size: int, observed_share: float, seed: int = 3) -> Pages:
    rng = np.random.default_rng(seed)
    importance, change_rate = np.exp(rng.normal(0.0, 1.2, (2, size)))
    return Pages(importance, change_rate, np.arange(size) < observed_share * size)


def brute_force(cost: Callable[[Floats], float], pages: Pages, bandwidth: float, low: float) -> float:
    """The least cost a generic solver finds, observed pages bounded by their change rate."""
    highest = np.where(pages.observed, pages.change_rate, bandwidth)
    found = minimize(
        cost,
        np.minimum(bandwidth / pages.size, highest * 0.5),
        method="SLSQP",
        bounds=[(low, float(high)) for high in highest],
        constraints=LinearConstraint(np.ones((1, pages.size)), bandwidth, bandwidth),
        tol=1e-12,
    )
    assert found.success
    return float(found.fun)


@EACH
@pytest.mark.parametrize("bandwidth", [1e-6, 3.0, 40.0])
def test_exactly_the_bandwidth_is_spent(solve: Solver, bandwidth: float) -> None:
    pages = draw(200, 0.5)
    rate = solve(pages, bandwidth)
    assert np.all(rate >= 0)
    assert np.sum(rate) == pytest.approx(bandwidth, rel=1e-9)


@EACH
def test_without_bandwidth_nothing_is_crawled(solve: Solver) -> None:
    assert np.all(solve(draw(5, 0.4), 0.0) == 0)


@EACH
def test_equal_pages_are_treated_equally(solve: Solver) -> None:
    pages = Pages(np.full(4, 2.0), np.full(4, 0.7), np.ones(4, dtype=bool))
    np.testing.assert_allclose(solve(pages, 2.0), 0.5, rtol=1e-9)


@EACH
@pytest.mark.parametrize("observed", [True, False])
def test_one_page_gets_all_it_can_use(solve: Solver, observed: bool) -> None:
    pages = Pages(np.array([3.0]), np.array([2.0]), np.array([observed]))
    assert solve(pages, 0.5)[0] == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("observed_share", [0.0, 0.3, 1.0])
def test_every_page_is_worth_the_same_at_the_margin(observed_share: float) -> None:
    """−∂cost/∂ρ is one λ for all pages, at least λ for those crawled at each change."""
    pages = draw(1_000, observed_share)
    rate = harmonic_rates(pages, 400.0)
    gain = np.where(
        pages.observed,
        pages.importance / rate,
        pages.importance * pages.change_rate / (rate * (pages.change_rate + rate)),
    )
    bound = pages.observed & (rate >= pages.change_rate * (1 - 1e-12))
    price = np.median(gain[~bound])
    np.testing.assert_allclose(gain[~bound], price, rtol=1e-9)
    assert np.all(gain[bound] >= price * (1 - 1e-9))
    assert np.all(rate[pages.observed] <= pages.change_rate[pages.observed])


def test_binary_optimum_starves_exactly_the_pages_below_the_price() -> None:
    pages = draw(1_000, 0.0)
    rate = binary_rates(pages, 200.0)
    gain = pages.importance * pages.change_rate / (pages.change_rate + rate) ** 2
    price = np.median(gain[rate > 0])
    np.testing.assert_allclose(gain[rate > 0], price, rtol=1e-8)
    starved = rate == 0
    assert 0 < np.sum(starved) < 1_000
    assert np.all(pages.importance[starved] / pages.change_rate[starved] <= price * (1 + 1e-9))


@pytest.mark.parametrize("observed_share", [0.0, 0.4, 1.0])
def test_harmonic_rates_match_a_generic_solver(observed_share: float) -> None:
    pages, bandwidth = draw(8, observed_share), 2.5
    least = brute_force(lambda r: float(np.sum(harmonic_cost(r, pages))), pages, bandwidth, 1e-6)
    ours = float(np.sum(harmonic_cost(harmonic_rates(pages, bandwidth), pages)))
    assert ours == pytest.approx(least, rel=1e-6)
    assert ours <= least * (1 + 1e-9)


@pytest.mark.parametrize("floor_share", [0.0, 0.4])
def test_binary_rates_match_a_generic_solver(floor_share: float) -> None:
    pages, bandwidth = draw(8, 0.0), 2.5
    floor = floor_share * bandwidth / 8
    least = brute_force(lambda r: float(np.sum(binary_cost(r, pages))), pages, bandwidth, floor)
    ours = float(np.sum(binary_cost(binary_rates(pages, bandwidth, floor_share=floor_share), pages)))
    assert ours == pytest.approx(least, rel=1e-6)


def test_the_approximate_split_is_the_best_of_all_splits() -> None:
    pages, bandwidth = draw(40, 0.5), 10.0
    weight = pages.importance * ~pages.observed

    def cost(observed_part: float) -> float:
        blind = weight * (bandwidth - observed_part) / np.sum(weight)
        heard = np.zeros(40)
        heard[pages.observed] = complete_rates(pages.select(pages.observed), observed_part)
        return float(np.sum(harmonic_cost(blind + heard, pages)))

    ours = float(np.sum(harmonic_cost(approximate_rates(pages, bandwidth), pages)))
    grid = [cost(part) for part in np.linspace(0.05, 9.95, 2_000)]
    assert min(grid) == pytest.approx(ours, rel=1e-5)
    assert ours <= min(grid)


def test_the_approximation_is_exact_where_importance_follows_the_change_rate() -> None:
    """Proposition 10, with signals for some pages as well."""
    pages = draw(50, 0.3)
    pages = Pages(3.0 * pages.change_rate, pages.change_rate, pages.observed)
    np.testing.assert_allclose(approximate_rates(pages, 9.0), harmonic_rates(pages, 9.0), rtol=1e-6)


def test_the_loop_over_observed_pages_agrees_with_the_search() -> None:
    pages = draw(2_000, 1.0)
    np.testing.assert_allclose(complete_rates(pages, 900.0), harmonic_rates(pages, 900.0), rtol=1e-9)


def test_the_loop_goes_on_while_it_finds_violations() -> None:
    """μ/Δ falls by page, so that each round sates one more: a single round would overfill the second."""
    importance = np.array([8.0, 4.0, 2.0, 1.0])
    change_rate = np.array([1.0, 1.2, 1.4, 4.0])
    pages = Pages(importance, change_rate, np.ones(4, dtype=bool))
    first_round = importance * 4.2 / 15.0
    assert np.sum(first_round >= change_rate) == 1
    np.testing.assert_allclose(complete_rates(pages, 4.2), [1.0, 1.2, 4.0 / 3, 2.0 / 3], rtol=1e-12)


def test_every_change_is_crawled_when_bandwidth_allows() -> None:
    pages = draw(50, 1.0)
    for solve in (harmonic_rates, complete_rates, approximate_rates):
        rate = solve(pages, 2.0 * float(np.sum(pages.change_rate)))
        np.testing.assert_allclose(rate, pages.change_rate, rtol=1e-12)


def test_large_bandwidth_reaches_unobserved_pages_only() -> None:
    pages = draw(50, 0.5)
    rate = harmonic_rates(pages, 1e7)
    np.testing.assert_array_equal(rate[pages.observed], pages.change_rate[pages.observed])
    ratio = rate[~pages.observed] / np.sqrt((pages.importance * pages.change_rate)[~pages.observed])
    np.testing.assert_allclose(ratio, np.mean(ratio), rtol=1e-3)


def test_little_bandwidth_is_shared_by_importance() -> None:
    """ρ → μ/λ for all pages as λ → ∞."""
    pages = draw(50, 0.5)
    np.testing.assert_allclose(harmonic_rates(pages, 1e-6), importance_rates(pages, 1e-6), rtol=1e-4)


@pytest.mark.parametrize("solve", [harmonic_rates, complete_rates, binary_rates, proportional_rates])
def test_pages_that_never_change_are_left_alone(solve: Solver) -> None:
    pages = draw(20, 0.5)
    change_rate = np.where(np.arange(20) % 2 == 0, 0.0, pages.change_rate)
    rate = solve(Pages(pages.importance, change_rate, pages.observed), 2.0)
    assert np.all(rate[::2] == 0)
    assert np.sum(rate) == pytest.approx(2.0, rel=1e-9)


@EACH
def test_a_web_without_changes_is_no_error(solve: Solver) -> None:
    rate = solve(Pages(np.ones(3), np.zeros(3), np.zeros(3, dtype=bool)), 2.0)
    assert np.all(np.isfinite(rate))


def test_repeated_flooring_ends_where_the_one_search_does() -> None:
    pages, bandwidth, share = draw(500, 0.0), 100.0, 0.4
    floor, fixed, rounds = share * bandwidth / 500, np.zeros(500, dtype=bool), 0
    rate = np.full(500, floor)
    while True:
        rest = ~fixed
        rate[rest] = binary_rates(pages.select(rest), bandwidth - floor * float(np.sum(fixed)))
        below = rest & (rate < floor)
        if not below.any():
            break
        rate[below], fixed, rounds = floor, fixed | below, rounds + 1
    assert rounds > 1  # so that a single round would leave pages below the floor
    np.testing.assert_allclose(epsilon_rates(pages, bandwidth), rate, rtol=1e-9)


@pytest.mark.parametrize("share", [0.01, 0.4, 0.9, 1.0])
def test_a_floor_starves_no_page(share: float) -> None:
    pages = draw(500, 0.0)
    rate = binary_rates(pages, 20.0, floor_share=share)
    assert np.min(rate) >= share * 20.0 / 500 * (1 - 1e-12)
    assert np.all(np.isfinite(harmonic_cost(rate, pages)))


def test_proportional_rates_keep_every_page_equally_stale() -> None:
    """Binary cost is μΔ̄/(Δ̄ + R/m) with Δ̄ the mean: a page's own change rate cancels."""
    pages = draw(100, 0.0)
    stale = binary_cost(proportional_rates(pages, 20.0), pages) / pages.importance
    mean = np.mean(pages.change_rate)
    np.testing.assert_allclose(stale, mean / (mean + 0.2), rtol=1e-12)


def test_uniform_beats_proportional_for_equally_important_pages() -> None:
    """Both costs are concave in Δ at one rate, and ChangeRateCrawl attains the value at the mean."""
    pages = draw(100, 0.0)
    pages = Pages(np.ones(100), pages.change_rate, pages.observed)
    for cost in (harmonic_cost, binary_cost):
        even, proportional = (
            np.sum(cost(f(pages, 20.0), pages)) for f in (uniform_rates, proportional_rates)
        )
        assert even < proportional
