"""What is believed of pages after what was seen of them: (α, κ_k, γ_k) by penalised maximum likelihood.

With gamma priors of a given mean m and shape a the quantity maximised,

    Σ w log(1 − e^(−s)) − (quiet sums)·θ + Σ a (log θ − θ/m),   s = ατ + Σ κ_k n_k,   θ = (α, κ_k),

is strictly concave, and its maximum is inside for any data: all changed, none changed, one
observation; with none it is the prior mean. Shape 1 and mean 1 for κ is a uniform precision.
Curvature is taken in log θ, in which rates and weights are nearly normal; the shape is the
prior's share of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.domain import Floats, Model

CHUNK = 4_096  # pages solved together: the working set then stays in cache
CLOSE = 1e-6  # a Newton step this small (relative) is followed by one below rounding
MAX_STEPS = 40
LONGEST_STEP = 2.0  # in log θ, before the step is known to be safe
SHALLOWEST = 1e-100  # stands for the depth of a change nothing explains
DEEPEST = 300.0  # depth beyond which a change was certain: keeps the exponentials finite
NINETY_PERCENT = 1.6448536269514722  # sigmas to either side


@dataclass(frozen=True, slots=True)
class Prior:
    """Gamma beliefs before the page's own evidence: means, and shapes (1/variance of the logarithm)."""

    silent_mean: Floats  # of α, per page
    silent_shape: Floats
    weight_mean: Floats  # of κ_k, a row per page and a column per source
    weight_shape: Floats
    signal_mean: Floats  # of γ_k, likewise
    signal_shape: Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    """Beliefs about pages, a row each; one column per source where there are columns."""

    silent_rate: Floats  # α
    signal_weight: Floats  # κ_k
    signal_rate: Floats  # γ_k
    covariance: Floats  # of (log α, log κ_1, …), a matrix per page
    signal_variance: Floats  # of log γ_k

    @property
    def change_rate(self) -> Floats:
        """Δ = α + Σ γ_k (1 − e^(−κ_k))."""
        return np.asarray(self.silent_rate - np.sum(self.signal_rate * np.expm1(-self.signal_weight), axis=1))

    @property
    def change_log_error(self) -> Floats:
        """Standard error of log Δ, from the curvature."""
        false = self.signal_rate * np.exp(-self.signal_weight)
        gradient = np.column_stack([self.silent_rate, false * self.signal_weight])
        variance = np.einsum("pd,pde,pe->p", gradient, self.covariance, gradient)
        variance += np.sum((self.signal_rate - false) ** 2 * self.signal_variance, axis=1)
        return np.asarray(np.sqrt(variance) / self.change_rate)

    @property
    def change_rate_low(self) -> Floats:
        """Lower end of the 90% interval of Δ."""
        return np.asarray(self.change_rate * np.exp(-NINETY_PERCENT * self.change_log_error))

    @property
    def change_rate_high(self) -> Floats:
        """Upper end of the 90% interval of Δ."""
        return np.asarray(self.change_rate * np.exp(NINETY_PERCENT * self.change_log_error))

    def model(self, importance: ArrayLike) -> Model:
        """The model to rank by: the sources' streams superposed, γ = Σγ_k and ν = Σγ_k e^(−κ_k).

        With one source this is exact; with several, V of the superposed stream is an approximation.
        """
        rate = np.sum(self.signal_rate, axis=1)
        false = np.sum(self.signal_rate * np.exp(-self.signal_weight), axis=1)
        weight = np.log(np.divide(rate, false, out=np.ones_like(rate), where=false > 0))
        importance = np.broadcast_to(np.asarray(importance, dtype=np.float64), rate.shape)
        return Model(importance, self.silent_rate, weight, rate)


def fit(
    evidence: NDArray[Any], prior: Prior, *, open_s: ArrayLike = 0.0, open_signals: ArrayLike = 0.0
) -> Estimate:
    """The beliefs that the evidence and the prior leave.

    `open_s` and `open_signals` are the time and the signals since the last crawl: they say
    nothing of changes yet but count for the signal rate, which a page that is never crawled
    would otherwise never show.
    """
    theta = np.empty((evidence.size, 1 + prior.weight_mean.shape[1]))
    covariance = np.empty((*theta.shape, theta.shape[1]))
    for begin in range(0, evidence.size, CHUNK):
        part = slice(begin, begin + CHUNK)
        problem = _problem(evidence[part], prior, part)
        best = _maximise(problem)
        theta[part] = best.T
        covariance[part] = np.moveaxis(_inverse(_derivatives(problem, best, _look(problem, best))[1]), 2, 0)
    rate, variance = _signal_rate(evidence, prior, open_s, open_signals)
    return Estimate(theta[:, 0], theta[:, 1:], rate, covariance, variance)


def _signal_rate(
    evidence: NDArray[Any], prior: Prior, open_s: ArrayLike, open_signals: ArrayLike
) -> tuple[Floats, Floats]:
    """γ_k = (a + signals) / (a/m + time watched), and the variance of its logarithm."""
    watched = evidence["watched_s"].astype(np.float64) + np.asarray(open_s)
    signals = evidence["signals"].astype(np.float64) + np.asarray(open_signals)
    counted = prior.signal_shape + signals
    return counted / (prior.signal_shape / prior.signal_mean + watched[:, None]), 1.0 / counted


