"""What happens on a synthetic web, drawn a span at a time as arrays: changes, and signals as heard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.population import UNIT_S, Population
from loadtest.web import draw_events
from service.domain import Floats, Model
from service.policy.ranking import storable

Pages = NDArray[np.int64]
Delay = Callable[[np.random.Generator, int], Floats]  # a number of delays, units


@dataclass(frozen=True, slots=True)
class Events:
    """When, in order, and on which page."""

    at: Floats
    page: Pages

    def keep(self, mask: NDArray[np.bool_]) -> Events:
        return Events(self.at[mask], self.page[mask])


NONE = Events(np.empty(0), np.empty(0, np.int64))


def in_order(*parts: Events) -> Events:
    """All events of the parts; of simultaneous ones those of the earlier part come first."""
    at, page = (np.concatenate([getattr(part, name) for part in parts]) for name in ("at", "page"))
    order = np.argsort(at, kind="stable")
    return Events(at[order], page[order])


def truth(population: Population) -> Model:
    """The model of the pages, per unit of time rather than per second."""
    return _per_unit(population.model)


def known(population: Population) -> Model:
    """The truth as the service keeps it: signals that are false 99 times in 100 are not listened to."""
    return _per_unit(storable(population.model))


def _per_unit(model: Model) -> Model:
    silent, signals = model.silent_rate * UNIT_S, model.signal_rate * UNIT_S
    return Model(model.importance, silent, model.signal_weight, signals)


class Happenings:
    """Changes and signals of all pages: a superposed Poisson process, independent of what is crawled.

    Pages without any true signal send no false ones either (nobody would listen); `delay` is by how
    much a signal, true or false, is heard after it was sent.
    """

    def __init__(self, population: Population, rng: np.random.Generator, delay: Delay | None = None) -> None:
        self._recall = population.recall
        self._changes = np.cumsum(population.change_rate)
        self._lies = np.cumsum(np.where(population.recall > 0, population.false_rate, 0.0))
        self._rng = rng
        self._delay = delay
        self._late = NONE

    def draw(self, begin: float, end: float) -> tuple[Events, Events]:
        """(changes, signals heard) in [begin, end)."""
        changes = Events(*draw_events(self._rng, self._changes, begin, end))
        told = changes.keep(self._rng.random(len(changes.at)) < self._recall[changes.page])
        lies = Events(*draw_events(self._rng, self._lies, begin, end)) if self._lies[-1] > 0 else NONE
        sent = in_order(told, lies)
        if self._delay is None:
            return changes, sent
        heard = Events(sent.at + self._delay(self._rng, len(sent.at)), sent.page)
        heard = in_order(self._late, heard)
        self._late = heard.keep(heard.at >= end)
        return changes, heard.keep(heard.at < end)
