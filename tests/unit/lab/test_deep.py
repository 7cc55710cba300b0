"""The restless bandit of crawling, its policies, and the network that learns it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pytest

from loadtest.lab.deep_bandit import Bandit, Groups, static_optimum
from loadtest.lab.deep_figures import EXPERIMENTS, GROUPED, SINGLE, contestants
from loadtest.lab.deep_learner import DISCOUNT, DeepLearner, bellman_gradient
from loadtest.lab.deep_network import Adam, Network
from loadtest.lab.deep_policies import Course, CrawlValue, Policy, Static, Thompson, play
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.poisson_rates import freshness_utility
from service.domain import Floats

PAPER_OPTIMUM = [0.942, 0.003, 0.055, 0.0]  # its second and third numbers exchanged


def numeric_gradient(network: Network, loss: Callable[[], float], step: float = 1e-6) -> list[Floats]:
    found = []
    for values in network.parameters:
        slope = np.empty_like(values)
        for place in np.ndindex(values.shape):
            kept = values[place]
            values[place] = kept + step
            above = loss()
            values[place] = kept - step
            slope[place] = (above - loss()) / (2 * step)
            values[place] = kept
        found.append(slope)
    return found


def test_the_networks_gradient_agrees_with_differences() -> None:
    """Central differences of 1e-6 are good to about 1e-8 where no rectifier switches."""
    rng = np.random.default_rng(1)
    network = Network(2, (3, 5, 4, 2), rng)
    inputs, slope = rng.normal(size=(2, 7, 3)), rng.normal(size=(2, 7, 2))
    exact = network.backward(network.forward(inputs), slope)
    numeric = numeric_gradient(network, lambda: float(np.sum(slope * network.forward(inputs)[-1])))
    for one, other in zip(exact, numeric, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("outcomes", [1, 2])
def test_the_bellman_gradient_goes_through_both_terms(outcomes: int) -> None:
    rng = np.random.default_rng(2)
    network = Network(2, (4, 6, 5, 3), rng)
    for bias in network.biases:  # no two outputs alike, even where all rectifiers are shut
        bias += rng.normal(size=bias.shape)
    before, after = rng.normal(size=(2, 8, 4)), rng.normal(size=(2, 8, outcomes, 4))
    arm, reward = rng.integers(3, size=(2, 8)), rng.random((2, 8))
    chance = rng.dirichlet(np.ones(outcomes), (2, 8))

    def loss() -> float:
        error, _ = bellman_gradient(network, before, arm, reward, after, chance)
        return float(np.sum(np.mean(error**2, axis=1)) / 2)

    _, exact = bellman_gradient(network, before, arm, reward, after, chance)
    for one, other in zip(exact, numeric_gradient(network, loss), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_bellman_error_is_as_defined() -> None:
    network = Network(1, (2, 3, 3, 2), np.random.default_rng(3))
    before, after = np.array([[[0.3, 1.0]]]), np.array([[[[0.1, 0.0], [0.2, 1.0]]]])
    error, _ = bellman_gradient(
        network, before, np.array([[1]]), np.array([[0.7]]), after, np.array([[[0.25, 0.75]]])
    )
    now, then = network.forward(before)[-1], network.forward(after[0])[-1][0]
    expected = 0.7 + DISCOUNT * (0.25 * then[0].max() + 0.75 * then[1].max()) - now[0, 0, 1]
    assert error[0, 0] == pytest.approx(expected)


def test_training_fits_a_function_and_runs_do_not_mix() -> None:
    """Two runs taught opposite targets reach both."""
    rng = np.random.default_rng(4)
    network = Network(2, (1, 16, 8, 1), rng)
    adam = Adam(network.parameters, 1e-2)
    inputs = np.repeat(np.linspace(-1, 1, 40)[None, :, None], 2, axis=0)
    target = np.abs(inputs) * np.array([1.0, -1.0])[:, None, None]
    for _ in range(500):
        layers = network.forward(inputs)
        adam.descend(network.backward(layers, (layers[-1] - target) / 40))
    assert np.sqrt(np.mean((network.forward(inputs)[-1] - target) ** 2)) < 0.05


def test_static_optimum_is_the_papers_with_two_numbers_exchanged() -> None:
    np.testing.assert_allclose(static_optimum(SINGLE, SINGLE.importance), PAPER_OPTIMUM, atol=0.002)
    printed = np.array([0.942, 0.055, 0.003, 0.0])

    def value(chances: Floats) -> float:
        return float(freshness_utility(chances, SINGLE.chance, SINGLE.importance, 1.0 - SINGLE.chance))

    assert value(printed) < value(np.array(PAPER_OPTIMUM)) - 0.1


def test_static_optimum_is_the_best_of_a_fine_grid() -> None:
    steps = 200
    grid = np.array(
        [(steps - a - b - c, a, b, c) for a, b, c in product(range(0, 16, 1), range(0, 31), range(0, 16))]
    )
    values = freshness_utility(grid / steps, SINGLE.chance, SINGLE.importance, 1.0 - SINGLE.chance)
    best = grid[np.argmax(values)] / steps
    np.testing.assert_allclose(static_optimum(SINGLE, SINGLE.importance), best, atol=1.0 / steps)


def test_static_optimum_of_groups_is_that_of_their_pages() -> None:
    apart = Groups(
        GROUPED.change_rate[GROUPED.group], GROUPED.importance[GROUPED.group], np.ones(100, dtype=np.int64)
    )
    each = static_optimum(apart, apart.importance)
    np.testing.assert_allclose(
        static_optimum(GROUPED, GROUPED.importance), np.bincount(GROUPED.group, each), atol=1e-12
    )


@pytest.mark.parametrize("gap", [1, 3])
def test_a_crawl_finds_a_change_as_often_as_stated(gap: int) -> None:
    """P(changed after n slots) = 1 − e^(−λn), within 4 standard errors of 20,000 crawls."""
    groups = Groups(np.array([0.3, 0.1]), np.ones(2), np.array([1, 1]))
    bandit = Bandit(groups, 20_000, np.random.default_rng(5))
    for slot in range(gap):
        found = bandit.step(np.full(20_000, 0 if slot == gap - 1 else 1))
    chance = -np.expm1(-0.3 * gap)
    assert abs(np.mean(found) - chance) < 4 * np.sqrt(chance * (1 - chance) / 20_000)


def test_states_move_as_the_model_says() -> None:
    bandit = Bandit(SINGLE, 3, np.random.default_rng(6))
    arms = np.random.default_rng(7).integers(4, size=(30, 3))
    elapsed, last = np.zeros((3, 4)), np.zeros((3, 4))
    for arm in arms:
        changed = bandit.step(arm)
        for row in range(3):
            elapsed[row] += 1
            elapsed[row, arm[row]], last[row, arm[row]] = 0, changed[row]
        np.testing.assert_array_equal(bandit.state, np.concatenate([elapsed, last], axis=1))


def test_pages_of_a_group_are_crawled_in_turn() -> None:
    """Changes that come every slot are found once by each page, and its age tells how long ago."""
    groups = Groups(np.array([50.0, 50.0]), np.ones(2), np.array([3, 1]))
    bandit = Bandit(groups, 1, np.random.default_rng(8))
    ages = []
    for _ in range(6):
        ages.append(bandit.age[0, 0])
        bandit.step(np.array([0]))
    assert ages == [1, 2, 3, 3, 3, 3]
    assert bandit.freshness[0] == pytest.approx(1 / 4)


def late(course: Course) -> tuple[Floats, Floats]:
    """Reward and freshness of each run in its second half."""
    half = len(course.reward) // 2
    return np.mean(course.reward[half:], axis=0), np.mean(course.freshness[half:], axis=0)


def played(
    make: Callable[[Bandit], Policy], groups: Groups = SINGLE, slots: int = 600, runs: int = 8
) -> Course:
    return play(groups, make, slots=slots, runs=runs, rng=np.random.default_rng(9))


@pytest.mark.parametrize("weight", ["freshness", "reward"])
def test_static_policies_get_what_the_closed_forms_say(weight: str) -> None:
    """Freshness Σ μp/(p + c − cp) and reward Σ μcp/(p + c − cp), within 4 standard errors of 50 runs."""
    chances = np.array([0.5, 0.2, 0.2, 0.1])
    course = played(lambda bandit: Static(bandit, chances, np.random.default_rng(10)), slots=2_000, runs=50)
    reward, fresh = late(course)
    found, weights = (
        (fresh, SINGLE.importance / np.sum(SINGLE.importance))
        if weight == "freshness"
        else (
            reward,
            SINGLE.importance * SINGLE.chance,
        )
    )
    stated = freshness_utility(chances, SINGLE.chance, weights, 1.0 - SINGLE.chance)
    assert abs(np.mean(found) - stated) < 4 * np.std(found, ddof=1) / np.sqrt(len(found))


def test_thompson_as_printed_ignores_importance() -> None:
    """A page that changes always and matters little against one that changes half the time and matters."""
    groups = Groups(np.array([5.0, 0.7]), np.array([0.1, 10.0]), np.array([1, 1]))

    def shares(weighted: bool) -> Floats:
        make = partial(Thompson, rng=np.random.default_rng(11), weighted=weighted)
        return played(make, groups).arm_shares(2, since=300)

    assert shares(weighted=False)[0] > 0.6
    assert shares(weighted=True)[1] > 0.95


@pytest.mark.parametrize("groups", [SINGLE, GROUPED], ids=["single", "grouped"])
def test_the_crawl_value_keeps_pages_fresher_than_the_policy_that_earns_most(groups: Groups) -> None:
    paying = static_optimum(groups, groups.importance * groups.chance)
    value = late(played(CrawlValue, groups, slots=2_000))
    reward = late(
        played(lambda bandit: Static(bandit, paying, np.random.default_rng(12)), groups, slots=2_000)
    )
    assert np.mean(value[1]) > np.mean(reward[1]) + 0.08
    assert np.mean(value[0]) < np.mean(reward[0])


@pytest.mark.parametrize("averaged", [False, True])
def test_deep_learning_soon_earns_more_than_the_uniform_policy(averaged: bool) -> None:
    """Eight seeds gave 1.55–1.86 in slots 300–600, against 1.05 for the uniform policy."""
    deep = late(
        played(lambda bandit: DeepLearner(bandit, 600, np.random.default_rng(13), averaged=averaged))
    )[0]
    uniform = late(played(contestants(SINGLE, 600, np.random.default_rng(14))["uniform"]))[0]
    assert np.mean(deep) > np.mean(uniform) + 0.3


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_an_experiment_runs_in_short_and_reports(experiment: Experiment) -> None:
    told: list[float] = []
    findings = experiment.run(Effort(short=True, report=told.append))
    assert len(findings.rows) == len(findings.curves) == len(findings.bars) == 8
    assert told[-1] == 1.0
    assert told == sorted(told)
