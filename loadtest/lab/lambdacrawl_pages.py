"""Pages shaped like those LambdaCrawl was tried on, whose own data are not at hand.

Importance and change rate are log-normal. At a bandwidth of 20 % of the pages, the published costs
of UniformCrawl and ChangeRateCrawl fix the mean importance, the mean and spread of change rates and
how both go together: with ρ ∝ Δ the costs depend on the means only, with equal ρ also on the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from service.policy.staleness import Pages

BANDWIDTH_SHARE = 0.2  # crawls per day and page, in all of the paper's runs
IMPORTANCE_SPREAD = 1.5  # of ln μ: three quarters of the pages below 1000, as in the paper's histogram


@dataclass(frozen=True, slots=True)
class Edition:
    """One version of the paper: what it prints of its data, and what follows from that."""

    name: str
    observed_share: float  # of pages whose every change is signalled
    uniform: tuple[float, float]  # harmonic and binary cost per page of UniformCrawl, as printed
    proportional: tuple[float, float]  # of ChangeRateCrawl
    saved: float  # share of 0.4-BLC's harmonic cost that LambdaCrawl saves, as printed
    mean_importance: float  # solved from the four costs, as are the next three
    mean_change_rate: float  # per day
    change_spread: float  # of ln Δ
    tilt: float  # covariance of ln μ and ln Δ

    def draw(self, size: int, rng: np.random.Generator) -> Pages:
        """A web of this many pages; observed ones are like the others."""
        first, second = rng.standard_normal((2, size))
        together = self.tilt / (IMPORTANCE_SPREAD * self.change_spread)
        change = together * first + np.sqrt(1.0 - together**2) * second
        return Pages(
            importance=self.mean_importance * np.exp(IMPORTANCE_SPREAD * first - IMPORTANCE_SPREAD**2 / 2),
            change_rate=self.mean_change_rate
            * np.exp(self.change_spread * change - self.change_spread**2 / 2),
            observed=rng.random(size) < self.observed_share,
        )

    def with_mean_change_rate(self, mean: float) -> Edition:
        return replace(self, mean_change_rate=mean)


EXTENDED = Edition(
    name="extended",
    observed_share=0.13,
    uniform=(1237.0, 636.0),
    proportional=(1791.0, 891.0),
    saved=0.22,
    mean_importance=1114.4,
    mean_change_rate=0.7977,
    change_spread=1.4069,
    tilt=-0.0030,
)
NEURIPS = Edition(
    name="NeurIPS",
    observed_share=0.04,
    uniform=(1268.0, 628.0),
    proportional=(2144.0, 963.0),
    saved=0.35,
    mean_importance=1134.4,
    mean_change_rate=1.1239,
    change_spread=1.6010,
    tilt=-0.1305,
)
EDITIONS = (EXTENDED, NEURIPS)
