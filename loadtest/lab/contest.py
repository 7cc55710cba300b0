"""Several crawl policies on the same synthetic web: how fresh each keeps it, and what it crawls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from loadtest.lab.brute_force import Policy, Served
from loadtest.lab.events import Delay, Events, Happenings, Pages, known, truth
from loadtest.lab.simulator import Simulator
from loadtest.lab.witness import Witness, unheard
from loadtest.population import Population
from loadtest.schedule import Schedule
from service.domain import Floats, Model
from service.policy.forecast import optimum
from service.policy.objectives import FRESHNESS, Objective
from service.policy.variants import greedy

LOST = -1  # the page of a slot in which nothing is crawled


class Crawler(Protocol):
    """Anything that fills slots with pages; a slot may be lost."""

    def advance(self, slots: Floats, signals: Events) -> Served: ...


@dataclass(frozen=True, slots=True)
class Run:
    """What one crawler did, after the warm-up."""

    freshness: float
    crawls: Pages  # of each page
    by_span: Floats  # freshness of every span, warm-up included
    at: Floats  # when the spans end


@dataclass(frozen=True, slots=True)
class Start:
    """A web at the beginning: how long ago each page was crawled (infinitely long if given up), and
    how many signals were heard since."""

    elapsed: Floats
    signals: Pages

    def depth(self, model: Model) -> Floats:
        """As it is according to a model."""
        seen, heard = np.isfinite(self.elapsed), self.signals > 0
        depth, jumps = np.full(len(seen), np.inf), np.zeros(len(seen))
        np.multiply(model.silent_rate, self.elapsed, out=depth, where=seen)
        np.multiply(model.signal_weight, self.signals, out=jumps, where=heard)
        return depth + jumps

    def simulate(self, believed: Model, objective: Objective = FRESHNESS, deaf: float = 0.0) -> Simulator:
        return Simulator(Policy(objective.name, believed, objective, deaf), self.depth(believed))


def settled(population: Population, bandwidth: float, rng: np.random.Generator) -> Start:
    """The long run of the best policy without signals: pages at random points of their cycles."""
    model = truth(population)
    frequency = optimum(greedy(model), bandwidth).frequency
    elapsed = np.full(population.size, np.inf)
    np.divide(rng.random(population.size), frequency, out=elapsed, where=frequency > 0)
    heard = rng.poisson(
        np.multiply(model.signal_rate, elapsed, out=np.zeros_like(elapsed), where=frequency > 0)
    )
    return Start(elapsed, heard)


def bests(population: Population, bandwidth: float) -> tuple[float, float]:
    """Freshness of the best continuous policy without signals (BASELINE), and with them."""
    deaf = optimum(greedy(truth(population)), bandwidth).freshness
    return deaf, optimum(known(population), bandwidth).freshness


@dataclass(frozen=True, slots=True)
class Contest:
    """When slots fall, how long to warm up, and how signals arrive."""

    schedule: Schedule
    warm: float
    span: float = 10.0
    delay: Delay | None = None

    def run(
        self,
        population: Population,
        start: Start,
        crawlers: Mapping[str, Crawler],
        rng: np.random.Generator,
    ) -> dict[str, Run]:
        """All crawlers see the same signals.

        Freshness is the expectation given everything heard; with delayed signals, of which that
        is hard to say, the true fresh time.
        """
        model = truth(population)
        judged = model if self.delay is None else unheard(model)
        witnesses = {name: Witness(judged, start.depth(model)) for name in crawlers}
        fresh: dict[str, list[float]] = {name: [] for name in crawlers}
        crawls = {name: np.zeros(population.size, np.int64) for name in crawlers}
        happenings = Happenings(population, rng, self.delay)
        slots = np.array([at for at, rate in self.schedule.ticks() if rate is None])
        ends = np.arange(self.span, self.schedule.end + self.span / 2, self.span)
        for end in ends.tolist():
            part = slots[slice(*np.searchsorted(slots, [end - self.span, end]).tolist())]
            changes, signals = happenings.draw(end - self.span, end)
            for name, crawler in crawlers.items():
                served = crawler.advance(part, signals)
                made = Events(part, served.page).keep(served.page != LOST)
                news = signals if self.delay is None else changes
                fresh[name].append(witnesses[name].watch(end, made, news))
                if end > self.warm:
                    crawls[name] += np.bincount(made.page, minlength=population.size)
        late = ends > self.warm
        return {
            name: Run(float(np.mean(np.array(each)[late])), crawls[name], np.array(each), ends)
            for name, each in fresh.items()
        }


def steady(bandwidth: float, *, warm: float, end: float, delay: Delay | None = None) -> Contest:
    """Constant bandwidth."""
    return Contest(Schedule(((0.0, bandwidth),), end), warm, delay=delay)
