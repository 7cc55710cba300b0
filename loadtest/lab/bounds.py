"""Certified bounds on crawl values near the price, from a table: no special functions per slot."""

from __future__ import annotations

import numpy as np

from loadtest.lab.brute_force import Policy
from loadtest.lab.events import Pages
from service.domain import Floats, Model

POINTS = 32  # segments of a page's table between the two levels
SLACK = 1e-7  # an inversion is right to about 1e-9; pages this close below s(θ) count as beyond it
STEEPEST = 1e300  # stands for an infinite rise


class Bounds:
    """Bounds on the values of pages that have reached a level.

    In v = 1 − e^(−(s − s_low)) every objective's value is convex, as e^s V'(s) increases. So between
    two points of the table V lies below the chord and above its neighbours' extensions. The points
    are equally spaced in v from the depth of the lower level to that of the upper one, or to
    infinity where a page never gets there.
    """

    def __init__(self, policy: Policy, level: float, upper: float) -> None:
        objective, model = policy.objective, policy.believed
        self.level = level
        start = objective.depth_at(level, model)
        self.threshold = start * (1 - SLACK)  # infinite for pages that never reach the level
        pages = np.flatnonzero(np.isfinite(start))
        self._row = np.cumsum(np.isfinite(start)) - 1
        awake = take(model, pages)
        self._start, self._ceiling = start[pages], objective.ceiling(awake)
        span = objective.depth_at(upper, awake) - self._start
        self._step = -np.expm1(-span) / POINTS
        deeper = [-np.log1p(-k * self._step) for k in range(POINTS)] + [span]
        self._value = np.stack([objective.value(self._start + more, awake) for more in deeper], axis=1)
        # The rise of each segment, between 0 before the first and anything after the last.
        ends = np.zeros(len(pages)), np.full(len(pages), STEEPEST)
        self._rise = np.column_stack([ends[0], np.diff(self._value, axis=1), ends[1]])

    def look(self, depth: Floats, pages: Pages) -> tuple[Floats, Floats]:
        """(lower, upper) of pages at depths beyond their thresholds."""
        row = self._row[pages]
        place = np.maximum(-np.expm1(self._start[row] - depth) / self._step[row], 0.0)
        k = np.minimum(place.astype(np.int64), POINTS - 1)
        part = np.minimum(place - k, 1.0)
        left, right = self._value[row, k], self._value[row, k + 1]
        high = left + part * (right - left)
        low = np.maximum(left + part * self._rise[row, k], right - (1.0 - part) * self._rise[row, k + 2])
        high = np.where(place > POINTS, self._ceiling[row], high)
        return np.where(np.isinf(depth), high, np.minimum(low, high)), high


def take(model: Model, pages: Pages) -> Model:
    """Some pages of a model, in the order given."""
    return Model(
        model.importance[pages],
        model.silent_rate[pages],
        model.signal_weight[pages],
        model.signal_rate[pages],
    )
