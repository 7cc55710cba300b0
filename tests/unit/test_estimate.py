"""Learning one page: the bounded record, the fit, drift, exploration, and the older estimators."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from service.domain import Floats
from service.policy import classical
from service.policy.estimate import Estimate, Prior, fit
from service.policy.evidence import evidence_dtype, fold, fold_known_change, no_evidence, read_evidence
from service.policy.exploration import optimistic, thompson
from service.policy.reputation import NEW, check, discredited

NEVER = float("inf")


def vague(pages: int, sources: int = 1, rate: float = 0.1) -> Prior:
    """A rate within a factor of about e², and a uniform precision."""
    page, each = np.ones(pages), np.ones((pages, sources))
    return Prior(rate * page, 0.25 * page, each, each, rate * each, 0.5 * each)


def crawl(
    generator: np.random.Generator, pages: int, *, crawls: int, relative_rate: float
) -> tuple[Floats, Floats, list[tuple[Floats, Floats, NDArray[np.bool_]]]]:
    """(precision, recall, observations) of pages with uniform quality and change times."""
    precision, recall = generator.uniform(0.2, 0.95, (2, pages))
    changes = 1 / generator.uniform(2, 20, pages)
    true, false = recall * changes, recall * changes * (1 - precision) / precision
    seen = []
    for _ in range(crawls):
        elapsed = generator.exponential(1 / (relative_rate * changes))
        told = generator.poisson(true * elapsed)
        signals = told + generator.poisson(false * elapsed)
        silent = generator.poisson((1 - recall) * changes * elapsed)
        seen.append((elapsed, signals.astype(float)[:, None], told + silent > 0))
    return precision, recall, seen


def folded(
    seen: list[tuple[Floats, Floats, NDArray[np.bool_]]], *, half_life: float = NEVER, slots: int = 8
) -> NDArray[Any]:
    evidence = no_evidence(len(seen[0][0]), seen[0][1].shape[1], slots)
    for elapsed, signals, changed in seen:
        evidence = fold(evidence, elapsed, signals, changed, half_life=half_life)
    return evidence


@pytest.mark.parametrize("relative_rate", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_quality_is_learned_without_bias_where_counting_is_biased(relative_rate: float) -> None:
    precision, _, seen = crawl(np.random.default_rng(7), 3_000, crawls=100, relative_rate=relative_rate)
    error = fit(folded(seen), vague(3_000)).model(1.0).precision - precision
    assert abs(np.mean(error)) <= 0.02
    assert np.mean(np.abs(error)) <= 0.10
    signals = np.column_stack([row[1] for row in seen])
    counted, _ = classical.naive_quality(signals, np.column_stack([row[2] for row in seen]))
    assert 0.1 <= np.mean(counted - precision) <= 0.38


def test_the_fit_is_the_maximum_a_general_optimiser_finds() -> None:
    """Two sources, unmerged observations, against scipy page by page."""
    generator = np.random.default_rng(3)
    seen = [
        (
            generator.exponential(5.0, 20),
            generator.poisson(1.0, (20, 2)).astype(np.float64),
            generator.random(20) < 0.5,
        )
        for _ in range(12)
    ]
    prior = vague(20, 2)
    estimate = fit(folded(seen, slots=16), prior)
    for page in range(20):

        def loss(log_theta: Floats, page: int = page) -> float:
            theta = np.exp(log_theta)
            total = 0.25 * (log_theta[0] - theta[0] / 0.1) + np.sum(log_theta[1:] - theta[1:])
            for elapsed, signals, changed in seen:
                depth = theta[0] * elapsed[page] + theta[1:] @ signals[page]
                total += np.log(-np.expm1(-depth)) if changed[page] else -depth
            return -float(total)

        found = np.exp(minimize(loss, np.zeros(3) - 1.0, method="Nelder-Mead", options={"maxiter": 4000}).x)
        ours = np.append(estimate.silent_rate[page], estimate.signal_weight[page])
        assert loss(np.log(ours)) <= loss(np.log(found)) + 1e-3
        np.testing.assert_allclose(ours, found, rtol=0.05, atol=2e-3)


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("crawls", [1, 200])
@pytest.mark.parametrize("elapsed", [0.0, 1e-3, 1.0, 1e9])
def test_one_sided_evidence_leaves_finite_beliefs(changed: bool, crawls: int, elapsed: float) -> None:
    seen = [(np.full(1, elapsed), np.full((1, 1), 2.0), np.full(1, changed))] * crawls
    estimate = fit(folded(seen, half_life=40.0), vague(1, rate=1e-5))
    for values in (
        estimate.silent_rate,
        estimate.signal_weight,
        estimate.signal_rate,
        estimate.change_rate_high,
    ):
        assert np.all(np.isfinite(values))
        assert np.all(values > 0)


def test_no_evidence_leaves_the_prior() -> None:
    estimate = fit(no_evidence(3), vague(3))
    np.testing.assert_allclose(estimate.silent_rate, 0.1)
    np.testing.assert_allclose(estimate.signal_weight, 1.0)
    np.testing.assert_allclose(estimate.signal_rate, 0.1)
    np.testing.assert_allclose(estimate.covariance[:, 0, 0], 4.0)


def test_time_since_the_last_crawl_counts_for_the_signal_rate_alone() -> None:
    evidence = fold(no_evidence(1), [10.0], [[1.0]], [True])
    before = fit(evidence, vague(1))
    after = fit(evidence, vague(1), open_s=1000.0, open_signals=[[100.0]])
    assert after.signal_rate[0, 0] == pytest.approx(0.1, rel=0.05)
    assert after.silent_rate[0] == before.silent_rate[0]


def test_the_interval_holds_the_change_rate_about_as_often_as_it_says() -> None:
    """90% nominal; the pages' true rates are not drawn from the prior, so some slack."""
    generator = np.random.default_rng(5)
    pages = 3_000
    changes = 1 / generator.uniform(2, 20, pages)
    seen = []
    for _ in range(30):
        elapsed = generator.exponential(1 / changes)
        seen.append((elapsed, np.zeros((pages, 1)), generator.random(pages) < -np.expm1(-changes * elapsed)))
    estimate = fit(folded(seen), vague(pages))
    inside = (estimate.change_rate_low <= changes) & (changes <= estimate.change_rate_high)
    assert 0.86 <= np.mean(inside) <= 0.96


