"""The objectives a crawl value can serve, behind one interface.

`harmonic` and `delay` are defined for pages without signals, V(ι) = ∫₀^ι u g'(u) du with g the
cost of being stale. For pages with signals they use the depth s as if it were Δι. That is a choice,
not a theorem; `valuation.py` says what a signal adds to the depth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from service.domain import Floats, Model
from service.policy import crawl_value, interval

NEWTON_STEPS = 8  # from above on a convex function: six reach rounding for every level
SERIES_TERMS = 20  # 1/20! < 1e-18


# (near, far): a slope that grows by near per unit of depth, or where far > 0 towards far as e^(−near·depth).
Growth = Callable[[Model], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class Objective:
    """A crawl value, its slope and limit, and its inverse, all in depth.

    The value is 0 at depth 0 and increases; a page that never changes has value 0 at any depth
    and is never due, whatever its ceiling says.
    """

    name: str
    value: Callable[[ArrayLike, Model], Floats]
    slope: Callable[[ArrayLike, Model], Floats]
    ceiling: Callable[[Model], Floats]
    depth_at: Callable[[ArrayLike, Model], Floats]
    growth: Growth | None = None  # how the slope grows, if the value has no ceiling
    most: Callable[[ArrayLike, Model], Floats] | None = None  # a bound of a value that is dear to compute


def _scale(model: Model) -> Floats:
    """μ/Δ, the unit of every value; 0 where Δ = 0 so that value and slope vanish."""
    unit = crawl_value.ceiling(model)
    return np.where(np.isfinite(unit), unit, 0.0)


def _scaled(level: Floats, model: Model) -> Floats:
    """(μ/Δ)·level; 0 where μ/Δ is, even at infinite depth."""
    unit, level = np.broadcast_arrays(_scale(model), level)
    return np.asarray(np.multiply(unit, level, out=np.zeros(unit.shape), where=unit > 0))


def _unbounded(model: Model) -> Floats:
    """No ceiling: every page that changes is due in finite time, none starves."""
    return np.full_like(model.change_rate, np.inf)


def _inverse(price: ArrayLike, model: Model, solve: Callable[[Floats], Floats]) -> Floats:
    """Depth from level = θΔ/μ; 0 where θ ≤ 0, infinite where the value is 0 for ever."""
    price, unit = np.broadcast_arrays(np.asarray(price, dtype=np.float64), _scale(model))
    depth = np.where(price > 0, np.inf, 0.0)
    solvable = (price > 0) & (unit > 0)
    depth[solvable] = solve(price[solvable] / unit[solvable])
    return depth


def _harmonic_level(depth: Floats) -> Floats:
    """s − (1 − e^(−s)); for s < 1 as e^(−s) Σ_{j≥2} (j−1) s^j/j!, which does not cancel."""
    small = np.minimum(depth, 1.0)
    series = np.zeros_like(small)
    for j in range(SERIES_TERMS, 1, -1):
        series = series * small + (j - 1) / factorial(j)
    return np.where(depth < 1.0, np.exp(-small) * series * small**2, depth + np.expm1(-depth))


def _harmonic_depth(level: Floats) -> Floats:
    """Newton from above: level + √(2·level) exceeds the root of s − (1 − e^(−s)) = level."""
    depth = level + np.sqrt(2.0 * level)
    for _ in range(NEWTON_STEPS):
        depth = depth + (level - _harmonic_level(depth)) / -np.expm1(-depth)
    return depth


def harmonic_value(depth: ArrayLike, model: Model) -> Floats:
    """V = μ(ι − (1 − e^(−Δι))/Δ) with Δι = s: the harmonic staleness of LambdaCrawl."""
    return _scaled(_harmonic_level(np.asarray(depth, dtype=np.float64)), model)


def harmonic_slope(depth: ArrayLike, model: Model) -> Floats:
    """dV/ds = (μ/Δ)(1 − e^(−s))."""
    return _scaled(-np.expm1(-np.asarray(depth, dtype=np.float64)), model)


def harmonic_depth_at(price: ArrayLike, model: Model) -> Floats:
    """s with V(s) = θ; finite for every page that changes."""
    return _inverse(price, model, _harmonic_depth)


def delay_value(depth: ArrayLike, model: Model) -> Floats:
    """V = μΔι²/2 with Δι = s: every missed change counts for as long as it is missed."""
    return _scaled(np.asarray(depth, dtype=np.float64) ** 2 / 2.0, model)


def delay_slope(depth: ArrayLike, model: Model) -> Floats:
    """dV/ds = (μ/Δ)s."""
    return _scaled(np.asarray(depth, dtype=np.float64), model)


def delay_depth_at(price: ArrayLike, model: Model) -> Floats:
    """s = √(2θΔ/μ)."""
    return _inverse(price, model, lambda level: np.sqrt(2.0 * level))


FRESHNESS = Objective(
    name="freshness",
    value=crawl_value.crawl_value,
    slope=crawl_value.value_slope,
    ceiling=crawl_value.ceiling,
    depth_at=interval.depth_at,
    most=crawl_value.most_value,
)
HARMONIC = Objective(
    name="harmonic",
    value=harmonic_value,
    slope=harmonic_slope,
    ceiling=_unbounded,
    depth_at=harmonic_depth_at,
    growth=lambda model: (np.ones_like(model.change_rate), _scale(model)),
)
DELAY = Objective(
    name="delay",
    value=delay_value,
    slope=delay_slope,
    ceiling=_unbounded,
    depth_at=delay_depth_at,
    growth=lambda model: (_scale(model), np.zeros_like(model.change_rate)),
)
OBJECTIVES = MappingProxyType({o.name: o for o in (FRESHNESS, HARMONIC, DELAY)})
