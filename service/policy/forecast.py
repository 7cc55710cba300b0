"""What the best continuous policy would achieve: the yardstick of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from service.domain import Floats, Model
from service.policy.crawl_value import Cycle, ceiling, evaluate
from service.policy.interval import depth_at

ROUNDING = 1e-9  # so far (relative) above the largest ceiling surely no page is crawled
LOWEST = 1e-30  # share of the largest ceiling below which a price counts as 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The long run under one common price."""

    price: float  # Λ, importance × seconds; 0 if bandwidth exceeds every use of it
    frequency: Floats  # crawls per second of each page
    page_freshness: Floats  # share of time each page is fresh
    freshness: float  # their mean, weighted by importance


def optimum(model: Model, bandwidth: float, counts: Floats | float = 1.0) -> Forecast:
    """Crawl each page when its value reaches Λ, with Σ 1/ψ(s(Λ)) = R crawls per second.

    Dormant pages have frequency 0 and, in the long run, freshness 0; a page that never changes is
    always fresh. With R = 0 every page is dormant. Pages whose every change is signalled (α = 0)
    are crawled no oftener than they are signalled, and their frequency moves in steps: the sum
    may then stay below R. Each page may stand for `counts` pages that are like it.
    """
    top = np.atleast_1d(ceiling(model))
    highest = float(top.max(initial=0.0, where=np.isfinite(top)))
    if bandwidth <= 0 or highest <= 0:
        return _at_price(np.inf, model, counts, price=highest)
    low = _affordable(highest, model, bandwidth, counts)
    if low is None:
        return _at_price(highest * LOWEST, model, counts, price=0.0)

    def excess(log_price: float) -> float:
        total = float(np.sum(counts * _frequency(_cycle(np.exp(log_price), model))))
        return float(np.log(total / bandwidth)) if total > 0 else -1e3

    beyond = np.log(highest) + ROUNDING
    log_price = float(brentq(excess, np.log(low), beyond, xtol=1e-13, rtol=1e-13))
    # At a step of the frequency the root lies on either side of it; the dearer side fits R.
    step = 4e-13 * max(1.0, abs(log_price)) if excess(log_price) > 1e-6 else 0.0
    return _at_price(float(np.exp(log_price + step)), model, counts)


def _affordable(highest: float, model: Model, bandwidth: float, counts: Floats | float) -> float | None:
    """A price at which the pages together want at least the bandwidth, if there is one."""
    price = highest
    while price > highest * LOWEST:
        price /= 8.0
        if np.sum(counts * _frequency(_cycle(price, model))) >= bandwidth:
            return price
    return None


def _at_price(at: float, model: Model, counts: Floats | float, price: float | None = None) -> Forecast:
    cycle = _cycle(at, model)
    frequency = _frequency(cycle)
    # Where nothing ever changes both times are infinite and the page is always fresh.
    always = np.isinf(cycle.fresh_s)
    fresh = np.where(always, 1.0, np.where(always, 0.0, cycle.fresh_s) * frequency)
    weight = np.broadcast_to(counts * np.asarray(model.importance, dtype=np.float64), fresh.shape)
    total = float(np.sum(weight))
    mean = float(np.sum(weight * fresh)) / total if total > 0 else 0.0
    return Forecast(at if price is None else price, frequency, fresh, mean)


def _cycle(price: float, model: Model) -> Cycle:
    return evaluate(depth_at(price, model), model)


def _frequency(cycle: Cycle) -> Floats:
    """1/ψ, 0 for dormant pages."""
    return np.asarray(1.0 / cycle.time_s)
