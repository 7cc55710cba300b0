"""How long copies were fresh, from the crawls and what was heard: exact integrals, nothing sampled."""

from __future__ import annotations

import numpy as np
from scipy.special import exprel

from loadtest.lab.events import Events, Pages
from service.domain import Floats, Model


class Witness:
    """Integrates the chance that a copy is fresh, e^(−s), over time; importance-weighted mean.

    Given the true model and the signals, that is the expectation given everything heard: it has the
    mean of the true fresh time and far less noise. Given changes instead of signals and pages that
    nothing but a change makes stale (`unheard`), it is the true fresh time itself.
    """

    def __init__(self, model: Model, depth: Floats, begin: float = 0.0) -> None:
        self._model = model
        self._weight = model.importance / np.sum(model.importance)
        self._depth = depth.copy()  # of every page, at self._now
        self._now = begin

    def watch(self, end: float, crawls: Events, news: Events) -> float:
        """Mean freshness from the last moment watched until `end`, with all that happened between."""
        size = len(self._depth)
        page = np.concatenate([np.arange(size), crawls.page, news.page])
        at = np.concatenate([np.full(size, self._now), crawls.at, news.at])
        # Each page's events in order; its state at the beginning comes first.
        order = np.lexsort((at, page))
        page, at = page[order], at[order]
        is_reset = order < size + len(crawls.at)
        index = np.arange(len(order))
        last = np.maximum.accumulate(np.where(is_reset, index, 0))
        base = np.where(order[last] < size, self._depth[page], 0.0)
        depth = base + self._model.silent_rate[page] * (at - at[last]) + self._added(page, index - last)
        is_final = np.append(page[1:] != page[:-1], True)
        lasts = np.where(is_final, end, np.append(at[1:], end)) - at
        fading = self._model.silent_rate[page] * lasts
        fresh = self._weight[page] * np.exp(-depth) * lasts * exprel(-fading)
        self._depth = (depth + fading)[is_final]
        elapsed, self._now = end - self._now, end
        return float(np.sum(fresh)) / elapsed

    def _added(self, page: Pages, signals: Pages) -> Floats:
        """κn, 0 without signals even where κ is infinite."""
        added = np.zeros(len(page))
        np.multiply(self._model.signal_weight[page], signals, out=added, where=signals > 0)
        return added


def unheard(model: Model) -> Model:
    """Pages that are fresh until they change, for a witness told of every change."""
    size = len(model.importance)
    return Model(model.importance, np.zeros(size), np.full(size, np.inf), model.change_rate)
