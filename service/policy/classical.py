"""Estimators of the literature, by name: for pages without signals, and for comparison."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.domain import Floats

BISECTIONS = 60
HALF = 0.5  # length of the imaginary intervals of LambdaCrawl


def moment_matching(elapsed_s: ArrayLike, changed: ArrayLike, *, lowest: float, highest: float) -> Floats:
    """Δ with mean(e^(−Δτ)) = share of unchanged crawls, clipped: "Learning to crawl", eq. (7).

    A row per page, a column per crawl; 0 < lowest < highest. Bisection on a logarithmic scale.
    """
    elapsed, share = (
        np.asarray(elapsed_s, dtype=np.float64),
        1.0 - np.mean(np.asarray(changed, dtype=bool), axis=1),
    )

    def excess(rate: Floats) -> Floats:
        return np.asarray(np.mean(np.exp(-rate[:, None] * elapsed), axis=1) - share)

    return bisect(excess, lowest, highest, len(elapsed))


def moment_matching_error(elapsed_s: ArrayLike, *, highest: float, miss: float) -> Floats:
    """Half-width of the interval that misses Δ ≤ highest with chance at most `miss`: Lemma 3 there."""
    elapsed = np.asarray(elapsed_s, dtype=np.float64)
    sensitivity = np.mean(elapsed * np.exp(-highest * elapsed), axis=1)
    return np.asarray(np.sqrt(np.log(2.0 / miss) / (2.0 * elapsed.shape[1])) / sensitivity)


def smoothed_incomplete(
    elapsed: ArrayLike, changed: ArrayLike, *, lowest: float, highest: float, half: float = HALF
) -> Floats:
    """Δ with Σ_{changed} τ/(e^(Δτ) − 1) + h/(e^(Δh) − 1) = Σ_{unchanged} τ + h: LambdaCrawl, eq. (14).

    h is half a unit of time, added once as changed and once as unchanged (Algorithm 4 prints it
    without the "− 1"); it keeps the rate finite and above 0. Rows and bounds as above.
    """
    times, news = np.asarray(elapsed, dtype=np.float64), np.asarray(changed, dtype=bool)
    quiet = np.sum(np.where(news, 0.0, times), axis=1) + half

    def excess(rate: Floats) -> Floats:
        terms = np.where(news, times / np.expm1(np.minimum(rate[:, None] * times, 700.0)), 0.0)
        imagined = half / np.expm1(np.minimum(rate * half, 700.0))
        return np.asarray(np.sum(terms, axis=1) + imagined - quiet)

    return bisect(excess, lowest, highest, len(times))


def smoothed_complete(changes: ArrayLike, watched: ArrayLike, *, half: float = HALF) -> Floats:
    """Δ = (changes + ½)/(time + ½) where every change is observed: LambdaCrawl, eq. (15) smoothed."""
    return np.asarray((np.asarray(changes) + half) / (np.asarray(watched) + half), dtype=np.float64)


def naive_quality(signals: ArrayLike, changed: ArrayLike) -> tuple[Floats, Floats]:
    """(precision, recall) by counting crawls: signalled ones that had changed, and the reverse.

    Badly biased when crawls are rare, as a change and a signal then meet by chance; for comparison only.
    """
    heard, news = np.asarray(signals) > 0, np.asarray(changed, dtype=bool)
    both = np.sum(heard & news, axis=1)
    return _share(both, np.sum(heard, axis=1)), _share(both, np.sum(news, axis=1))


def _share(part: NDArray[np.int_], whole: NDArray[np.int_]) -> Floats:
    return np.divide(part, whole, out=np.zeros(whole.shape), where=whole > 0)


def bisect(excess: Callable[[Floats], Floats], lowest: float, highest: float, pages: int) -> Floats:
    """Root of a decreasing function of the rate, or the bound it lies beyond."""
    low, high = np.full(pages, np.log(lowest)), np.full(pages, np.log(highest))
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        above = excess(np.exp(middle)) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(np.exp(0.5 * (low + high)))
