"""Greedy crawling, one page per slot, by brute force: the largest value of all pages wins.

For small webs and policies of any kind; nothing is cached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loadtest.lab.staleness import Events, Staleness, count_staleness
from loadtest.population import UNIT_S, Population
from service.domain import Floats, Model
from service.policy.objectives import Objective

Value = Callable[[Floats, Floats], Floats]  # of elapsed time and signals since the last crawl, per page


@dataclass(frozen=True)
class Web:
    """What happens to pages until `horizon`, whoever crawls them; a slot each 1/R."""

    population: Population
    changes: Events
    signals: Events
    bandwidth: float
    horizon: float

    @classmethod
    def draw(cls, population: Population, bandwidth: float, slots: int, rng: np.random.Generator) -> Web:
        horizon = slots / bandwidth
        changes = Events.of_rates(population.change_rate, horizon, rng)
        true = changes.select(rng.random(len(changes)) < population.recall[changes.page])
        false = Events.of_rates(population.false_rate, horizon, rng)
        signals = Events(np.concatenate([true.page, false.page]), np.concatenate([true.at, false.at]))
        order = np.argsort(signals.at)
        return cls(population, changes, Events(signals.page[order], signals.at[order]), bandwidth, horizon)

    @property
    def slots(self) -> Floats:
        """Their instants."""
        return np.arange(1, round(self.horizon * self.bandwidth) + 1) / self.bandwidth

    def judge(self, crawled: NDArray[np.int64], since: float) -> Staleness:
        """What crawling these pages, one per slot, cost after `since`."""
        crawls = Events(crawled, self.slots)
        return count_staleness(self.changes, crawls, self.population.size, self.horizon, since=since)


def crawl_greedily(web: Web, value: Value) -> NDArray[np.int64]:
    """The page crawled in each slot: arg max of the value; all pages were crawled at time 0."""
    crawled_at, heard = np.zeros(web.population.size), np.zeros(web.population.size)
    crawled = np.empty(len(web.slots), dtype=np.int64)
    arrived = np.searchsorted(web.signals.at, web.slots).tolist()
    seen = 0
    for slot, (now, until) in enumerate(zip(web.slots.tolist(), arrived, strict=True)):
        np.add.at(heard, web.signals.page[seen:until], 1.0)
        seen = until
        page = int(np.argmax(value(now - crawled_at, heard)))
        crawled[slot], crawled_at[page], heard[page] = page, now, 0.0
    return crawled


def crawl_at_random(web: Web, rate: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """The page of each slot drawn by rate: Poisson crawls, each put off to a slot."""
    return rng.choice(len(rate), len(web.slots), p=rate / np.sum(rate))


def model_of(population: Population) -> Model:
    """The scheduler's model, in the population's own unit of time."""
    model = population.model
    return replace(model, silent_rate=model.silent_rate * UNIT_S, signal_rate=model.signal_rate * UNIT_S)


def deaf_model(population: Population) -> Model:
    """The model of the same pages for a scheduler that hears no signals."""
    nothing = np.zeros(population.size)
    return Model(population.importance, population.change_rate, nothing, nothing)


def value_of(objective: Objective, model: Model, signal_weight: Floats | None = None) -> Value:
    """An objective's crawl value at depth s = ατ + κn, or with other weights of a signal than κ."""
    silent, weight = model.silent_rate, model.signal_weight if signal_weight is None else signal_weight
    return lambda elapsed, heard: objective.value(silent * elapsed + weight * heard, model)


def linear_value(rate: Floats) -> Value:
    """V = ρι: visits each page about ρ times per unit, evenly spaced."""
    return lambda elapsed, _: rate * elapsed
