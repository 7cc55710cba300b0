"""The policies that deep learning is compared with, and the run that compares them.

Source: "Deep reinforcement learning for web crawling", section IV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from loadtest.lab.deep_bandit import Arms, Bandit, Groups
from service.domain import Floats


class Policy(Protocol):
    """Chooses an arm in every run, and learns what came of it."""

    def choose(self) -> Arms: ...

    def learn(self, before: Floats, arm: Arms, changed: NDArray[np.bool_]) -> None: ...


class Static:
    """Arms at random, with chances that never change."""

    def __init__(self, bandit: Bandit, chances: Floats, rng: np.random.Generator) -> None:
        self._runs, self._chances, self._rng = bandit.runs, chances, rng

    def choose(self) -> Arms:
        return self._rng.choice(len(self._chances), self._runs, p=self._chances)

    def learn(self, before: Floats, arm: Arms, changed: NDArray[np.bool_]) -> None:
        """Nothing to learn."""


class Thompson:
    """The arm with the largest draw from Beta(1 + changes found, 1 + none found).

    The paper draws the chance of a change alone; with `weighted` the draw is multiplied by importance.
    """

    def __init__(self, bandit: Bandit, rng: np.random.Generator, *, weighted: bool) -> None:
        self._rng, self._rows = rng, np.arange(bandit.runs)
        self._weight = bandit.groups.importance if weighted else np.ones(bandit.groups.arms)
        self._found = np.ones((2, bandit.runs, bandit.groups.arms))

    def choose(self) -> Arms:
        return np.asarray(np.argmax(self._weight * self._rng.beta(*self._found), axis=1))

    def learn(self, before: Floats, arm: Arms, changed: NDArray[np.bool_]) -> None:  # noqa: ARG002
        self._found[np.where(changed, 0, 1), self._rows, arm] += 1.0


class CrawlValue:
    """The scheduler's own rule, told the rates: the arm whose next page has the largest crawl value.

    In slots V(n) = μ Σ_{j<n} ((1 − c)^j − (1 − c)^n), n slots of change being at stake: what (μ/Δ)R₁(Δι)
    is in continuous time.
    """

    def __init__(self, bandit: Bandit) -> None:
        self._bandit = bandit

    def choose(self) -> Arms:
        groups, slots = self._bandit.groups, self._bandit.age
        still = (1.0 - groups.chance) ** slots
        value = groups.importance * ((1.0 - still) / groups.chance - slots * still)
        return np.asarray(np.argmax(value, axis=1))

    def learn(self, before: Floats, arm: Arms, changed: NDArray[np.bool_]) -> None:
        """Knows all there is to learn."""


@dataclass(frozen=True, slots=True)
class Course:
    """What happened in every slot (rows) of every run (columns)."""

    reward: Floats
    freshness: Floats
    arm: Arms

    def arm_shares(self, arms: int, since: int) -> Floats:
        """Share of crawls each arm got from a slot on."""
        return np.bincount(self.arm[since:].ravel(), minlength=arms) / self.arm[since:].size


def play(
    groups: Groups,
    make: Callable[[Bandit], Policy],
    *,
    slots: int,
    runs: int,
    rng: np.random.Generator,
    report: Callable[[float], None] = lambda _: None,
) -> Course:
    """Let a policy crawl; the page it chose pays its importance if it had changed (eq. (3))."""
    bandit = Bandit(groups, runs, rng)
    policy = make(bandit)
    reward, freshness = np.empty((2, slots, runs))
    arms = np.empty((slots, runs), dtype=np.int64)
    for slot in range(slots):
        before, arm = bandit.state, policy.choose()
        changed = bandit.step(arm)
        policy.learn(before, arm, changed)
        reward[slot], freshness[slot] = groups.importance[arm] * changed, bandit.freshness
        arms[slot] = arm
        if slot % 100 == 0:
            report(slot / slots)
    return Course(reward, freshness, arms)
