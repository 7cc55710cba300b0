"""Phased ε-greedy: keep crawling a little of everything, and plan anew after each phase.

Source: "Learning to crawl", section 6.2.
"""

from __future__ import annotations

import numpy as np

from loadtest.lab.learning_estimators import Tally
from loadtest.lab.learning_explore import Web
from service.domain import Floats


def phase_length(web: Web, tolerance: float = 0.01) -> float:
    """Time after which the stationary utility holds to within this share: Lemma 1.

    (1/Δmin) log(2Σμ/ε), with the smallest rate there is (the bound known beforehand may be far
    below it) and ε a share of Σμ.
    """
    return float(np.log(2.0 / tolerance) / np.min(web.change_rate))


def phased_losses(
    web: Web, *, phases: int, length: float, explore: float, rng: np.random.Generator
) -> Floats:
    """F* − F of the rates followed in each phase.

    The first phase crawls all pages alike; later ones spend the share `explore` of bandwidth so.
    """
    uniform = np.full(web.size, web.bandwidth / web.size)
    rates, losses = uniform, np.empty(phases)
    tally = Tally(web.size, longest=length)
    for phase in range(phases):
        losses[phase] = web.best_utility - web.utility(rates)
        _watch(web, rates, length, tally, rng)
        planned = web.planned_rates(tally.moment_matching(lowest=web.lowest, highest=web.highest))
        rates = (1.0 - explore) * planned + explore * uniform
    return losses


def _watch(web: Web, rates: Floats, length: float, tally: Tally, rng: np.random.Generator) -> None:
    """One phase of Poisson crawls; elapsed times across the seam of two phases are left out."""
    page = np.repeat(np.arange(web.size), rng.poisson(rates * length))
    elapsed = rng.exponential(1.0 / rates[page])
    tally.add(page, elapsed, rng.random(len(page)) < -np.expm1(-web.change_rate[page] * elapsed))
