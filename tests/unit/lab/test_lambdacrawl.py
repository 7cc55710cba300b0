"""LambdaCrawl's rivals agree with it, its learner converges, and its experiments run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loadtest.lab import (
    lambdacrawl,
    lambdacrawl_learning,
    lambdacrawl_speed,
    signalled_objectives,
    starvation,
)
from loadtest.lab.averages import mean_and_error
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.lambdacrawl import judge
from loadtest.lab.lambdacrawl_learning import LEARNERS, History, Learner, learn_and_crawl
from loadtest.lab.lambdacrawl_pages import EDITIONS, EXTENDED, Edition
from loadtest.lab.lambdacrawl_solvers import bisected_rates, generic_rates, golden_section, nested_rates
from service.policy.rates import harmonic_rates, proportional_rates, uniform_rates
from service.policy.staleness import Pages, harmonic_cost

MODULES = (lambdacrawl, lambdacrawl_learning, lambdacrawl_speed, starvation, signalled_objectives)
EXPERIMENTS: list[Experiment] = [e for module in MODULES for e in module.EXPERIMENTS]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_experiments_run_in_short(experiment: Experiment) -> None:
    told: list[float] = []
    findings = experiment.run(Effort(short=True, repetitions=2, report=told.append))
    assert findings.name == experiment.name
    assert findings.rows
    assert len({tuple(row) for row in findings.rows}) == 1  # the same columns in all rows
    assert set(findings.bars) <= set(findings.curves)
    assert told == sorted(told)
    assert 0 < told[0] <= told[-1] <= 1


@pytest.mark.parametrize("edition", EDITIONS, ids=lambda e: e.name)
def test_pages_reproduce_the_printed_costs_they_are_shaped_by(edition: Edition) -> None:
    """Within 1.5 %: over three standard errors of pages whose importance spreads 2.9 times its mean."""
    pages = edition.draw(500_000, np.random.default_rng(1)).unobserved()
    for solve, printed in ((uniform_rates, edition.uniform), (proportional_rates, edition.proportional)):
        np.testing.assert_allclose(judge(solve, pages)[:2], printed, rtol=0.015)
    assert 0.7 < np.mean(pages.importance < 1000) < 0.8
    assert 2 < 1 / np.median(pages.change_rate) < 4  # "once in a few days"


def test_the_printed_gain_over_the_floored_binary_policy_is_found() -> None:
    """22 % of its harmonic cost (extended edition); 1 % covers rounding in print and 100,000 pages."""
    pages = EXTENDED.draw(100_000, np.random.default_rng(2))
    ours = judge(harmonic_rates, pages).harmonic
    theirs = judge(lambdacrawl.epsilon_rates, pages.unobserved()).harmonic
    assert 1 - ours / theirs == pytest.approx(EXTENDED.saved, abs=0.01)


def test_bisection_as_printed_agrees_with_ours() -> None:
    pages = EXTENDED.draw(500, np.random.default_rng(3)).unobserved()
    np.testing.assert_allclose(bisected_rates(pages, 100.0), harmonic_rates(pages, 100.0), rtol=1e-9)


@pytest.mark.parametrize("share", [0.05, 0.2, 2.0])
def test_nested_search_agrees_with_one_search(share: float) -> None:
    """Costs are flat at the best split, so that it is known to about the root of the precision only."""
    pages = EXTENDED.draw(300, np.random.default_rng(4))
    bandwidth = share * 300
    np.testing.assert_allclose(nested_rates(pages, bandwidth), harmonic_rates(pages, bandwidth), rtol=1e-5)


def test_golden_section_finds_a_minimum() -> None:
    assert golden_section(lambda x: (x - 0.3) ** 2, 0.0, 1.0) == pytest.approx(0.3, abs=1e-7)


def test_generic_solver_agrees_with_ours() -> None:
    pages = EXTENDED.draw(40, np.random.default_rng(5))
    np.testing.assert_allclose(generic_rates(pages, 8.0), harmonic_rates(pages, 8.0), rtol=1e-4)


def test_estimates_approach_the_truth_as_days_pass() -> None:
    """Rates of 20 kinds, 20 pages each: mean log error falls towards 0, whatever was observed."""
    kinds = np.repeat(np.geomspace(0.2, 2.0, 20), 20)
    truth = Pages(np.ones(400), kinds, np.arange(400) % 2 == 0)
    rng, history, errors = np.random.default_rng(6), History(truth), []
    for days in (5.0, 45.0, 300.0):
        history.live(np.full(400, 0.5), days - history.days, rng)
        errors.append(np.abs(np.log(history.estimate() / kinds)))
    for group in (truth.observed, ~truth.observed):
        typical = [float(np.mean(error[group])) for error in errors]
        assert typical[0] > 1.5 * typical[1] > 2.5 * typical[2]
        assert typical[2] < 0.2


def test_what_was_never_crawled_is_estimated_by_the_smoothing_alone() -> None:
    """h/(e^(Δh) − 1) = h at Δ = ln 2/h, h = ½."""
    history = History(Pages(np.ones(3), np.ones(3), np.zeros(3, dtype=bool)))
    history.live(np.zeros(3), 4.0, np.random.default_rng(7))
    np.testing.assert_allclose(history.estimate(), 2 * np.log(2), rtol=1e-9)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.name)
def test_learning_lowers_the_cost_towards_that_of_known_rates(learner: Learner) -> None:
    """Under the approximation only the split is learned, so that little can fall."""
    truth = EXTENDED.draw(600, np.random.default_rng(8))
    costs, known = learn_and_crawl(learner, truth, 24, np.random.default_rng(9))
    assert known[0] < costs[-1, 0] < costs[1, 0]
    assert costs[-1, 0] < 1.06 * known[0]


def test_a_learner_that_knows_nothing_treats_change_rates_as_equal() -> None:
    truth = EXTENDED.draw(200, np.random.default_rng(10))
    costs, _ = learn_and_crawl(LEARNERS[0], truth, 0, np.random.default_rng(11))
    guess = harmonic_rates(replace(truth, change_rate=np.ones(200)), 40.0)
    assert costs.shape == (1, 2)
    assert costs[0, 0] == pytest.approx(float(np.mean(harmonic_cost(guess, truth))))


def test_standard_errors() -> None:
    assert mean_and_error([1.0, 3.0]) == (2.0, 1.0)
    assert np.isnan(mean_and_error([1.0])[1])
    assert np.isnan(mean_and_error([np.inf, np.inf])[1])
