"""What the pages of a synthetic web are like: the truth about each, drawn at random.

Rates are per unit of time; the drivers make one unit a day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats, Model

UNIT_S = 86400.0


@dataclass(frozen=True)
class Population:
    """The truth about every page; rates are per unit."""

    importance: Floats  # μ
    change_rate: Floats  # Δ
    recall: Floats  # λ
    false_rate: Floats  # ν
    host: NDArray[np.int64]

    @property
    def size(self) -> int:
        return len(self.importance)

    @cached_property
    def precision(self) -> Floats:
        """Share of signals that are true; 0 where there are none."""
        true = self.recall * self.change_rate
        both = true + self.false_rate
        return np.divide(true, both, out=np.zeros_like(both), where=both > 0)

    @cached_property
    def model(self) -> Model:
        """The same as the scheduler's model, in seconds."""
        true = self.recall * self.change_rate
        weight = np.full_like(true, np.inf)
        np.divide(true, self.false_rate, out=weight, where=self.false_rate > 0)
        return Model(
            importance=self.importance,
            silent_rate=(1.0 - self.recall) * self.change_rate / UNIT_S,
            signal_weight=np.where(true > 0, np.log1p(weight), 0.0),
            signal_rate=np.where(true > 0, true + self.false_rate, 0.0) / UNIT_S,
        )

    @cached_property
    def urls(self) -> list[str]:
        return [f"https://host-{h}.example/page-{i}" for i, h in enumerate(self.host.tolist())]


def noisy_population(rng: np.random.Generator, pages: int, hosts: int) -> Population:
    """Δ, μ ~ U[0, 1], λ ~ Beta(¼, ¼), ν ~ U(0.1, 0.6): signals good, bad and in between."""
    return Population(
        importance=1.0 - rng.random(pages),
        change_rate=1.0 - rng.random(pages),
        recall=rng.beta(0.25, 0.25, pages),
        false_rate=rng.uniform(0.1, 0.6, pages),
        host=rng.integers(hosts, size=pages),
    )


def silent_population(rng: np.random.Generator, pages: int, hosts: int) -> Population:
    """Δ, μ ~ U[0, 1] and no signals at all."""
    return Population(
        importance=1.0 - rng.random(pages),
        change_rate=1.0 - rng.random(pages),
        recall=np.zeros(pages),
        false_rate=np.zeros(pages),
        host=rng.integers(hosts, size=pages),
    )


def shared_population(rng: np.random.Generator, pages: int, hosts: int) -> Population:
    """Δ, μ ~ U[0, 1]; precision and recall ~ U[0.2, 0.95], the same for every page of a host.

    What one page of a host shows of its signals is true of the others: ν = λΔ(1 − p)/p.
    """
    host = rng.integers(hosts, size=pages)
    precision, recall = (rng.uniform(0.2, 0.95, hosts)[host] for _ in range(2))
    importance, change_rate = 1.0 - rng.random(pages), 1.0 - rng.random(pages)
    false_rate = recall * change_rate * (1.0 - precision) / precision
    return Population(importance, change_rate, recall, false_rate, host)


def mixed_population(rng: np.random.Generator, pages: int, hosts: int) -> Population:
    """The noisy population with λ and ν drawn per host: pages share recall but not precision."""
    host = rng.integers(hosts, size=pages)
    recall, false_rate = rng.beta(0.25, 0.25, hosts)[host], rng.uniform(0.1, 0.6, hosts)[host]
    importance, change_rate = 1.0 - rng.random(pages), 1.0 - rng.random(pages)
    return Population(importance, change_rate, recall, false_rate, host)


def skewed_population(rng: np.random.Generator, pages: int, hosts: int) -> Population:
    """The noisy population on hosts of Zipf sizes (exponent 1), the pages of each as fast as a Zipf rate.

    The rates are dealt to the hosts at random, so a large host may be fast or slow; a page's is half to one
    and a half times its host's. Δ and μ are scaled to a mean of ½ as in the noisy population.
    """
    noisy = noisy_population(rng, pages, hosts)
    shares = 1.0 / np.arange(1, hosts + 1)
    host = rng.choice(hosts, size=pages, p=shares / shares.sum())
    rate = rng.permutation(shares)[host] * rng.uniform(0.5, 1.5, pages)
    return replace(noisy, host=host, change_rate=0.5 * rate / rate.mean())


POPULATIONS: dict[str, Callable[[np.random.Generator, int, int], Population]] = {
    "noisy": noisy_population,
    "silent": silent_population,
    "shared": shared_population,
    "mixed": mixed_population,
    "skewed": skewed_population,
}
