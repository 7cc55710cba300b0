"""What a crawl policy is and what it knows, and the plainest way to follow one: evaluate every page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.lab.events import NONE, Events, Pages, in_order
from service.domain import Floats, Model
from service.policy.objectives import FRESHNESS, Objective


@dataclass(frozen=True, slots=True)
class Policy:
    """Crawl the page of largest value, the pages being as believed (rates per unit of time)."""

    name: str
    believed: Model
    objective: Objective = FRESHNESS
    deaf: float = 0.0  # T_DELAY: signals heard so soon after a crawl are discarded


@dataclass(frozen=True, slots=True)
class Served:
    """The pages crawled, a slot each, and their values."""

    page: Pages
    value: Floats


class Depths:
    """What a policy knows of every page: s = base + α·now, and until when signals are discarded."""

    def __init__(self, policy: Policy, depth: Floats) -> None:
        self.policy, self.model = policy, policy.believed
        self.base = depth.copy()
        self.deaf_until = np.full(len(depth), -np.inf)
        self._unheard = NONE

    def at(self, now: float) -> Floats:
        return np.asarray(self.base + self.model.silent_rate * now)

    def values(self, now: float) -> Floats:
        return self.policy.objective.value(self.at(now), self.model)

    def assign(self, slots: Floats, signals: Events) -> tuple[Events, NDArray[np.int64]]:
        """The signals that matter, and before which slot each is heard; later ones are kept."""
        signals = in_order(self._unheard, signals.keep(self.model.signal_weight[signals.page] > 0))
        slot = np.searchsorted(slots, signals.at)
        self._unheard = signals.keep(slot == len(slots))
        return signals.keep(slot < len(slots)), slot[slot < len(slots)]

    def hear(self, signals: Events) -> None:
        """Signals, in order, all of them after the last crawl of their page."""
        heard = signals.page[signals.at > self.deaf_until[signals.page]]
        np.add.at(self.base, heard, self.model.signal_weight[heard])

    def crawl(self, page: int | Pages, now: float | Floats) -> None:
        self.base[page] = -self.model.silent_rate[page] * now
        self.deaf_until[page] = now + self.policy.deaf


class BruteForce(Depths):
    """The value of every page at every slot: what the lazy simulator must agree with."""

    def advance(self, slots: Floats, signals: Events) -> Served:
        signals, slot = self.assign(slots, signals)
        bounds = np.searchsorted(slot, np.arange(len(slots) + 1))
        page, value = np.empty(len(slots), np.int64), np.empty(len(slots))
        for j, now in enumerate(slots.tolist()):
            part = slice(bounds[j], bounds[j + 1])
            self.hear(Events(signals.at[part], signals.page[part]))
            values = self.values(now)
            page[j] = np.argmax(values)
            value[j] = values[page[j]]
            self.crawl(int(page[j]), now)
        return Served(page, value)