def test_merging_into_eight_slots_costs_little() -> None:
    _, _, seen = crawl(np.random.default_rng(8), 2_000, crawls=60, relative_rate=1.0)
    bounded, whole = (fit(folded(seen, slots=slots), vague(2_000)) for slots in (8, 60))
    gap = np.log(bounded.change_rate / whole.change_rate)
    assert np.mean(np.abs(gap)) < 0.25 * np.mean(whole.change_log_error)


def test_a_record_depends_on_the_observations_and_not_on_their_batches() -> None:
    _, _, seen = crawl(np.random.default_rng(9), 50, crawls=40, relative_rate=1.0)
    together = folded(seen, half_life=40.0)
    stored = no_evidence(50).tobytes()
    for elapsed, signals, changed in seen:
        stored = fold(read_evidence(stored), elapsed, signals, changed, half_life=40.0).tobytes()
    assert stored == together.tobytes()
    alone = folded([(e[:1], s[:1], c[:1]) for e, s, c in seen], half_life=40.0)
    assert alone.tobytes() == together[:1].tobytes()


def test_records_are_small() -> None:
    assert [evidence_dtype(sources).itemsize for sources in (1, 2, 4)] == [72, 96, 144]


def test_a_known_change_time_says_more_than_that_something_changed() -> None:
    """Crawls five changes apart: z is nearly always 1, while twenty known times allow √(2/20π) = 0.18."""
    generator = np.random.default_rng(11)
    pages = 500
    plain, timed = no_evidence(pages), no_evidence(pages)
    none = np.zeros((pages, 1))
    for _ in range(20):
        since = generator.exponential(1.0, pages)
        changed = since < 5.0
        plain = fold(plain, np.full(pages, 5.0), none, changed)
        known = fold_known_change(timed, since, none, none, elapsed_s=np.full(pages, 5.0))
        timed = np.where(changed, known, fold(timed, np.full(pages, 5.0), none, changed))
    errors = [np.mean(np.abs(np.log(fit(e, vague(pages)).silent_rate))) for e in (plain, timed)]
    assert errors[1] < 0.2
    assert errors[0] > 0.3
    np.testing.assert_allclose(timed["watched_s"], plain["watched_s"], rtol=1e-3)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_tenfold_change_of_rate_is_half_learned_in_a_dozen_crawls(factor: float) -> None:
    generator = np.random.default_rng(3)
    pages = 1_000
    rate, believed, evidence = np.ones(pages), np.ones(pages), no_evidence(pages)
    errors = []
    for index in range(112):
        rate = np.full(pages, factor if index >= 100 else 1.0)
        elapsed = generator.uniform(0.5, 1.5, pages) / believed
        changed = generator.random(pages) < -np.expm1(-rate * elapsed)
        evidence = fold(evidence, elapsed, np.zeros((pages, 1)), changed)
        believed = fit(evidence, vague(pages, rate=1.0)).silent_rate
        errors.append(float(np.median(np.abs(np.log(believed / rate)))))
    assert errors[99] < 0.16
    assert errors[111] < 0.5 * np.log(10)


