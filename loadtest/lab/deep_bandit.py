"""A crawler as a restless bandit: each arm a group of like pages, one crawl per slot.

Source: "Deep reinforcement learning for web crawling", section II. Many runs go side by side, a row each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from loadtest.lab.poisson_rates import optimal_rates
from service.domain import Floats

Arms = NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """Groups of pages that change alike and matter alike."""

    change_rate: Floats  # λ per page and slot
    importance: Floats  # μ of each page
    pages: NDArray[np.int64]  # in each group

    @property
    def arms(self) -> int:
        return len(self.pages)

    @cached_property
    def chance(self) -> Floats:
        """1 − e^(−λ): that a page changes in a slot."""
        return -np.expm1(-self.change_rate)

    @cached_property
    def group(self) -> NDArray[np.int64]:
        """Of each page."""
        return np.repeat(np.arange(self.arms), self.pages)


def static_optimum(groups: Groups, weight: Floats) -> Floats:
    """Chances of choosing each arm that maximise Σ w p/(p + c − cp) over all pages: eq. (8).

    With w = μ that is freshness, as in the paper; the reward of a page is μc times its chance of
    being fresh, hence w = μc maximises the expected reward. A group's chance is the sum of its pages'.
    """
    chance = groups.chance[groups.group]
    each = optimal_rates(chance, weight[groups.group], 1.0, bend=1.0 - chance)
    return np.bincount(groups.group, each, groups.arms).astype(np.float64)


class Bandit:
    """The pages of every run; in each slot pages change first, then one is crawled.

    An arm shows how many slots ago it was chosen, X, and whether its page had changed then, Y (eqs.
    (4) and (5)). Of the chosen group the page after the last is crawled, round and round.
    """

    def __init__(self, groups: Groups, runs: int, rng: np.random.Generator) -> None:
        self.groups, self.runs = groups, runs
        self._rng, self._rows = rng, np.arange(runs)
        self._chance = groups.chance[groups.group]
        self._weight = groups.importance[groups.group] / np.sum(groups.importance[groups.group])
        self._first = np.cumsum(groups.pages) - groups.pages
        self._pointer = np.zeros((runs, groups.arms), dtype=np.int64)
        self._stale = np.zeros((runs, len(groups.group)), dtype=bool)
        self._age = np.zeros((runs, len(groups.group)))
        self.elapsed = np.zeros((runs, groups.arms))
        self.changed_last = np.zeros((runs, groups.arms))

    @property
    def state(self) -> Floats:
        """X and Y side by side, a row per run."""
        return np.concatenate([self.elapsed, self.changed_last], axis=1)

    @property
    def age(self) -> Floats:
        """Slots of change that a crawl of each arm's next page would cover."""
        return np.asarray(np.take_along_axis(self._age, self._first + self._pointer, axis=1) + 1.0)

    def step(self, arm: Arms) -> NDArray[np.bool_]:
        """One slot; whether the crawled page had changed."""
        self._stale |= self._rng.random(self._stale.shape) < self._chance
        self._age += 1.0
        page = self._first[arm] + self._pointer[self._rows, arm]
        changed = self._stale[self._rows, page]
        self._stale[self._rows, page], self._age[self._rows, page] = False, 0.0
        self._pointer[self._rows, arm] = (self._pointer[self._rows, arm] + 1) % self.groups.pages[arm]
        self.elapsed += 1.0
        self.elapsed[self._rows, arm] = 0.0
        self.changed_last[self._rows, arm] = changed
        return np.asarray(changed)

    @property
    def freshness(self) -> Floats:
        """Share of importance whose copy is fresh after the crawl, per run."""
        return np.asarray(~self._stale @ self._weight)
