"""What a script needs to rank a page without special functions: a local form of the crawl value.

Near the depth s0 where a page meets the price, with y = s − s0,

    V(s0+y) = base + slope · [(1 − e^(−y)) + bend(y) · (1 − (1+y)e^(−y))]

is exact when the cycle time ψ is linear in depth (V' = μe^(−s)ψ): without signals, and between
two signals when every change is signalled. `bend` carries what is left; see `local_value`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.domain import Floats, Model
from service.policy.objectives import FRESHNESS, Objective

SILENT_FLOOR = 1e-6  # least α as a share of Δ: keeps revisit intervals finite
SLOWEST_RATE = 1e-17  # per second, of a page that changes at all: keeps its ceiling a finite float
LONGEST_CREDIT_S = 1e10  # most time one signal may be worth: keeps anchors exact integers
MOST_FLOOR = 0.05  # largest share of Δ the floor of α may take
WEIGHT_CAP = 20.0  # largest κ: e^(−20) is certainty enough
WORTHLESS_PRECISION = 0.01  # signals more often false than this are not listened to
NEARLY = 1e-9  # margin below the ceiling no price can use in single precision: depth stays < 25
MOST_EXPONENT = 700.0  # beyond it an exponential is infinite, and 0·∞ no number
DORMANT_LEVEL = 0.9  # share of the ceiling at which a dormant page is described
LEAST_IMPORTANCE = 1e-25  # less would leave single precision where it becomes a value, and 0/0 is none


@dataclass(frozen=True, slots=True)
class Ranking:
    """The local form of each page; every float is already rounded to single precision."""

    depth: Floats  # s0: where the value meets the price, or 0.9·ceiling if dormant
    dormant: NDArray[np.bool_]  # the price is out of reach
    ceiling: Floats  # V(∞); 0 for a page that never changes
    base: Floats  # V(s0)
    slope: Floats  # dV/ds at s0 (without a ceiling and with `far`: what it lacks of `far`)
    near: Floats  # bend up to the knee
    far: Floats  # bend that makes V(s0+κ) exact


def storable(model: Model) -> Model:
    """The model as it is stored: μ ≥ 1e-25, α ≥ 1e-6·Δ, κ ≤ 20, κ/α ≤ 1e10 s.

    Signals are dropped where precision < 1%, and where that floor would distort the change rate (pages
    that change less than once in decades).
    A page whose signals are dropped keeps its change rate: α := Δ, γ := 0, κ := 0.
    """
    changes = model.change_rate
    weight = np.minimum(model.signal_weight, WEIGHT_CAP)
    least = weight / LONGEST_CREDIT_S
    heard = (model.precision >= WORTHLESS_PRECISION) & (least <= MOST_FLOOR * changes)
    floor = np.where(heard, np.maximum(SILENT_FLOOR * changes, least), 0.0)
    moving = np.where(changes > 0, SLOWEST_RATE, 0.0)
    importance = np.maximum(model.importance, LEAST_IMPORTANCE)
    return Model(
        importance=np.broadcast_to(importance, changes.shape),
        silent_rate=np.maximum(np.where(heard, np.maximum(model.silent_rate, floor), changes), moving),
        signal_weight=np.where(heard, weight, 0.0),
        signal_rate=np.where(heard, model.signal_rate, 0.0),
    )


def rank(price: ArrayLike, model: Model, objective: Objective = FRESHNESS) -> Ranking:
    """The local form at a price θ > 0 of pages whose model is `storable`.

    Dormant are pages that never change and pages whose ceiling is at or below θ, or so little
    above it that they would reach θ only beyond a depth of about 24.
    """
    if objective.growth is not None:
        return _rank_open(price, model, objective, *objective.growth(model))
    top = objective.ceiling(model)
    moving = np.isfinite(top)
    price = np.broadcast_to(np.asarray(price, dtype=np.float64), top.shape)
    dormant = is_dormant(price, model, objective)
    base = np.where(dormant, DORMANT_LEVEL * top, price)
    depth = objective.depth_at(base, model)
    # A page that never changes keeps value 0 through its ceiling; the rest only has to be finite.
    depth = _single(np.where(moving, depth, 1.0))
    base, top = np.where(moving, base, 0.0), np.where(moving, top, 0.0)
    slope = np.where(moving, objective.slope(depth, model), 1.0)
    near, far = _bends(depth, base, slope, model, objective)
    return Ranking(depth, dormant, *map(_single, (top, base, slope, near, far)))


def is_dormant(price: ArrayLike, model: Model, objective: Objective = FRESHNESS) -> NDArray[np.bool_]:
    """Which pages the price is out of reach for."""
    if objective.growth is not None:
        return np.asarray(model.change_rate <= 0)
    top = objective.ceiling(model)
    return ~np.isfinite(top) | (top <= np.asarray(price, dtype=np.float64) * (1.0 + NEARLY))


def _rank_open(price: ArrayLike, model: Model, objective: Objective, near: Floats, far: Floats) -> Ranking:
    """The form of a value without a ceiling, exact at any depth; dormant is what never changes."""
    moving = ~is_dormant(price, model, objective)
    base = np.where(moving, np.asarray(price, dtype=np.float64), 0.0)
    depth = _single(np.where(moving, objective.depth_at(base, model), 1.0))
    # Where the slope runs to `far`, what it lacks of that is kept: the slope itself would round to it.
    slope = np.where(far > 0, far * np.exp(-near * depth), objective.slope(depth, model))
    top = np.full_like(base, np.inf)
    return Ranking(depth, ~moving, *map(_single, (top, base, slope, near, far)))


def open_value(depth_past_due: ArrayLike, ranking: Ranking) -> Floats:
    """V(s0 + y) of a value without a ceiling, as a script computes it."""
    past, near, far = np.asarray(depth_past_due, dtype=np.float64), ranking.near, ranking.far
    growing = ranking.slope * past + near * past**2 / 2
    levels = far > 0
    left = -np.expm1(np.where(levels, np.minimum(-near * past, MOST_EXPONENT), 0.0)) / np.where(
        levels, near, 1.0
    )
    levelling = far * past - ranking.slope * left
    return np.asarray(np.maximum(ranking.base + np.where(levels, levelling, growing), 0.0))


def depth_below(price: ArrayLike, ranking: Ranking) -> Floats:
    """y ≤ 0 with local V(s0 + y) = θ ≤ V(s0): how much before s0 a page meets a lower price.

    Newton on the local form itself, so that a script that evaluates it at this depth finds θ. V grows
    about as s², which gives the first guess. 0 for dormant pages and where θ ≥ V(s0); never below −s0.
    """
    wanted, base = np.broadcast_arrays(np.asarray(price, dtype=np.float64), ranking.base)
    below = ~ranking.dormant & (wanted < base)
    level = np.divide(np.maximum(wanted, 0.0), base, out=np.ones_like(base), where=below)
    past = ranking.depth * (np.sqrt(level) - 1.0)
    lowest = -ranking.depth * (1.0 - 1e-6)
    for _ in range(6):
        left = np.exp(-past)
        gain = (1.0 - left) + (1.0 - left * (1.0 + past)) / ranking.depth
        gradient = ranking.slope * left * (1.0 + past / ranking.depth)
        past = np.clip(past - (base + ranking.slope * gain - wanted) / gradient, lowest, 0.0)
    return np.where(below, past, 0.0)


def local_value(depth_past_due: ArrayLike, ranking: Ranking, signal_weight: ArrayLike) -> Floats:
    """V(s0 + y) from the stored numbers alone, as a script computes it; y = `depth_past_due`.

    The next signal term enters V at the knee, the first multiple of κ past s0. The bend is 1/s0
    below the price, `near` up to the knee, runs to `far` at y = κ and from there towards the
    value that makes V(∞) the ceiling. The result stays between 0 and the ceiling.
    """
    past, weight = np.broadcast_arrays(np.asarray(depth_past_due, dtype=np.float64), _single(signal_weight))
    left = np.exp(-past)
    bend = _bend(past, ranking, weight)
    gain = (1.0 - left) + bend * (1.0 - left * (1.0 + past))
    # Just after a crawl the value is 0; what the form misses there is taken out, fading towards s0.
    whole = np.exp(ranking.depth)
    lost = (1.0 - whole) + (1.0 - whole * (1.0 - ranking.depth)) / ranking.depth
    missed = ranking.base + ranking.slope * lost
    value = ranking.base + ranking.slope * gain - (np.minimum(past, 0.0) / ranking.depth) ** 4 * missed
    return np.asarray(np.clip(value, 0.0, ranking.ceiling))


def _bend(past: Floats, ranking: Ranking, weight: Floats) -> Floats:
    """The bend at y, branch by branch."""
    near, far = ranking.near, ranking.far
    knee = _knee(ranking.depth, weight)
    safe = np.where(past > 0, past, 1.0)  # the branches below divide by y
    ramp = _ramp(np.maximum(safe, knee), knee) / _ramp(np.maximum(weight, 1e-30), knee)
    limit = (ranking.ceiling - ranking.base) / ranking.slope - 1.0
    beyond = far + (limit - far) * (1.0 - weight / safe)
    within = np.where(past <= knee, near, near + (far - near) * ramp)
    return np.where(past < 0, 1.0 / ranking.depth, np.where(past > weight, beyond, within))


def _bends(
    depth: Floats, base: Floats, slope: Floats, model: Model, objective: Objective
) -> tuple[Floats, Floats]:
    """(near, far): exact at the knee and at y = κ; 1/s0, exact everywhere, without signals."""
    weight = _single(np.broadcast_to(model.signal_weight, depth.shape))
    heard = weight > 0
    reach = np.where(heard, weight, 1.0)

    # A knee next to s0 says nothing about the bend before it; the cap bounds what rounding adds.
    past = np.stack((np.maximum(_knee(depth, reach), 0.02 * reach), reach))
    gain = (objective.value(depth + past, model) - base) / slope
    bends = (gain + np.expm1(-past)) / (-np.expm1(-past) - past * np.exp(-past))
    near, far = np.maximum(bends, 0.0)  # ψ increases, so only rounding can make them negative
    near = np.minimum(near, 2.0 / depth)
    return np.where(heard, near, 1.0 / depth), np.where(heard, far, 1.0 / depth)


def _knee(depth: Floats, weight: Floats) -> Floats:
    """κ⌈s0/κ⌉ − s0, the distance to the depth at which one more signal can count; 0 if κ = 0."""
    steps = np.divide(depth, weight, out=np.zeros_like(depth + weight), where=weight > 0)
    return np.where(weight > 0, weight * np.ceil(steps) - depth, 0.0)


def _ramp(past: Floats, knee: Floats) -> Floats:
    """Share of the bend owed to the term entering at the knee: 0 there, about 1/y later."""
    return (past - knee) * (1.0 + past) / past**2


def _single(values: ArrayLike) -> Floats:
    """Rounded to single precision, as stored."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)
