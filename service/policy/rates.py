"""Crawl rates solved beforehand: LambdaCrawl and what it is compared with, vectorised over pages.

Every solver takes pages and a bandwidth R (the same unit of time) and returns the rates ρ; an
observed page is crawled at each of its changes with probability p = ρ/Δ. Rates of a shard drive
the scheduler as V = ρι. Equations and numbers are those of the LambdaCrawl paper.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from service.domain import Floats
from service.policy.staleness import Pages

CLOSE = 1e-13  # of the logarithm of a price
STRIDE = 16.0  # by which a bracket is widened
LOWEST = 1e-60  # of the price to start from: what is not wanted here is never wanted

Demand = Callable[[float], Floats]


def harmonic_rates(pages: Pages, bandwidth: float) -> Floats:
    """Least harmonic cost: Algorithm 3, and Algorithm 1 where no page is observed.

    At the optimum all pages share one multiplier λ, so that one search over it replaces the search
    for the split between observed and unobserved pages:

        ρ = (−Δ + √(Δ² + 4μΔ/λ))/2  (eq. 7),    ρ = min(Δ, μ/λ) where observed (eq. 10 at p ≤ 1).

    No page starves that changes and matters. Bandwidth beyond one crawl per change is left unused
    if all pages are observed.
    """
    return _spend(lambda price: _harmonic_demand(pages, price), pages, bandwidth)


def complete_rates(pages: Pages, bandwidth: float) -> Floats:
    """Least harmonic cost if all pages are observed, without a search: Algorithm 2.

    Bandwidth is shared by importance (eq. 10); pages given more than one crawl per change keep
    exactly one, the others share what is left, until nobody is given too much.
    """
    rate = np.zeros(pages.size)
    left, bandwidth_left = pages.change_rate > 0, bandwidth
    while left.any():
        weight = float(np.sum(pages.importance[left]))
        share = pages.importance[left] * (bandwidth_left / weight) if weight > 0 else 0.0
        rate[left] = share
        sated = left & (rate >= pages.change_rate)
        if not sated.any():
            break
        rate[sated] = pages.change_rate[sated]
        left &= ~sated
        bandwidth_left = max(0.0, bandwidth_left - float(np.sum(pages.change_rate[sated])))
    return rate


def approximate_rates(pages: Pages, bandwidth: float) -> Floats:
    """LambdaCrawlApprox: unobserved pages share their part by importance, ρ = μx (Proposition 10).

    Exact where μ/Δ is the same for all of them. The split follows from one search over x: one more
    crawl is worth λ(x) = Σ μΔ/(x(Δ + μx)) / Σ μ among the unobserved, and at that price the
    observed take min(Δ, μ/λ).
    """
    blind = pages.select(~pages.observed)
    weight = float(np.sum(blind.importance))
    if weight <= 0 or not np.any(blind.importance * blind.change_rate > 0):
        return complete_rates(pages, bandwidth)

    def demand(inverse: float) -> Floats:
        level = 1.0 / inverse
        changes, crawls = blind.change_rate, blind.importance * level
        gains = np.divide(crawls * changes, changes + crawls, out=np.zeros_like(crawls), where=crawls > 0)
        price = float(np.sum(gains)) / (level * level * weight)
        return np.where(pages.observed, _observed_demand(pages, price), pages.importance * level)

    return _spend(demand, pages, bandwidth)


def binary_rates(pages: Pages, bandwidth: float, *, floor_share: float = 0.0) -> Floats:
    """Least binary cost of crawls that ignore signals: BinaryLambdaCrawl, and ε-BLC with a floor.

    ρ = max(εR/m, √(μΔ/λ) − Δ) with Σ ρ = R. Raising pages to the floor and solving again for the
    rest ends here too, if repeated until no page is below it: each round only raises λ.
    """
    if floor_share >= 1.0:
        return uniform_rates(pages, bandwidth)
    floor = floor_share * bandwidth / max(pages.size, 1)

    def demand(price: float) -> Floats:
        wanted = np.sqrt(pages.importance * pages.change_rate / price) - pages.change_rate
        return np.maximum(wanted, floor)

    return _spend(demand, pages, bandwidth)


def uniform_rates(pages: Pages, bandwidth: float) -> Floats:
    """R/m each: UniformCrawl."""
    return np.full(pages.size, bandwidth / max(pages.size, 1))


def proportional_rates(pages: Pages, bandwidth: float) -> Floats:
    """ΔR/ΣΔ: ChangeRateCrawl; evenly if nothing ever changes."""
    total = float(np.sum(pages.change_rate))
    return pages.change_rate * (bandwidth / total) if total > 0 else uniform_rates(pages, bandwidth)


def importance_rates(pages: Pages, bandwidth: float) -> Floats:
    """μR/Σμ; evenly if nothing matters."""
    total = float(np.sum(pages.importance))
    return pages.importance * (bandwidth / total) if total > 0 else uniform_rates(pages, bandwidth)


def _harmonic_demand(pages: Pages, price: float) -> Floats:
    """The rates wanted at price λ; the root written so that nothing cancels."""
    wealth, changes = pages.importance / price, pages.change_rate
    scale = np.divide(wealth, changes, out=np.full_like(wealth, np.inf), where=changes > 0)
    blind = 2.0 * wealth / (1.0 + np.sqrt(1.0 + 4.0 * scale))
    return np.where(pages.observed, _observed_demand(pages, price), blind)


def _observed_demand(pages: Pages, price: float) -> Floats:
    return np.minimum(pages.change_rate, pages.importance / price)


def _spend(demand: Demand, pages: Pages, bandwidth: float) -> Floats:
    """The rates wanted at the price at which they add up to the bandwidth.

    `demand` decreases with its argument. Without a floor nobody wants more than μ/λ, so the search
    widens from λ = Σμ/R. Where even free crawls are not wanted, what is wanted is given.
    """
    weight = float(np.sum(pages.importance * (pages.change_rate > 0)))
    if bandwidth <= 0 or weight <= 0:
        return np.zeros(pages.size)

    def excess(log_price: float) -> float:
        total = float(np.sum(demand(np.exp(log_price))))
        return (total - bandwidth) / (total + bandwidth)

    high = low = np.log(weight / bandwidth)
    if excess(low + np.log(LOWEST)) < 0:
        return demand(weight / bandwidth * LOWEST)
    while excess(high) > 0:
        high += np.log(STRIDE)
    while excess(low) < 0:
        low -= np.log(STRIDE)
    return demand(float(np.exp(brentq(excess, low, high, xtol=CLOSE, rtol=CLOSE))))
