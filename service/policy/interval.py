"""When a page is due: the inverse of the crawl value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.domain import Floats, Model
from service.policy.crawl_value import ceiling, evaluate, slope_of

# (V, dV/ds) as shares of V(∞), at the depths of pages.
Curve = Callable[[Floats, Model], tuple[Floats, Floats]]

CLOSE = 1e-6  # a Newton step this small (relative) is followed by one below rounding
MAX_STEPS = 60  # bisection on a log scale alone would need fewer


def depth_at(price: ArrayLike, model: Model) -> Floats:
    """s(θ) with V(s) = θ: the depth at which each page is due at a price.

    0 where θ ≤ 0; infinite (dormant) where the ceiling μ/Δ ≤ θ and where Δ = 0.
    """
    top = ceiling(model)
    price, top = np.broadcast_arrays(np.asarray(price, dtype=np.float64), top)
    depth = np.where(price > 0, np.inf, 0.0)
    solvable = (price > 0) & (price < top) & np.isfinite(top)
    if solvable.any():
        pages = select(model, solvable)
        level = price[solvable] / top[solvable]
        depth[solvable] = invert(_exact, level, pages, _bracket(level, pages))
    return depth


def revisit_interval_s(price: ArrayLike, model: Model) -> Floats:
    """ι(θ) = s(θ)/α, seconds of effective elapsed time; infinite where nothing goes unsignalled."""
    depth = depth_at(price, model)
    silent = np.broadcast_to(np.asarray(model.silent_rate, dtype=np.float64), depth.shape)
    out = np.where(depth > 0, np.inf, 0.0)
    return np.divide(depth, silent, out=out, where=silent > 0)


def select(model: Model, mask: NDArray[np.bool_]) -> Model:
    """The pages of a model under a mask of the same shape (scalar fields are spread first)."""
    fields = (model.importance, model.silent_rate, model.signal_weight, model.signal_rate)
    spread = (np.broadcast_to(np.asarray(a, dtype=np.float64), mask.shape)[mask] for a in fields)
    return Model(*spread)


def part(model: Model, which: slice) -> Model:
    """Some of a model's pages, by their places."""
    return Model(*(a[which] for a in _fields(model)))


def join(models: list[Model]) -> Model:
    """Pages of several models as one, in their order."""
    return Model(*(np.concatenate(columns) for columns in zip(*map(_fields, models), strict=True)))


def _fields(model: Model) -> tuple[Floats, ...]:
    return model.importance, model.silent_rate, model.signal_weight, model.signal_rate


@dataclass(slots=True)
class _Search:
    """Unconverged pages: log s, its bracket, and the log of the exponent sought."""

    log_depth: Floats
    low: Floats
    high: Floats
    target: Floats


def invert(curve: Curve, level: Floats, model: Model, bracket: tuple[Floats, Floats]) -> Floats:
    """The depth at which an increasing curve reaches the level, in (0, 1), of each page.

    Newton on log z against log s, where z = −log(1 − V/V(∞)). Without signals z = s − log(1+s), with
    perfect ones z = s: in logarithms every page lies between slopes 1 and 2, so a few steps
    suffice. The step is bisected where it leaves the bracket, which shrinks with every evaluation.
    """
    depth = np.empty_like(level)
    page = np.arange(level.size)
    low, high = np.log(bracket[0]), np.log(bracket[1])
    # The slack covers the rounding of bounds that many pages meet exactly.
    search = _Search(0.5 * (low + high), low - 1e-9, high + 1e-9, np.log(-np.log1p(-level)))
    for _ in range(MAX_STEPS):
        step = _newton_step(curve, search, model)
        done = np.abs(step) <= CLOSE
        search.log_depth += step
        depth[page[done]] = np.exp(search.log_depth[done])
        if done.all():
            return depth
        page, model = page[~done], select(model, ~done)
        search = _Search(search.log_depth[~done], search.low[~done], search.high[~done], search.target[~done])
    depth[page] = np.exp(search.log_depth)
    return depth


def _bracket(level: Floats, model: Model) -> tuple[Floats, Floats]:
    """Bounds of the depth at which VΔ/μ reaches the level.

    A cycle never takes longer than s/α, and ψ increases, so s ≥ R_1^(−1)(θα/μ) and s ≥ z(θ);
    signals only bring a page forward, so s ≤ R_1^(−1)(θΔ/μ). That inverse is −W_−1(−e^(−1−z)) − 1, which
    lies between √(2z) + 2z/3 and √(2z) + z (Chatzigeorgiou 2013, theorem 1).
    """
    exponent = -np.log1p(-level)
    slowest = -np.log1p(-level * model.silent_rate / model.change_rate)
    low = np.maximum(exponent, np.sqrt(2.0 * slowest) + 2.0 / 3.0 * slowest)
    return low, np.maximum(low, np.sqrt(2.0 * exponent) + exponent)


def _exact(depth: Floats, model: Model) -> tuple[Floats, Floats]:
    cycle, top = evaluate(depth, model), ceiling(model)
    return cycle.value / top, slope_of(cycle, depth, model) / top


def _newton_step(curve: Curve, search: _Search, model: Model) -> Floats:
    """The step in log s; tightens the bracket in place."""
    depth = np.exp(search.log_depth)
    exponent, growth = _exponent(depth, *curve(depth, model))
    error = np.log(exponent) - search.target
    search.low = np.where(error < 0, search.log_depth, search.low)
    search.high = np.where(error > 0, search.log_depth, search.high)
    step = -error / growth
    landing = search.log_depth + step
    outside = (landing < search.low) | (landing > search.high)
    return np.where(outside, 0.5 * (search.low + search.high) - search.log_depth, step)


def _exponent(depth: Floats, level: Floats, slope: Floats) -> tuple[Floats, Floats]:
    """z and d log z / d log s."""
    # Deep in saturation V rounds to its ceiling; one unit in the last place keeps z finite.
    gap = np.maximum(1.0 - level, np.finfo(np.float64).eps / 2)
    exponent = np.where(gap > 0.5, -np.log1p(-np.minimum(level, 0.5)), -np.log(gap))
    growth = depth * slope / (gap * exponent)
    return exponent, growth
