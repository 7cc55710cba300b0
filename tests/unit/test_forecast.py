"""The continuous optimum, against published numbers and its own conditions."""

from __future__ import annotations

import numpy as np
import pytest

from service.domain import Model
from service.policy.crawl_value import evaluate
from service.policy.forecast import optimum
from service.policy.interval import depth_at


def unsignalled(generator: np.random.Generator, count: int) -> Model:
    changes, importance = generator.uniform(size=(2, count))
    return Model(importance, changes, np.zeros(count), np.zeros(count))


def signalled(generator: np.random.Generator, count: int) -> Model:
    changes, importance = generator.uniform(size=(2, count))
    true = generator.beta(0.25, 0.25, count) * changes
    false_rate = generator.uniform(0.1, 0.6, count)
    return Model(importance, changes - true, np.log1p(true / false_rate), true + false_rate)


@pytest.mark.parametrize(
    ("pages", "instances", "expected"),
    [(100, 80, 0.83), (500, 40, 0.507), (1_000, 30, 0.366), (10_000, 8, 0.117)],
)
def test_published_freshness_is_reproduced(pages: int, instances: int, expected: float) -> None:
    """R = 100, Δ and μ uniform on [0, 1]; the print is rounded to its last digit."""
    generator = np.random.default_rng(12)
    means = [optimum(unsignalled(generator, pages), 100.0).freshness for _ in range(instances)]
    error = np.std(means, ddof=1) / np.sqrt(instances)
    rounding = 0.005 if pages == 100 else 0.0005
    assert abs(np.mean(means) - expected) < rounding + 4 * error


def test_frequencies_add_up_to_the_bandwidth() -> None:
    model = signalled(np.random.default_rng(1), 1_000)
    for bandwidth in (1.0, 100.0, 1e5):
        assert np.sum(optimum(model, bandwidth).frequency) == pytest.approx(bandwidth, rel=1e-9)


def test_every_page_is_crawled_when_its_value_meets_the_price() -> None:
    model = signalled(np.random.default_rng(2), 500)
    forecast = optimum(model, 50.0)
    cycle = evaluate(depth_at(forecast.price, model), model)
    np.testing.assert_allclose(forecast.frequency, 1 / cycle.time_s, rtol=1e-9)
    dormant = np.isinf(cycle.time_s)
    assert 0 < dormant.sum() < 500
    assert not np.any(forecast.page_freshness[dormant])


def test_no_other_split_of_bandwidth_does_better() -> None:
    """Moving bandwidth between two pages by their own thresholds loses freshness."""
    model = Model(np.array([1.0, 0.6]), np.array([0.3, 0.5]), np.full(2, 0.8), np.full(2, 0.7))
    best = optimum(model, 0.6)
    depth = depth_at(best.price, model)
    for step in (-0.05, 0.05):
        shifted = depth * np.array([1 + step, 1.0])
        low, high = 1e-3, 50.0  # the other page takes up what is left
        for _ in range(80):
            shifted[1] = np.sqrt(low * high)
            busy = np.sum(1 / evaluate(shifted, model).time_s) > 0.6
            low, high = (shifted[1], high) if busy else (low, shifted[1])
        cycle = evaluate(shifted, model)
        gained = np.average(cycle.fresh_s / cycle.time_s, weights=model.importance)
        assert gained < best.freshness


def test_more_bandwidth_means_fresher_pages_and_a_lower_price() -> None:
    model = signalled(np.random.default_rng(3), 300)
    forecasts = [optimum(model, r) for r in (1.0, 10.0, 100.0, 1_000.0)]
    assert np.all(np.diff([f.freshness for f in forecasts]) > 0)
    assert np.all(np.diff([f.price for f in forecasts]) < 0)


def test_signals_help() -> None:
    model = signalled(np.random.default_rng(4), 1_000)
    deaf = Model(model.importance, model.change_rate, np.zeros(1_000), np.zeros(1_000))
    assert optimum(model, 100.0).freshness > optimum(deaf, 100.0).freshness


def test_no_bandwidth_leaves_every_page_dormant() -> None:
    forecast = optimum(unsignalled(np.random.default_rng(5), 20), 0.0)
    assert not np.any(forecast.frequency)
    assert forecast.freshness == 0


def test_bandwidth_beyond_every_use_costs_nothing() -> None:
    """Fully signalled pages need one crawl per signal and are then always fresh."""
    model = Model(np.ones(3), np.zeros(3), np.full(3, 0.9), np.array([0.1, 0.2, 0.3]))
    forecast = optimum(model, 1_000.0)
    assert forecast.price == 0
    np.testing.assert_allclose(forecast.frequency, model.signal_rate)
    assert forecast.freshness == pytest.approx(1.0)


def test_stepwise_frequencies_stay_within_the_bandwidth() -> None:
    model = Model(np.ones(3), np.zeros(3), np.full(3, 0.9), np.array([0.1, 0.2, 0.3]))
    assert 0 < np.sum(optimum(model, 0.25).frequency) <= 0.25 * (1 + 1e-9)


def test_page_that_never_changes_is_fresh_without_crawls() -> None:
    still = Model(np.ones(2), np.array([0.0, 1.0]), np.zeros(2), np.zeros(2))
    forecast = optimum(still, 0.5)
    assert forecast.page_freshness[0] == 1
    assert forecast.frequency[0] == 0
    nothing = optimum(Model(np.ones(1), np.zeros(1), np.zeros(1), np.zeros(1)), 1.0)
    assert nothing.freshness == 1


@pytest.mark.parametrize("rate", [0.1, 1.0, 10.0])
def test_pages_that_are_all_alike_have_a_price(rate: float) -> None:
    """Near their ceiling, where rounding decides whether any crawls are left for them."""
    generator = np.random.default_rng(4)
    for importance, changes in generator.lognormal(size=(100, 2)):
        one = Model(np.full(2, importance), np.full(2, changes), np.zeros(2), np.zeros(2))
        found = optimum(one, rate * changes, 1e6)
        assert np.sum(1e6 * found.frequency) <= rate * changes * (1 + 1e-6)
        assert found.price == pytest.approx(importance / changes, rel=1e-6)
        enough = optimum(one, 1e6 * rate * changes, 1e6)
        assert np.sum(1e6 * enough.frequency) == pytest.approx(1e6 * rate * changes, rel=1e-6)
    signalled_all = Model(np.ones(100), np.zeros(100), np.full(100, 20.0), np.full(100, 0.01))
    for bandwidth in (0.25, 0.5, 1.0, 2.0, 4.0):
        assert np.sum(optimum(signalled_all, bandwidth).frequency) <= bandwidth * (1 + 1e-9)


def test_a_page_may_stand_for_others_like_it() -> None:
    model = signalled(np.random.default_rng(5), 60)
    counts = np.arange(60) % 4 + 1
    many = Model(
        *(
            np.repeat(a, counts)
            for a in (model.importance, model.silent_rate, model.signal_weight, model.signal_rate)
        )
    )
    for bandwidth in (0.0, 5.0, 1e6):
        one, all_ = optimum(model, bandwidth, counts), optimum(many, bandwidth)
        assert one.price == pytest.approx(all_.price, rel=1e-9)
        assert one.freshness == pytest.approx(all_.freshness, rel=1e-9)
