"""Learning change rates while crawling: estimators, their interval, and regret."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from loadtest.lab import learning_delay, learning_figures, learning_horizon
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.learning_accuracy import HIGHEST, LOWEST, MISS, observe, penalised_likelihood
from loadtest.lab.learning_delay import excess_delays
from loadtest.lab.learning_estimators import Tally, equal_intervals, maximum_likelihood
from loadtest.lab.learning_explore import Web, bing_like, theorem_bound, theorem_exploration
from loadtest.lab.learning_horizon import (
    explore,
    known_bounds_web,
    shares,
    slope_of,
    some_rounds,
    theorem_shares,
)
from loadtest.lab.learning_phased import phase_length, phased_losses
from service.policy.classical import moment_matching, moment_matching_error

EFFORT = Effort(seed=3, short=True)


def test_likelihood_is_at_its_maximum() -> None:
    rng = np.random.default_rng(1)
    elapsed, changed = observe(rng, 5, 60, change_rate=0.4, crawl_rate=0.5, regular=False)
    found = maximum_likelihood(elapsed, changed, lowest=1e-6, highest=1e3)
    for times, news, rate in zip(elapsed, changed, found, strict=True):

        def loss(at: float, times=times, news=news) -> float:  # type: ignore[no-untyped-def]
            return float(at * np.sum(times[~news]) - np.sum(np.log(-np.expm1(-at * times[news]))))

        best = minimize_scalar(loss, bounds=(1e-3, 10.0), method="bounded", options={"xatol": 1e-9})
        assert rate == pytest.approx(best.x, rel=1e-5)


def test_at_equal_intervals_moments_and_likelihood_are_one_closed_form() -> None:
    elapsed, changed = observe(
        np.random.default_rng(2), 50, 30, change_rate=0.5, crawl_rate=0.75, regular=True
    )
    closed = equal_intervals(1.0 - np.mean(changed, axis=1), 1 / 0.75, lowest=LOWEST, highest=HIGHEST)
    for estimate in (moment_matching, maximum_likelihood):
        np.testing.assert_allclose(
            estimate(elapsed, changed, lowest=LOWEST, highest=HIGHEST), closed, rtol=1e-9
        )


def test_pages_always_or_never_changed_get_the_bounds() -> None:
    np.testing.assert_allclose(equal_intervals([0.0, 1.0], 50.0, lowest=1e-9, highest=25.0), [25.0, 1e-9])


def test_a_tally_estimates_like_the_full_record() -> None:
    """Bins a third apart in elapsed time bend e^(−Δτ) by less than 1%."""
    elapsed, changed = observe(
        np.random.default_rng(3), 20, 500, change_rate=0.5, crawl_rate=0.5, regular=False
    )
    tally = Tally(20, longest=1e3)
    tally.add(np.repeat(np.arange(20), 500), elapsed.ravel(), changed.ravel())
    full = moment_matching(elapsed, changed, lowest=LOWEST, highest=HIGHEST)
    np.testing.assert_allclose(tally.moment_matching(lowest=LOWEST, highest=HIGHEST), full, rtol=0.01)


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("crawl_rate", [0.25, 0.75])
@pytest.mark.parametrize("change_rate", [0.25, 0.75])
def test_the_interval_holds_at_least_as_often_as_it_says(
    regular: bool, crawl_rate: float, change_rate: float
) -> None:
    rng = np.random.default_rng(4)
    case = {"change_rate": change_rate, "crawl_rate": crawl_rate}
    elapsed, changed = observe(rng, 1_000, 60, regular=regular, **case)
    rate = moment_matching(elapsed, changed, lowest=LOWEST, highest=HIGHEST)
    width = moment_matching_error(elapsed, highest=HIGHEST, miss=MISS)
    assert np.mean(np.abs(rate - change_rate) <= width) >= 1.0 - MISS


def test_the_interval_is_not_vacuous_when_the_rate_is_near_its_bound() -> None:
    """With Δ at its bound and many crawls at the best interval, the width is near twice the true 90% one."""
    unchanged = np.random.default_rng(5).binomial(2_000, np.exp(-0.95), 5_000) / 2_000
    rate = equal_intervals(unchanged, 1.0, lowest=LOWEST, highest=HIGHEST)
    width = moment_matching_error(np.ones((1, 2_000)), highest=HIGHEST, miss=MISS)[0]
    needed = np.quantile(np.abs(rate - 0.95), 1.0 - MISS)
    assert needed < width < 3.0 * needed


def test_the_schedulers_estimate_errs_no_more_than_moment_matching() -> None:
    rng = np.random.default_rng(6)
    elapsed, changed = observe(rng, 1_000, 60, change_rate=0.5, crawl_rate=0.25, regular=False)
    moments = moment_matching(elapsed, changed, lowest=LOWEST, highest=HIGHEST)
    own = np.clip(penalised_likelihood(elapsed, changed), LOWEST, HIGHEST)
    assert np.mean(np.abs(own - 0.5)) < np.mean(np.abs(moments - 0.5))


def test_regret_has_its_minimum_inside() -> None:
    web = bing_like(np.random.default_rng(7), 500, 100.0)
    rounds = some_rounds(2_000, 20)
    lost = np.mean(shares(web, rounds, explore(EFFORT, web, rounds, 8), 1e4), axis=0)
    assert 0 < np.argmin(lost) < len(rounds) - 1
    assert np.min(lost) < 0.3 * min(lost[0], lost[-1])


def test_regret_per_time_falls_about_like_the_root_of_time() -> None:
    """1/√T is −0.5; pages not yet seen to change make it steeper at first.

    24 webs gave −0.55 with a standard deviation of 0.034, so 0.014 for the mean of six.
    """
    horizons, rounds = np.geomspace(1e3, 1e6, 7), some_rounds(20_000, 40)
    slopes = []
    for seed in range(6):
        web = bing_like(np.random.default_rng([8, seed]), 1_000, 20.0)
        losses = np.mean(explore(EFFORT, web, rounds, 4), axis=0)
        slopes.append(
            slope_of(horizons, np.array([np.min(shares(web, rounds, losses, t)) for t in horizons]))
        )
    assert -0.62 < np.mean(slopes) < -0.48


def test_the_theorem_holds_and_its_exploration_gives_the_root_of_time() -> None:
    web = known_bounds_web(np.random.default_rng(9), 1_000)
    horizons = np.geomspace(1e4, 1e6, 5)
    lost = theorem_shares(EFFORT, web, horizons, 3)
    allowed = np.exp([theorem_bound(web, t) for t in horizons]) / horizons / np.mean(web.importance)
    assert np.all(lost < allowed[:, None])
    # τ is exactly ∝ √T, and committing costs little beside exploring so long.
    assert slope_of(horizons, np.mean(lost, axis=1)) == pytest.approx(-0.5, abs=0.05)


def test_the_papers_own_bounds_make_its_exploration_endless() -> None:
    web = bing_like(np.random.default_rng(10), 5_000, 100.0)
    assert theorem_exploration(web, 1e4) > np.log(1e4) + 1_000


def test_among_equal_pages_crawling_in_turn_beats_the_best_poisson_rates() -> None:
    """Equal intervals waste less, so with nothing to learn regret is negative."""
    assert Web(np.full(10, 0.1), np.ones(10), 2.0).exploring_loss < 0


def test_learning_in_phases_is_better_than_never_learning() -> None:
    web = bing_like(np.random.default_rng(11), 200, 40.0)
    losses = phased_losses(
        web, phases=6, length=phase_length(web), explore=0.1, rng=np.random.default_rng(12)
    )
    assert np.all(losses >= 0)
    assert np.max(losses[1:]) < 0.2 * losses[0]


def test_the_loss_in_delay_is_quadratic_in_the_errors() -> None:
    """Errors fall like 1/√n, so the excess like 1/n; 8 explorations leave the slope within 0.1."""
    web = bing_like(np.random.default_rng(13), 500, 100.0)
    rounds = np.array([400, 1_600, 6_400])
    excess = np.mean([excess_delays(web, rounds, np.random.default_rng([14, i])) for i in range(8)], axis=0)
    assert slope_of(rounds.astype(np.float64), excess, since=0.0) == pytest.approx(-1.0, abs=0.15)


@pytest.mark.parametrize(
    "experiment",
    [each for module in (learning_horizon, learning_figures, learning_delay) for each in module.EXPERIMENTS],
    ids=lambda experiment: experiment.name,
)
def test_an_experiment_runs_in_short_and_reports(experiment: Experiment) -> None:
    told: list[float] = []
    findings = experiment.run(Effort(short=True, report=told.append))
    assert findings.rows
    assert findings.curves
    assert told[-1] == 1.0
    assert all(len(x) == len(y) and np.all(np.isfinite(y)) for x, y in findings.curves.values())
    assert all(np.all(np.isfinite(bar)) for bar in findings.bars.values())
