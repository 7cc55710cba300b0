"""The crawl value as the simpler policies of "noisy change signals" see it.

`greedy`, `cis` and `cis_plus` are the exact value of pages believed to be other than they are;
`truncated` cuts the exact value short.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc

from service.domain import Floats, Model
from service.policy import crawl_value, interval
from service.policy.objectives import Objective
from service.policy.shallow import SHALLOW, shallow_term

GOOD_PRECISION, GOOD_RECALL = 0.7, 0.6  # section 6.7: what makes a page's signals high quality


def greedy(model: Model) -> Model:
    """Pages that are never signalled: α = Δ. V_GREEDY = (μ/Δ)R_1(Δι), section 5.1."""
    changes = model.change_rate
    return Model(model.importance, changes, np.zeros_like(changes), np.zeros_like(changes))


def cis(model: Model) -> Model:
    """Pages whose signals never lie: κ = ∞ and γ = λΔ, so that Δ and λ stay what they are.

    V_GREEDY_CIS of section 5.1: μ/Δ from the first signal on, before it the term i = 0.
    """
    true = model.signal_rate * model.precision
    return Model(model.importance, model.silent_rate, np.where(true > 0, np.inf, 0.0), true)


def cis_plus(model: Model) -> Model:
    """`cis` where precision and recall are high, `greedy` elsewhere: GREEDY-CIS+, section 6.7."""
    good = (model.precision > GOOD_PRECISION) & (model.recall > GOOD_RECALL)
    trusting, deaf = cis(model), greedy(model)
    return Model(
        model.importance,
        np.where(good, trusting.silent_rate, deaf.silent_rate),
        np.where(good, trusting.signal_weight, 0.0),
        np.where(good, trusting.signal_rate, 0.0),
    )


def truncated(terms: int) -> Objective:
    """G-NCIS-APPROX-J, appendix A.1: V_J(s) = (μ/γ) Σ_{i<J} q^i h_i(s − iκ).

    Exact for pages without signals. Every h_i increases, so V_J has an inverse; it never exceeds V.
    """
    return Objective(
        name=f"freshness, {terms} terms",
        value=partial(_truncated_value, terms),
        slope=partial(_truncated_slope, terms),
        ceiling=partial(_truncated_ceiling, terms),
        depth_at=partial(_truncated_depth_at, terms),
    )


def _spread(depth: ArrayLike, model: Model) -> tuple[Floats, Model]:
    """Arrays of one shape, and κ = ∞ as a number that may be multiplied by 0."""
    fields = (depth, model.importance, model.silent_rate, model.signal_weight, model.signal_rate)
    first, *rest = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in fields))
    rest[2] = np.minimum(rest[2], crawl_value.ENDLESS_WEIGHT)
    return np.minimum(first, crawl_value.ENDLESS_WEIGHT), Model(*rest)


def _hears(model: Model) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Where signals mean something: the bounds of the exact value."""
    rate, weight = np.asarray(model.signal_rate), np.asarray(model.signal_weight)
    return (rate > 1e-16 * model.silent_rate) & (weight > crawl_value.WORTHLESS_WEIGHT)


def _ratio(model: Model) -> Floats:
    """g = γ/α, finite."""
    endless = model.silent_rate * crawl_value.ENDLESS_RATIO <= model.signal_rate
    out = np.full_like(model.silent_rate, crawl_value.ENDLESS_RATIO)
    return np.divide(model.signal_rate, model.silent_rate, out=out, where=~endless)


def _truncated_value(terms: int, depth: ArrayLike, model: Model) -> Floats:
    """h_i(y) = (g/(1+g))^(i+1) R_i((1+g)y) − e^(−y) R_i(gy)."""
    depth, model = _spread(depth, model)
    heard = _hears(model)
    out = np.asarray(crawl_value.crawl_value(depth, greedy(model)))
    part, pages = depth[heard], interval.select(model, heard)
    ratio, total = _ratio(pages), np.zeros_like(part)
    for index in range(terms):
        left = part - index * pages.signal_weight
        at = left > 0
        total[at] += np.exp(-index * pages.signal_weight[at]) * _term(index, left[at], ratio[at])
    out[heard] = pages.importance * total / pages.signal_rate
    return out


def _term(index: int, left: Floats, ratio: Floats) -> Floats:
    share = ratio / (1.0 + ratio)
    kept = share ** (index + 1) * gammainc(index + 1.0, (1.0 + ratio) * left)
    out = kept - np.exp(-left) * gammainc(index + 1.0, ratio * left)
    shallow = left < SHALLOW
    out[shallow] = shallow_term(index, left[shallow], ratio[shallow])
    return np.asarray(out)


def _truncated_slope(terms: int, depth: ArrayLike, model: Model) -> Floats:
    """dV_J/ds = (μ/γ) e^(−s) Σ_{i<J} R_i(g(s − iκ))."""
    depth, model = _spread(depth, model)
    heard = _hears(model)
    out = np.asarray(crawl_value.value_slope(depth, greedy(model)))
    part, pages = depth[heard], interval.select(model, heard)
    ratio, total = _ratio(pages), np.zeros_like(part)
    for index in range(terms):
        left = part - index * pages.signal_weight
        total += gammainc(index + 1.0, ratio * np.maximum(left, 0.0))
    out[heard] = pages.importance * np.exp(-part) * total / pages.signal_rate
    return out


def _truncated_ceiling(terms: int, model: Model) -> Floats:
    """V_J(∞) = (μ/Δ)(1 − f^J) with f = q·g/(1+g); μ/Δ without signals."""
    top = crawl_value.ceiling(model)
    _, model = _spread(top, model)
    heard = _hears(model)
    pages = interval.select(model, heard)
    log_fade = -(pages.signal_weight + np.log1p(1.0 / _ratio(pages)))
    top[heard] *= -np.expm1(terms * log_fade)
    return top


def _truncated_depth_at(terms: int, price: ArrayLike, model: Model) -> Floats:
    """s with V_J(s) = θ: never below the exact s(θ), infinite where V_J(∞) ≤ θ."""
    top = _truncated_ceiling(terms, model)
    depth = interval.depth_at(price, model)
    price, top = np.broadcast_arrays(np.asarray(price, dtype=np.float64), top)
    depth[price >= top] = np.inf
    cut = _hears(model) & (depth > 0) & np.isfinite(depth)
    if cut.any():
        pages, level = interval.select(model, cut), price[cut] / top[cut]
        curve = partial(_truncated_curve, terms)
        bracket = depth[cut], _above(curve, level, pages, depth[cut])
        depth[cut] = interval.invert(curve, level, pages, bracket)
    return depth


def _truncated_curve(terms: int, depth: Floats, model: Model) -> tuple[Floats, Floats]:
    top = _truncated_ceiling(terms, model)
    return _truncated_value(terms, depth, model) / top, _truncated_slope(terms, depth, model) / top


def _above(curve: interval.Curve, level: Floats, model: Model, low: Floats) -> Floats:
    """A depth at which each page is past its level: doubled until it is."""
    high = 2.0 * low
    for _ in range(interval.MAX_STEPS):
        short = curve(high, model)[0] < level
        if not short.any():
            break
        high = np.where(short, 2.0 * high, high)
    return high
