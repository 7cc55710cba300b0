"""Rates of crawls at random moments: what they are worth, and the best ones under a bandwidth.

Pages are the last axis of every array, so that many instances are solved together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from service.domain import Floats


def freshness_utility(
    rates: ArrayLike, change_rate: ArrayLike, importance: ArrayLike, bend: ArrayLike = 1.0
) -> Floats:
    """F(ρ) = Σ μρ/(Δ + cρ): requests that find a fresh copy, per unit of time.

    c = 1 for Poisson crawls and changes ("Learning to crawl", eq. (5)). In slots, with a chance Δ of
    a change and a chance ρ of a crawl in each, c = 1 − Δ ("Deep reinforcement learning", eq. (8)).
    """
    crawled, bent = np.asarray(rates, dtype=np.float64), np.asarray(bend, dtype=np.float64)
    fresh = crawled / (np.asarray(change_rate, dtype=np.float64) + bent * crawled)
    return np.asarray(np.sum(np.asarray(importance, dtype=np.float64) * fresh, axis=-1))


def regular_utility(interval: float, change_rate: ArrayLike, importance: ArrayLike) -> Floats:
    """The same when every page is crawled at equal intervals w: Σ μ (1 − e^(−Δw))/(Δw), Appendix H."""
    depth = np.asarray(change_rate, dtype=np.float64) * interval
    return np.asarray(np.sum(np.asarray(importance, dtype=np.float64) * -np.expm1(-depth) / depth, axis=-1))


def optimal_rates(
    change_rate: ArrayLike, importance: ArrayLike, bandwidth: float, bend: ArrayLike = 1.0
) -> Floats:
    """The rates that maximise F under Σρ = bandwidth, exactly, by one sort; Δ > 0 and c > 0.

    A crawled page has μΔ/(Δ + cρ)² = Λ, hence ρ = (s√(μΔ) − Δ)/c with s = Λ^(−1/2); a page with
    μ/Δ ≤ Λ is never crawled. So the crawled pages are the first k by μ/Δ, each k gives its s, and
    the right k is the last whose own page still gets a positive rate.
    """
    change, weight, bend = np.broadcast_arrays(
        np.asarray(change_rate, dtype=np.float64), np.asarray(importance, dtype=np.float64), bend
    )
    root = np.sqrt(weight * change)
    order = np.argsort(-weight / change, axis=-1, kind="stable")
    spent = np.cumsum(np.take_along_axis(change / bend, order, -1), axis=-1)
    gained = np.cumsum(np.take_along_axis(root / bend, order, -1), axis=-1)
    scale = (bandwidth + spent) / gained
    positive = scale * np.take_along_axis(root, order, -1) > np.take_along_axis(change, order, -1)
    last = np.sum(positive, axis=-1, keepdims=True) - 1
    return np.asarray(np.maximum(np.take_along_axis(scale, last, -1) * root - change, 0.0) / bend)


def delay_cost(rates: ArrayLike, change_rate: ArrayLike, importance: ArrayLike) -> Floats:
    """Σ μΔ/ρ: each change counts for as long as it is missed, on average 1/ρ; eq. (25), negated.

    Infinite when a page that changes is never crawled.
    """
    weight = np.asarray(importance, dtype=np.float64) * np.asarray(change_rate)
    rates = np.broadcast_to(np.asarray(rates, dtype=np.float64), weight.shape)
    cost = np.divide(weight, rates, out=np.full(weight.shape, np.inf), where=rates > 0)
    return np.asarray(np.sum(cost, axis=-1))


def delay_optimal_rates(change_rate: ArrayLike, importance: ArrayLike, bandwidth: float) -> Floats:
    """ρ = R√(μΔ)/Σ√(μΔ), at which the cost is (Σ√(μΔ))²/R; eqs. (26) and (27)."""
    root = np.sqrt(np.asarray(importance, dtype=np.float64) * np.asarray(change_rate))
    return np.asarray(bandwidth * root / np.sum(root, axis=-1, keepdims=True))
