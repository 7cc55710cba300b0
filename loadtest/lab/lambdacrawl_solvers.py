"""Other ways to LambdaCrawl's optimum, to compare with: the paper's nested search, and a generic solver."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import NonlinearConstraint, minimize

from service.domain import Floats
from service.policy.rates import complete_rates
from service.policy.staleness import Pages, harmonic_cost

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
CLOSE = 1e-9  # of the split, relative to the bandwidth; costs are flat there, so more is not to be had

BlindSolver = Callable[[Pages, float], Floats]


def bisected_rates(pages: Pages, bandwidth: float) -> Floats:
    """Algorithm 1 as printed: bisection of λ between the bounds given there, to the last digit."""
    count, changes, importance = pages.size, pages.change_rate, pages.importance
    squared, crowd = bandwidth**2, count * bandwidth
    low = count**2 * changes.min() * importance.min() / (crowd * changes.max() + squared)
    high = count**2 * changes.max() * importance.max() / (crowd * changes.min() + squared)
    rate = _blind_demand(pages, high)
    while high - low > 1e-15 * high:
        price = 0.5 * (low + high)
        rate = _blind_demand(pages, price)
        if price in (low, high):
            break
        low, high = (price, high) if float(np.sum(rate)) > bandwidth else (low, price)
    return rate


def _blind_demand(pages: Pages, price: float) -> Floats:
    changes = pages.change_rate
    return 0.5 * (np.sqrt(changes**2 + 4.0 * pages.importance * changes / price) - changes)


def nested_rates(pages: Pages, bandwidth: float, solve_blind: BlindSolver = bisected_rates) -> Floats:
    """Algorithm 3 as printed: golden-section search over the observed pages' part of the bandwidth.

    Every candidate split is solved by Algorithms 1 and 2 and judged by its harmonic cost.
    """
    heard, blind = pages.select(pages.observed), pages.select(~pages.observed)

    def solve(part: float) -> Floats:
        rate = np.empty(pages.size)
        rate[pages.observed] = complete_rates(heard, part)
        rate[~pages.observed] = solve_blind(blind, bandwidth - part)
        return rate

    def cost(part: float) -> float:
        return float(np.sum(harmonic_cost(solve(part), pages)))

    return solve(golden_section(cost, 0.0, min(bandwidth, float(np.sum(heard.change_rate)))))


def golden_section(cost: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum has it."""
    width = high - low
    left, right = high - GOLDEN * width, low + GOLDEN * width
    at_left, at_right = cost(left), cost(right)
    while high - low > CLOSE * width:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = cost(right)
    return 0.5 * (low + high)


def generic_rates(pages: Pages, bandwidth: float) -> Floats:
    """The same optimum by sequential quadratic programming, in the form that suited it best.

    Variables are ln ρ, importance and rates are scaled to a mean of 1, derivatives are exact.
    """
    unit = bandwidth / pages.size
    scaled = Pages(pages.importance / np.mean(pages.importance), pages.change_rate / unit, pages.observed)
    highest = np.where(pages.observed, scaled.change_rate, float(pages.size))
    found = minimize(  # type: ignore[call-overload]  # the stubs do not know this method's options
        lambda log_rate: float(np.sum(harmonic_cost(np.exp(log_rate), scaled))),
        np.log(np.minimum(0.5 * highest, 1.0)),
        jac=lambda log_rate: _gradient(np.exp(log_rate), scaled),
        method="SLSQP",
        bounds=[(-30.0, bound) for bound in np.log(highest).tolist()],
        constraints=NonlinearConstraint(
            lambda log_rate: np.sum(np.exp(log_rate)),
            pages.size,
            pages.size,
            jac=lambda x: np.exp(x)[None, :],
        ),
        options={"ftol": 1e-10, "maxiter": 1_000},
    )
    return np.asarray(unit * np.exp(found.x), dtype=np.float64)


def _total(log_rate: Floats) -> float:
    return float(np.sum(np.exp(log_rate)))


def _gradient(rate: Floats, pages: Pages) -> Floats:
    """d cost / d ln ρ."""
    blind = pages.change_rate / (pages.change_rate + rate)
    return -pages.importance * np.where(pages.observed, 1.0, blind)
