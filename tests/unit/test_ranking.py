"""The local form that scripts rank by, against the exact value."""

from __future__ import annotations

import numpy as np
import pytest

from service.domain import Floats, Model
from service.policy.crawl_value import ceiling, crawl_value
from service.policy.forecast import optimum
from service.policy.interval import depth_at
from service.policy.ranking import LEAST_IMPORTANCE, Ranking, local_value, rank, storable

PAGES = 10_000


@pytest.fixture(scope="module")
def population() -> Model:
    generator = np.random.default_rng(21)
    changes, importance = generator.uniform(size=(2, PAGES))
    recall = generator.beta(0.25, 0.25, PAGES)
    false_rate = generator.uniform(0.1, 0.6, PAGES)
    signalled = recall * changes
    weight = np.log1p(signalled / false_rate)
    return storable(Model(importance, changes - signalled, weight, signalled + false_rate))


@pytest.fixture(scope="module")
def price(population: Model) -> float:
    return optimum(population, PAGES / 10).price


def errors(past: Floats, ranking: Ranking, model: Model) -> Floats:
    exact = crawl_value(ranking.depth + past, model)
    return np.asarray(np.abs(local_value(past, ranking, model.signal_weight) / exact - 1))


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_value_is_accurate_near_the_price(population: Model, price: float, factor: float) -> None:
    ranking = rank(factor * price, population)
    level = np.random.default_rng(1).uniform(0.9, 1.1, PAGES)
    value = np.minimum(ranking.base * level, 0.9999 * ceiling(population))
    past = depth_at(value, population) - ranking.depth
    error = errors(past, ranking, population)
    assert np.quantile(error, 0.5) <= 0.002
    assert np.quantile(error, 0.99) <= 0.015


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_value_is_accurate_after_signals(population: Model, price: float, factor: float) -> None:
    """Anywhere up to two signals past the price, and one or two signals from just below it."""
    ranking = rank(factor * price, population)
    heard = population.signal_weight > 0
    generator = np.random.default_rng(2)
    weight = population.signal_weight
    below = depth_at(ranking.base * generator.uniform(0.9, 1.0, PAGES), population) - ranking.depth
    for past in (generator.uniform(0, 2, PAGES) * weight, below + weight, below + 2 * weight):
        error = errors(past, ranking, population)[heard]
        assert np.quantile(error, 0.5) <= 0.005
        assert np.quantile(error, 0.99) <= 0.03


def test_form_is_exact_without_signals() -> None:
    model = Model(np.full(50, 2.0), np.linspace(0.1, 3, 50), np.zeros(50), np.zeros(50))
    ranking = rank(0.5, model)
    for share in (-0.9, -0.3, 0.0, 0.3, 5.0):
        past = share * ranking.depth
        exact = crawl_value(ranking.depth + past, model)
        np.testing.assert_allclose(local_value(past, ranking, 0.0), exact, rtol=2e-5)


def test_form_is_exact_where_it_is_pinned(population: Model, price: float) -> None:
    ranking = rank(price, population)
    heard = population.signal_weight > 0
    assert np.max(errors(np.zeros(PAGES), ranking, population)) < 1e-6
    assert np.max(errors(population.signal_weight, ranking, population)[heard]) < 1e-4


def test_value_stays_between_zero_and_the_ceiling_and_grows(population: Model, price: float) -> None:
    ranking = rank(price, population)
    weight = population.signal_weight
    shares = np.concatenate([np.linspace(-1, 0, 20), np.linspace(0, 3, 60)])[:, None]
    past = np.where(shares < 0, shares * ranking.depth, shares * np.maximum(weight, 1.0))
    value = local_value(past, ranking, weight)
    assert np.all((value >= 0) & (value <= ranking.ceiling))
    assert np.all(np.diff(value, axis=0) >= -1e-6 * ranking.ceiling)


def test_dormant_pages_are_described_at_nine_tenths_of_their_ceiling() -> None:
    model = storable(Model(np.ones(3), np.array([2.0, 1.0, 0.01]), np.ones(3), np.full(3, 0.2)))
    ranking = rank(ceiling(model)[1] * (1 + 1e-12), model)
    assert list(ranking.dormant) == [True, True, False]
    np.testing.assert_allclose(ranking.base[:2], 0.9 * ceiling(model)[:2], rtol=1e-6)
    assert np.all(np.isfinite(ranking.depth))


def test_page_that_meets_the_price_too_deep_is_dormant() -> None:
    model = Model(np.ones(1), np.ones(1), np.zeros(1), np.zeros(1))
    assert rank(1 - 1e-10, model).dormant[0]
    shallower = rank(1 - 1e-8, model)
    assert not shallower.dormant[0]
    assert shallower.depth[0] < 25


def test_page_that_never_changes_ranks_last() -> None:
    model = storable(Model(np.ones(1), np.zeros(1), np.ones(1), np.zeros(1)))
    ranking = rank(0.1, model)
    assert ranking.dormant[0]
    assert local_value(np.array([0.0]), ranking, model.signal_weight) == 0
    assert local_value(np.array([9.0]), ranking, model.signal_weight) == 0


def test_stored_numbers_survive_single_precision(population: Model, price: float) -> None:
    ranking = rank(price, population)
    for field in ("depth", "ceiling", "base", "slope", "near", "far"):
        values = getattr(ranking, field)
        assert np.all(np.isfinite(values))
        assert np.array_equal(values, values.astype(np.float32).astype(np.float64))


def test_storable_bounds_the_model_and_keeps_the_change_rate() -> None:
    silent, weight = np.array([0.0, 0.5, 0.5]), np.array([np.inf, 0.005, 0.7])
    model = Model(np.ones(3), silent, weight, np.ones(3))
    stored = storable(model)
    np.testing.assert_allclose(stored.change_rate, model.change_rate, rtol=1e-5)
    np.testing.assert_allclose(stored.silent_rate, [1e-6, model.change_rate[1], 0.5])
    np.testing.assert_allclose(stored.signal_weight, [20.0, 0.0, 0.7])
    np.testing.assert_allclose(stored.signal_rate, [1.0, 0.0, 1.0])


def test_an_importance_next_to_nothing_gives_numbers() -> None:
    rates = np.array([1e-12, 1e-3, 1e4])
    model = storable(Model(np.full(3, 1e-300), rates, np.zeros(3), np.zeros(3)))
    assert np.all(model.importance == LEAST_IMPORTANCE)
    for price in (1e-30, 1.0):
        ranking = rank(price, model)
        for column in (ranking.ceiling, ranking.base, ranking.slope, ranking.near, ranking.far):
            assert np.all(np.isfinite(column))
