"""Change rates from single bits: likelihood, moment matching in closed form, and for long records."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.domain import Floats
from service.policy.classical import bisect

BINS = 40  # of elapsed time in a tally
SPREAD = 1e5  # the longest elapsed time of a tally ÷ the shortest
DEEPEST = 700.0  # beyond it e^x overflows


def maximum_likelihood(elapsed: ArrayLike, changed: ArrayLike, *, lowest: float, highest: float) -> Floats:
    """Δ where the slope of the log-likelihood, Σ_{changed} τ/(e^(Δτ) − 1) − Σ_{unchanged} τ, is zero.

    "Learning to crawl", eq. (6). A row per page, a column per crawl; clipped like moment matching.
    """
    times, news = np.asarray(elapsed, dtype=np.float64), np.asarray(changed, dtype=bool)
    quiet = np.sum(np.where(news, 0.0, times), axis=1)

    def slope(rate: Floats) -> Floats:
        odds = times / np.expm1(np.minimum(rate[:, None] * times, DEEPEST))
        return np.asarray(np.sum(np.where(news, odds, 0.0), axis=1) - quiet)

    return bisect(slope, lowest, highest, len(times))


def equal_intervals(unchanged: ArrayLike, interval: float, *, lowest: float, highest: float) -> Floats:
    """Δ = −log(share unchanged)/w, clipped: eq. (7) when all crawls are w apart; also the likelihood's."""
    share = np.asarray(unchanged, dtype=np.float64)
    depth = -np.log(share, out=np.full(share.shape, -np.inf), where=share > 0)
    return np.asarray(np.clip(depth / interval, lowest, highest))


class Tally:
    """All crawls of all pages so far, their elapsed times counted in bins on a logarithmic scale.

    Records of any length take the same room; within a bin e^(−Δτ) is taken at the mean elapsed time.
    """

    def __init__(self, pages: int, longest: float) -> None:
        self._edges = np.geomspace(longest / SPREAD, longest, BINS - 1)
        self._count = np.zeros((pages, BINS))
        self._time = np.zeros((pages, BINS))
        self._unchanged = np.zeros(pages)

    def add(self, page: NDArray[np.int64], elapsed: Floats, changed: NDArray[np.bool_]) -> None:
        """Observations in any order, several of a page or none."""
        cell = page * BINS + np.searchsorted(self._edges, elapsed)
        size = self._count.size
        self._count += np.bincount(cell, minlength=size).reshape(self._count.shape)
        self._time += np.bincount(cell, elapsed, size).reshape(self._count.shape)
        self._unchanged += np.bincount(page, ~changed, len(self._unchanged))

    def moment_matching(self, *, lowest: float, highest: float) -> Floats:
        """Δ with Σ n e^(−Δτ) = number of unchanged crawls, clipped: eq. (7); the lowest if never crawled."""
        elapsed = np.divide(self._time, self._count, out=np.zeros_like(self._time), where=self._count > 0)

        def excess(rate: Floats) -> Floats:
            expected = np.sum(self._count * np.exp(-rate[:, None] * elapsed), axis=1)
            return np.asarray(expected - self._unchanged)

        return bisect(excess, lowest, highest, len(elapsed))