@dataclass(slots=True)
class _Problem:
    """Pages still to be solved; parameters come first so that every operation runs along pages."""

    seen: Floats  # (parameter, page, slot): τ and n_k of changed observations
    weight: Floats  # (page, slot)
    linear: Floats  # (parameter, page)
    shape: Floats

    def select(self, pages: NDArray[Any]) -> _Problem:
        return _Problem(self.seen[:, pages], self.weight[pages], self.linear[:, pages], self.shape[:, pages])


def _problem(evidence: NDArray[Any], prior: Prior, part: slice) -> _Problem:
    elapsed = np.exp(evidence["log_elapsed"].astype(np.float64))
    heard = np.moveaxis(evidence["heard"].astype(np.float64), 2, 0)
    quiet = np.vstack([evidence["quiet_s"], evidence["quiet_signals"].T]).astype(np.float64)
    mean = np.vstack([prior.silent_mean[part], prior.weight_mean[part].T])
    shape = np.vstack([prior.silent_shape[part], prior.weight_shape[part].T])
    seen = np.concatenate([elapsed[None], heard])
    return _Problem(seen, evidence["weight"].astype(np.float64), quiet + shape / mean, shape)


def _maximise(problem: _Problem) -> Floats:
    """Newton in relative steps, halved until the objective does not fall; solved pages drop out."""
    theta = _start(problem)
    page, now = np.arange(theta.shape[1]), theta.copy()
    odds = _look(problem, now)
    for _ in range(MAX_STEPS):
        slope, curvature = _derivatives(problem, now, odds)
        step = _solve(curvature, slope)
        now, odds = _advance(problem, now, odds, step)
        theta[:, page] = now
        going = np.max(np.abs(step), axis=0) > CLOSE
        if not going.any():
            break
        page, now, odds, problem = page[going], now[:, going], odds[going], problem.select(going)
    return theta


def _start(problem: _Problem) -> Floats:
    """Changes over time at risk: right within a small factor when crawls are neither rare nor dense."""
    total = problem.linear + 0.5 * np.sum(problem.weight * problem.seen, axis=2)
    credit = problem.seen / total[:, :, None]
    share = problem.weight * credit / np.maximum(np.sum(credit, axis=0), np.finfo(np.float64).tiny)
    return np.asarray((problem.shape + np.sum(share, axis=2)) / total)


def _look(problem: _Problem, theta: Floats) -> Floats:
    """1/(e^s − 1) of each slot, from which value, slope and curvature follow."""
    depth = np.sum(problem.seen * theta[:, :, None], axis=0)
    return np.asarray(1.0 / np.expm1(np.clip(depth, SHALLOWEST, DEEPEST)))


def _objective(problem: _Problem, theta: Floats, odds: Floats) -> Floats:
    changed = np.sum(problem.weight * np.log1p(odds), axis=1)
    return np.asarray(np.sum(problem.shape * np.log(theta) - problem.linear * theta, axis=0) - changed)


def _derivatives(problem: _Problem, theta: Floats, odds: Floats) -> tuple[Floats, Floats]:
    """θ·gradient and −θ·Hessian·θ: derivatives for relative steps, and at the maximum in log θ."""
    first = problem.weight * odds
    second = first + first * odds
    slope = problem.shape - problem.linear * theta
    curvature = np.empty((len(theta), *theta.shape))
    for row, column in zip(*np.triu_indices(len(theta)), strict=True):
        bent = np.einsum("ps,ps,ps->p", second, problem.seen[row], problem.seen[column])
        curvature[row, column] = curvature[column, row] = bent * theta[row] * theta[column]
    for index in range(len(theta)):
        slope[index] += theta[index] * np.einsum("ps,ps->p", first, problem.seen[index])
        curvature[index, index] += problem.shape[index]
    return slope, curvature


def _solve(matrix: Floats, right: Floats) -> Floats:
    """Gaussian elimination along pages; positive definite, so no pivoting. Parameters come first."""
    matrix, right = matrix.copy(), right.copy()
    size = len(matrix)
    for pivot in range(size):
        for row in range(pivot + 1, size):
            factor = matrix[row, pivot] / matrix[pivot, pivot]
            matrix[row] -= factor * matrix[pivot]
            right[row] -= factor * right[pivot]
    for row in reversed(range(size)):
        for column in range(row + 1, size):
            right[row] -= matrix[row, column] * right[column]
        right[row] /= matrix[row, row]
    return right


def _inverse(matrix: Floats) -> Floats:
    identity = np.broadcast_to(np.eye(len(matrix))[:, :, None], matrix.shape)
    return np.stack([_solve(matrix, column) for column in identity], axis=1)


def _advance(problem: _Problem, theta: Floats, odds: Floats, step: Floats) -> tuple[Floats, Floats]:
    """θ·e^step, with the step shortened where the objective would fall by more than rounding."""
    value = _objective(problem, theta, odds)
    step = np.clip(step, -LONGEST_STEP, LONGEST_STEP)
    after = theta * np.exp(step)
    seen = _look(problem, after)
    worse = np.flatnonzero(_objective(problem, after, seen) < value - 1e-9 * (1.0 + np.abs(value)))
    for _ in range(MAX_STEPS):
        if not worse.size:
            break
        step[:, worse] *= 0.5
        after[:, worse] = theta[:, worse] * np.exp(step[:, worse])
        part = problem.select(worse)
        seen[worse] = _look(part, after[:, worse])
        reached = _objective(part, after[:, worse], seen[worse])
        worse = worse[reached < value[worse] - 1e-9 * (1.0 + np.abs(value[worse]))]
    return after, seen
