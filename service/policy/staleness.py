"""What a table of crawl rates costs in the long run, in closed form: the objectives of LambdaCrawl.

Unobserved pages are crawled by a Poisson process of rate ρ; observed ones, whose every change is
signalled, at each change with probability p = ρ/Δ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats


@dataclass(frozen=True, slots=True)
class Pages:
    """What the rates of pages depend on; all arrays of one length, rates per unit of time."""

    importance: Floats  # μ ≥ 0
    change_rate: Floats  # Δ ≥ 0
    observed: NDArray[np.bool_]  # whether every change is signalled, and nothing else

    @property
    def size(self) -> int:
        return len(self.importance)

    def unobserved(self) -> Pages:
        """The same pages, their signals ignored."""
        return replace(self, observed=np.zeros(self.size, dtype=bool))

    def select(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Pages:
        return Pages(self.importance[which], self.change_rate[which], self.observed[which])


def harmonic_cost(rate: Floats, pages: Pages) -> Floats:
    """μ ln((Δ + ρ)/ρ), or −μ ln p where observed: Propositions 2 and 5. The mean of μ H(missed changes).

    Per page; infinite where a page that changes is never crawled, 0 where μ or Δ is 0.
    """
    changes = pages.change_rate
    ratio = np.divide(changes, rate, out=np.full_like(changes, np.inf), where=rate > 0)
    excess = np.where(pages.observed, np.maximum(ratio - 1.0, 0.0), ratio)
    return _weighted(np.log1p(excess), pages)


def binary_cost(rate: Floats, pages: Pages) -> Floats:
    """μΔ/(Δ + ρ), or μ(1 − p) where observed: equations (16) and (17). The mean of μ·[anything missed]."""
    changes = pages.change_rate
    unheard = np.divide(changes, changes + rate, out=np.zeros_like(changes), where=changes > 0)
    answered = np.divide(rate, changes, out=np.ones_like(changes), where=changes > 0)
    return _weighted(np.where(pages.observed, 1.0 - np.minimum(answered, 1.0), unheard), pages)


def delay_cost(rate: Floats, pages: Pages) -> Floats:
    """μΔ/ρ, or μ(1 − p)/p where observed: the mean of μ·(missed changes)."""
    changes = pages.change_rate
    missed = np.divide(changes, rate, out=np.full_like(changes, np.inf), where=rate > 0)
    return _weighted(np.where(pages.observed, np.maximum(missed - 1.0, 0.0), missed), pages)


def _weighted(cost: Floats, pages: Pages) -> Floats:
    """μ·cost; 0 for pages that do not matter or never change, whatever their rate."""
    matters = (pages.importance > 0) & (pages.change_rate > 0)
    return np.multiply(pages.importance, cost, out=np.zeros_like(cost), where=matters)
