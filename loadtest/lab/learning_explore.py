"""Explore, then commit: crawl all pages in turn, estimate, and keep to the rates that follow.

Source: "Learning to crawl", sections 5 and 6.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from loadtest.lab.learning_estimators import equal_intervals
from loadtest.lab.poisson_rates import freshness_utility, optimal_rates, regular_utility
from service.domain import Floats

# Daily crawls over 98 days that neither always nor never find a change give rates between these.
SLOWEST, FAST = -float(np.log1p(-1 / 98)), float(np.log(98))
SLOW = 0.1  # as fastest rate: changes of all pages can be told apart by a crawl every 50 days


@dataclass(frozen=True)
class Web:
    """Pages whose change rates are to be learned, and what is known beforehand."""

    change_rate: Floats
    importance: Floats
    bandwidth: float
    lowest: float = 1e-9  # bounds of the change rates known to the crawler: those of section 6.1
    highest: float = 25.0

    @property
    def size(self) -> int:
        return len(self.change_rate)

    @property
    def round_time(self) -> float:
        """m/R: one crawl of every page."""
        return self.size / self.bandwidth

    @cached_property
    def best_utility(self) -> float:
        """F of the optimal rates."""
        return float(self.utility(optimal_rates(self.change_rate, self.importance, self.bandwidth)))

    def utility(self, rates: Floats) -> Floats:
        return freshness_utility(rates, self.change_rate, self.importance)

    def planned_rates(self, estimate: Floats) -> Floats:
        """The rates that would be best if the estimate were true."""
        return optimal_rates(estimate, self.importance, self.bandwidth)

    @cached_property
    def exploring_loss(self) -> float:
        """What each unit of crawling all pages in turn costs against the optimal rates."""
        return self.best_utility - float(regular_utility(self.round_time, self.change_rate, self.importance))


def bing_like(rng: np.random.Generator, pages: int, bandwidth: float, fastest: float = SLOW) -> Web:
    """Stands in for the sample of a production crawl: Δ log-uniform, importance log-normal (σ = 2)."""
    change_rate = np.exp(rng.uniform(np.log(SLOWEST), np.log(fastest), pages))
    return Web(change_rate, rng.lognormal(0.0, 2.0, pages), bandwidth)


def exploring_estimates(web: Web, rounds: NDArray[np.int64], rng: np.random.Generator) -> Iterator[Floats]:
    """Estimates after each number of rounds (increasing), of one exploration."""
    unchanged, done = np.zeros(web.size), 0
    still = np.exp(-web.change_rate * web.round_time)
    for count in rounds.tolist():
        unchanged += rng.binomial(count - done, still)
        done = count
        yield equal_intervals(unchanged / done, web.round_time, lowest=web.lowest, highest=web.highest)


def commit_losses(web: Web, rounds: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """F* − F of the rates committed to after each number of rounds, of one exploration."""
    estimates = exploring_estimates(web, rounds, rng)
    return np.array([web.best_utility - web.utility(web.planned_rates(each)) for each in estimates])


def regret(web: Web, rounds: NDArray[np.int64], losses: Floats, horizon: float) -> Floats:
    """(τ·loss of exploring + (T − τ)·loss of what was committed to)/m; infinite where τ > T."""
    explored = rounds * web.round_time
    total = explored * web.exploring_loss + (horizon - explored) * losses
    return np.where(explored <= horizon, total / web.size, np.inf)


def theorem_exploration(web: Web, horizon: float, miss: float = 0.1) -> float:
    """log τ* of Theorem 1: τ* = √(e^(2Δmax m/R) R log(2m/δ) T / (2m Δmin²)).

    A logarithm because of the exponential: with the bounds of section 6.1 τ* exceeds 10^500.
    """
    certainty = web.bandwidth * np.log(2 * web.size / miss) / (2 * web.size * web.lowest**2)
    return float(web.highest * web.round_time + 0.5 * np.log(certainty * horizon))


def theorem_bound(web: Web, horizon: float, miss: float = 0.1) -> float:
    """log of the regret that Theorem 1 allows at its τ*, 2√(ABT) = 2Aτ* with A = mean importance."""
    mean = float(np.mean(web.importance))
    return float(np.log(2 * mean)) + theorem_exploration(web, horizon, miss)
