"""Hosts that start to lie: false signals at a multiple of their honest rate, from some moment on.

They come from a generator of their own, so the web beneath is the same with and without them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadtest.population import Population
from loadtest.web import Signal, draw_events, pairs

SHARE_OF_HOSTS = 0.2
TIMES_HONEST = 10.0


class Poison:
    """False signals of a share of the hosts, on top of what the web signals."""

    def __init__(
        self,
        population: Population,
        rng: np.random.Generator,
        *,
        begin: float = 0.0,
        share: float = SHARE_OF_HOSTS,
        times: float = TIMES_HONEST,
    ) -> None:
        hosts = np.unique(population.host)
        chosen = rng.choice(hosts, size=max(1, round(share * len(hosts))), replace=False)
        self.pages: NDArray[np.bool_] = np.isin(population.host, chosen)
        self.begin = begin
        honest = population.recall * population.change_rate + population.false_rate
        self._lies = np.cumsum(np.where(self.pages, times * honest, 0.0))
        self._rng = rng
        self._sent_to = begin

    def advance(self, to: float) -> list[Signal]:
        """The lies told since the last call, in order."""
        if to <= self._sent_to:
            return []
        times, pages = draw_events(self._rng, self._lies, self._sent_to, to)
        self._sent_to = to
        return pairs(times, pages)
