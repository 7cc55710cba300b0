"""The value of crawling a page, as a function of its depth.

Depth is s = ατ + κn with P(fresh) = e^(−s); the equations are those of "The value of a crawl"
and "In depth" of the model. Plain numpy and scipy: two `gammainc` calls per page and term give
about half a million pages per second on a typical mix, which does not justify a compiler (numba)
as a run-time dependency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc

from service.domain import Floats, Model
from service.policy.shallow import SHALLOW, shallow_sum

CHUNK = 16_384  # pages summed together: the working set then stays in cache
TAIL = 1e-13  # relative weight of the terms left out
PLATEAU_SIGMAS = 9.0  # terms this far below their Poisson mean equal 1 in double precision
WORTHLESS_WEIGHT = 1e-10  # κ below which a signal says nothing to within the promised accuracy
# Stand-ins for infinity whose products still fit a double, so that 0·∞ never arises.
ENDLESS_RATIO = 1e150
ENDLESS_WEIGHT = 1e100


@dataclass(frozen=True, slots=True)
class Cycle:
    """What the policy "crawl at depth s" does to each page in the long run."""

    time_s: Floats  # ψ, mean time between crawls
    fresh_s: Floats  # w, mean fresh time in it
    value: Floats  # V, the crawl value at that depth


def crawl_value(depth: ArrayLike, model: Model) -> Floats:
    """V(s) = (μ/γ) Σ_i q^i h_i(s − iκ) = μ(w − e^(−s)ψ), importance × seconds.

    Increases from 0 at s = 0 to `ceiling` at infinity; (μ/α)·R_1(s) without signals;
    0 for a page that never changes. Relative error below 1e-9.
    """
    return evaluate(depth, model).value


def most_value(depth: ArrayLike, model: Model) -> Floats:
    """A bound of V(s) that needs no sums: min((μ/Δ)(1 − e^(−s)), (μ/α)R_1(s)).

    ψ increases, and a cycle never takes longer than s/α. 0 for a page that never changes.
    """
    depth = np.asarray(depth, dtype=np.float64)
    fading = -np.expm1(-depth)
    rising = np.where(depth < 1e-3, depth**2 / 2, fading - depth * np.exp(-depth))  # R_1(s) ≤ s²/2
    changes, silent = model.change_rate, np.asarray(model.silent_rate, dtype=np.float64)
    steeper = np.divide(changes, silent, out=np.full(np.shape(changes), np.inf), where=silent > 0)
    top = np.where(changes > 0, ceiling(model), 0.0)
    slow = np.multiply(rising, steeper, out=np.zeros(np.shape(steeper)), where=rising > 0)  # no 0·∞
    return np.asarray(top * np.minimum(fading, slow))


def value_slope(depth: ArrayLike, model: Model) -> Floats:
    """dV/ds = μ e^(−s) ψ(s), importance × seconds; 0 at s = ∞ and where Δ = 0."""
    depth = np.asarray(depth, dtype=np.float64)
    return slope_of(evaluate(depth, model), depth, model)


def cycle_time(depth: ArrayLike, model: Model) -> Floats:
    """ψ(s) = (1/γ) Σ_i R_i(g(s − iκ)), seconds between crawls.

    s/α without signals; ⌈s/κ⌉/γ when every change is signalled (α = 0: only signals deepen the
    page); infinite at s = ∞, and for s > 0 where Δ = 0.
    """
    return evaluate(depth, model).time_s


def fresh_time(depth: ArrayLike, model: Model) -> Floats:
    """w(s) = Σ_i ν^i/(α+γ)^(i+1) · R_i((1+g)(s − iκ)), fresh seconds per cycle; at most 1/Δ."""
    return evaluate(depth, model).fresh_s


def ceiling(model: Model) -> Floats:
    """V(∞) = μ/Δ; infinite where Δ = 0, although the value of such a page is 0 at any depth."""
    changes = model.change_rate
    importance = np.broadcast_to(np.asarray(model.importance, dtype=np.float64), changes.shape)
    return np.divide(importance, changes, out=np.full_like(changes, np.inf), where=changes > 0)


def slope_of(cycle: Cycle, depth: Floats, model: Model) -> Floats:
    """dV/ds of an evaluation already made at `depth`."""
    steep = np.isfinite(cycle.time_s) & np.isfinite(depth)
    time_s = np.where(steep, cycle.time_s, 0.0)
    return np.asarray(model.importance * np.exp(-depth) * time_s)


def evaluate(depth: ArrayLike, model: Model) -> Cycle:
    """ψ, w and V together: they share their terms. Scalars give arrays without dimensions."""
    fields = (model.importance, model.silent_rate, model.signal_weight, model.signal_rate)
    arrays = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (depth, *fields)))
    flat = [np.ravel(a) for a in arrays]
    out = np.empty((3, flat[0].size))
    for begin in range(0, flat[0].size, CHUNK):
        part = slice(begin, begin + CHUNK)
        out[:, part] = _evaluate_chunk(*(a[part] for a in flat))
    time_s, fresh_s, value = (row.reshape(arrays[0].shape) for row in out)
    return Cycle(time_s, fresh_s, value)


def _evaluate_chunk(
    depth: Floats, importance: Floats, silent: Floats, weight: Floats, signals: Floats
) -> Floats:
    changes = silent - signals * np.expm1(-weight)
    out = np.zeros((3, depth.size))
    moving = (depth > 0) & (changes > 0)
    heard = moving & (signals > 1e-16 * silent) & (weight > WORTHLESS_WEIGHT) & np.isfinite(depth)
    plain = moving & ~heard
    out[:, plain] = _unsignalled(depth[plain], changes[plain])
    if heard.any():
        out[:, heard] = _signalled(depth[heard], silent[heard], weight[heard], signals[heard])
    out[:2, (depth > 0) & (changes <= 0)] = np.inf
    out[2] *= importance
    return out


def _unsignalled(depth: Floats, changes: Floats) -> tuple[Floats, Floats, Floats]:
    """ψ = s/Δ, w = (1 − e^(−s))/Δ, V/μ = R_1(s)/Δ; also the limit s = ∞ of every page."""
    return depth / changes, -np.expm1(-depth) / changes, gammainc(2.0, depth) / changes


def _signalled(
    depth: Floats, silent: Floats, weight: Floats, signals: Floats
) -> tuple[Floats, Floats, Floats]:
    """(ψ, w, V/μ) from the sums over the number of signals."""
    endless = silent * ENDLESS_RATIO <= signals
    ratio = np.divide(signals, silent, out=np.full_like(depth, ENDLESS_RATIO), where=~endless)
    weight = np.minimum(weight, ENDLESS_WEIGHT)
    crawls, fresh = _cycle_sums(np.minimum(depth, ENDLESS_WEIGHT), weight, ratio)
    value = fresh - np.exp(-depth) * crawls
    shallow = depth < SHALLOW
    if shallow.any():
        value[shallow] = shallow_sum(depth[shallow], weight[shallow], ratio[shallow])
    return crawls / signals, fresh / signals, value / signals


def _cycle_sums(depth: Floats, weight: Floats, ratio: Floats) -> tuple[Floats, Floats]:
    """γψ = Σ_i R_i(g y_i) and γw = Σ_i q^i (g/(1+g))^(i+1) R_i((1+g) y_i), with y_i = s − iκ > 0.

    The first terms, whose R_i are 1 in double precision, are summed in closed form:
    Σ_{i<first} f^i = (1 − f^first)/(1 − f) with f = q·g/(1+g).
    """
    reach = ratio * depth
    plateau = (reach - PLATEAU_SIGMAS * np.sqrt(reach)) / (1.0 + ratio * weight)
    first = np.floor(np.maximum(0.0, plateau))
    share = ratio / (1.0 + ratio)
    log_fade = -(weight + np.log1p(1.0 / ratio))
    fresh = share * np.expm1(first * log_fade) / np.expm1(log_fade)
    none = np.zeros_like(depth)  # no term before the first: the tail bound then cannot hold
    columns = (first, share * np.exp(first * log_fade), none, none, depth, weight, ratio, np.exp(log_fade))
    return _add_terms(np.stack(columns), first.copy(), fresh)


def _add_terms(state: Floats, crawls: Floats, fresh: Floats) -> tuple[Floats, Floats]:
    """Add to both sums term by term, for the pages that still need it.

    A page is done when y_i ≤ 0 or when the geometric bound t²/(t_before − t) on the tail of both
    sums (their terms are log-concave in i) falls below `TAIL`.
    """
    page = np.arange(crawls.size)
    going = state[4] > state[0] * state[5]
    while going.any():
        page, state = page.compress(going), state.compress(going, axis=1)
        index, share, crawl_before, fresh_before, depth, weight, ratio, fade = state
        left = depth - index * weight
        scaled = ratio * left
        crawl = _reached(index, scaled)
        kept = share * _reached(index, scaled + left)
        crawl_sum, kept_sum = crawls[page] + crawl, fresh[page] + kept
        crawls[page], fresh[page] = crawl_sum, kept_sum
        going = crawl * crawl > TAIL * crawl_sum * (crawl_before - crawl)
        going |= kept * kept > TAIL * kept_sum * (fresh_before - kept)
        state[0], state[1], state[2], state[3] = index + 1.0, share * fade, crawl, kept
        going &= depth > state[0] * weight
    return crawls, fresh


def _reached(index: Floats, mean: Floats) -> Floats:
    """R_i: the chance that a Poisson number exceeds i. R_0, all that most pages need, has a closed form."""
    first = index == 0.0
    if first.all():
        return np.asarray(-np.expm1(-mean))
    chance = np.asarray(gammainc(index + 1.0, mean))
    chance[first] = -np.expm1(-mean[first])  # in its own place too: a page's value is the same in any company
    return chance
