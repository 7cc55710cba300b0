"""What a sequence of changes and crawls cost: time means of missed changes, counted and not computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from service.domain import Floats
from service.policy.staleness import Pages


@dataclass(frozen=True, slots=True)
class Events:
    """Instants at which pages change or are crawled, in any order."""

    page: NDArray[np.int64]
    at: Floats

    @classmethod
    def of_rates(cls, rate: Floats, horizon: float, rng: np.random.Generator) -> Events:
        """Independent Poisson processes, one per page."""
        count = rng.poisson(rate * horizon)
        return cls(np.repeat(np.arange(len(rate)), count), rng.uniform(0.0, horizon, int(np.sum(count))))

    def __len__(self) -> int:
        return len(self.page)

    def select(self, mask: NDArray[np.bool_]) -> Events:
        return Events(self.page[mask], self.at[mask])


@dataclass(frozen=True, slots=True)
class Staleness:
    """Per page, means over the time counted, not weighted by importance."""

    harmonic: Floats  # H(N) of N missed changes
    binary: Floats  # [N > 0]
    delay: Floats  # N


def count_staleness(
    changes: Events, crawls: Events, pages: int, horizon: float, *, since: float = 0.0
) -> Staleness:
    """Means over [since, horizon] for pages fresh at 0; a crawl at the instant of a change gets it."""
    page = np.concatenate([np.arange(pages), changes.page, crawls.page])
    at = np.concatenate([np.zeros(pages), changes.at, crawls.at])
    is_change = np.zeros(len(page), dtype=bool)
    is_change[pages : pages + len(changes)] = True
    order = np.lexsort((~is_change, at, page))
    page, at, is_change = page[order], at[order], is_change[order]
    before = np.cumsum(is_change)
    at_crawl = np.maximum.accumulate(np.where(is_change, 0, before))  # every page begins with a crawl
    missed = (before - at_crawl).astype(np.float64)
    until = np.append(at[1:], horizon)
    until[np.append(page[1:] != page[:-1], True)] = horizon
    lasting = np.maximum(until, since) - np.maximum(at, since)

    def mean(cost: Floats) -> Floats:
        return np.bincount(page, cost * lasting, minlength=pages) / (horizon - since)

    return Staleness(mean(harmonic_number(missed)), mean((missed > 0).astype(np.float64)), mean(missed))


def harmonic_number(count: Floats) -> Floats:
    """H(n) = 1 + ½ + … + 1/n, and H(0) = 0."""
    return np.asarray(digamma(count + 1.0) + np.euler_gamma)


def run_rates(
    pages: Pages, rate: Floats, horizon: float, rng: np.random.Generator, *, since: float = 0.0
) -> tuple[Staleness, int]:
    """Rates carried out: Poisson crawls, or at each change of an observed page with chance ρ/Δ.

    Returns what it cost and the number of crawls.
    """
    changes = Events.of_rates(pages.change_rate, horizon, rng)
    chance = np.divide(rate, pages.change_rate, out=np.zeros_like(rate), where=pages.change_rate > 0)
    answered = pages.observed[changes.page] & (rng.random(len(changes)) < chance[changes.page])
    drawn = Events.of_rates(np.where(pages.observed, 0.0, rate), horizon, rng)
    heard = changes.select(answered)
    crawls = Events(np.concatenate([drawn.page, heard.page]), np.concatenate([drawn.at, heard.at]))
    return count_staleness(changes, crawls, pages.size, horizon, since=since), len(crawls)