def test_a_hundred_thousand_pages_are_fitted_in_a_second() -> None:
    """Sixteen changed observations each: a fit takes as long as some 40 exponentials of all of them."""
    _, _, seen = crawl(np.random.default_rng(12), 20_000, crawls=40, relative_rate=1.0)
    evidence = folded(seen, slots=16)
    depths = np.exp(evidence["log_elapsed"].astype(np.float64))
    assert depths.shape == (20_000, 16)
    exponentials_s = least_time(lambda: [1.0 / np.expm1(depths) for _ in range(20)]) / 20
    assert least_time(lambda: fit(evidence, vague(20_000))) < 300 * exponentials_s


def least_time(work: Callable[[], object], tries: int = 3) -> float:
    """Of the processor, in seconds: what else runs beside it can only add to that."""
    took = []
    for _ in range(tries):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def test_optimism_lowers_what_is_uncertain_and_leaves_what_is_known() -> None:
    fresh = fit(no_evidence(1), vague(1))
    assert optimistic(fresh).change_rate[0] < 0.85 * fresh.change_rate[0]
    _, _, seen = crawl(np.random.default_rng(2), 1, crawls=500, relative_rate=1.0)
    known = fit(folded(seen), vague(1))
    assert optimistic(known).change_rate[0] > 0.96 * known.change_rate[0]


def test_thompson_draws_follow_the_posterior() -> None:
    _, _, seen = crawl(np.random.default_rng(2), 1, crawls=50, relative_rate=1.0)
    one = fit(folded(seen), vague(1))
    many = Estimate(*(np.repeat(getattr(one, f), 20_000, axis=0) for f in Estimate.__slots__))
    drawn = thompson(many, np.random.default_rng(4))
    logs = np.column_stack([np.log(drawn.silent_rate), np.log(drawn.signal_weight)])
    np.testing.assert_allclose(np.cov(logs.T), one.covariance[0], rtol=0.08, atol=0.005)


def test_several_sources_are_superposed() -> None:
    estimate = fit(no_evidence(1, 2), vague(1, 2))
    model = estimate.model(1.0)
    assert model.change_rate[0] == pytest.approx(estimate.change_rate[0])
    assert model.signal_rate[0] == pytest.approx(0.2)


def test_a_source_that_turns_bad_loses_its_say_within_twenty_checks() -> None:
    """Precision 0.8 until now; from now on signals are false and the page rarely changes."""
    generator = np.random.default_rng(6)
    weight = -np.log(0.2)

    def follow(depth: float) -> Floats:
        trust = np.full(500, NEW)
        for _ in range(20):
            changed = generator.random(500) < 1 - np.exp(-depth)
            trust = np.array([check(t, 0.1, weight, z) for t, z in zip(trust, changed, strict=True)])
        return trust

    good, bad = follow(0.1 + weight), follow(0.1)
    assert np.mean(1 - np.exp(-discredited(weight, good))) > 0.75
    assert np.mean(1 - np.exp(-discredited(weight, bad))) < 0.2


def test_moment_matching_stays_inside_its_interval() -> None:
    generator = np.random.default_rng(13)
    elapsed = generator.uniform(0.5, 1.5, (500, 200))
    changed = generator.random((500, 200)) < -np.expm1(-0.7 * elapsed)
    rate = classical.moment_matching(elapsed, changed, lowest=0.01, highest=2.0)
    width = classical.moment_matching_error(elapsed, highest=2.0, miss=0.05)
    assert np.mean(rate) == pytest.approx(0.7, rel=0.02)
    assert np.mean(np.abs(rate - 0.7) <= width) >= 0.95


def test_smoothed_estimators_are_finite_and_near_the_truth() -> None:
    generator = np.random.default_rng(14)
    elapsed = generator.uniform(0.5, 1.5, (500, 200))
    changed = generator.random((500, 200)) < -np.expm1(-0.7 * elapsed)
    rate = classical.smoothed_incomplete(elapsed, changed, lowest=1e-6, highest=1e3)
    assert np.mean(rate) == pytest.approx(0.7, rel=0.03)
    for outcome in (np.ones((1, 5)), np.zeros((1, 5))):
        extreme = classical.smoothed_incomplete(np.ones((1, 5)), outcome, lowest=1e-6, highest=1e3)
        assert 1e-3 < extreme[0] < 100.0
    assert classical.smoothed_complete(0, 10.0) == pytest.approx(0.5 / 10.5)
