"""Full-gradient deep Q-learning: descend on the Bellman error itself, through both of its terms.

Source: "Deep reinforcement learning for web crawling", section III and appendix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadtest.lab.deep_bandit import Arms, Bandit
from loadtest.lab.deep_network import Adam, Network
from service.domain import Floats

DISCOUNT = 0.95
HIDDEN = (32, 8)
BATCH = 32
RATE = 1e-2
EXPLORE_FIRST, EXPLORE_LAST = 0.7, 0.1
SEEN = 200  # elapsed slots told apart when successors are averaged


def bellman_gradient(
    network: Network, before: Floats, arm: Arms, reward: Floats, after: Floats, chance: Floats
) -> tuple[Floats, list[Floats]]:
    """The error r + γ Σ p max Q(after) − Q(before, arm), and the gradient of half its mean square.

    Arrays are (runs, samples, …); `after` and `chance` have one more axis, over the states that may
    follow. With one of them, and chance 1, that is eq. (9) as the paper runs it; with all of them
    and their chances it is the true Bellman error the scheme is meant to descend on.
    """
    runs, samples, outcomes, width = after.shape
    now = network.forward(before)
    then = network.forward(after.reshape(runs, samples * outcomes, width))
    best = np.argmax(then[-1], axis=2)[..., None]
    reached = np.take_along_axis(then[-1], best, axis=2).reshape(chance.shape)
    chosen = np.take_along_axis(now[-1], arm[..., None], axis=2)[..., 0]
    error = reward + DISCOUNT * np.sum(chance * reached, axis=2) - chosen
    down, up = np.zeros_like(now[-1]), np.zeros_like(then[-1])
    np.put_along_axis(down, arm[..., None], -error[..., None] / samples, axis=2)
    raised = DISCOUNT * (error[..., None] * chance).reshape(runs, samples * outcomes, 1) / samples
    np.put_along_axis(up, best, raised, axis=2)
    pairs = zip(network.backward(now, down), network.backward(then, up), strict=True)
    return error, [one + other for one, other in pairs]


class DeepLearner:
    """ε-greedy on a network's values, trained on random batches of all that happened.

    With `averaged`, the state that follows is averaged over both outcomes of the crawl, with the share
    of crawls that found a change at that arm after as many slots.
    """

    def __init__(self, bandit: Bandit, slots: int, rng: np.random.Generator, *, averaged: bool) -> None:
        self._bandit, self._rng, self._averaged = bandit, rng, averaged
        runs, arms = bandit.runs, bandit.groups.arms
        self._network = Network(runs, (2 * arms, *HIDDEN, arms), rng)
        self._adam = Adam(self._network.parameters, RATE)
        self._slots, self._filled = slots, 0
        self._states = np.zeros((runs, slots + 1, 2 * arms))
        self._arms = np.zeros((runs, slots), dtype=np.int64)
        self._waited = np.zeros((runs, slots), dtype=np.int64)
        self._changed = np.zeros((runs, slots))
        self._found = np.full((2, runs, arms, SEEN), 0.5)  # crawls that found a change, that found none
        self._rows = np.arange(runs)

    def choose(self) -> Arms:
        done = min(1.0, 2.0 * self._filled / self._slots)
        explore = EXPLORE_FIRST + (EXPLORE_LAST - EXPLORE_FIRST) * done
        values = self._network.forward(_features(self._bandit.state)[:, None])[-1][:, 0]
        random = self._rng.integers(values.shape[1], size=len(values))
        return np.where(self._rng.random(len(values)) < explore, random, np.argmax(values, axis=1))

    def learn(self, before: Floats, arm: Arms, changed: NDArray[np.bool_]) -> None:
        """Remember one slot, then make one step on a batch of those remembered."""
        at = self._filled
        self._states[:, at], self._states[:, at + 1] = _features(before), _features(self._bandit.state)
        self._arms[:, at], self._changed[:, at] = arm, changed
        waited = np.minimum(before[self._rows, arm], SEEN - 1).astype(np.int64)
        self._waited[:, at] = waited
        self._found[np.where(changed, 0, 1), self._rows, arm, waited] += 1.0
        self._filled += 1
        if self._filled >= BATCH:
            self._train()

    def _train(self) -> None:
        rows = self._rows[:, None]
        at = self._rng.integers(self._filled, size=(len(rows), BATCH))
        before, arm = self._states[rows, at], self._arms[rows, at]
        after, chance = self._states[rows, at + 1][:, :, None], np.ones((*at.shape, 1))
        changed = self._changed[rows, at]
        if self._averaged:
            after, chance = self._successors(after, arm, self._waited[rows, at])
            changed = chance[..., 0]
        reward = self._bandit.groups.importance[arm] * changed
        _, gradient = bellman_gradient(self._network, before, arm, reward, after, chance)
        self._adam.descend(gradient)

    def _successors(self, after: Floats, arm: Arms, waited: Arms) -> tuple[Floats, Floats]:
        """The states after a crawl that finds a change and after one that does not, and their chances."""
        arms = self._bandit.groups.arms
        yes, no = self._found[:, self._rows[:, None], arm, waited]
        both = np.repeat(after, 2, axis=2)
        bit = (arms + arm)[..., None, None]
        np.put_along_axis(both, np.repeat(bit, 2, axis=2), np.array([[1.0], [0.0]]), axis=3)
        share = yes / (yes + no)
        return both, np.stack([share, 1.0 - share], axis=2)


def _features(state: Floats) -> Floats:
    """Elapsed slots on a logarithmic scale, so that long ones do not drown the rest; bits as they are."""
    arms = state.shape[1] // 2
    return np.concatenate([np.log1p(state[:, :arms]), state[:, arms:]], axis=1)
