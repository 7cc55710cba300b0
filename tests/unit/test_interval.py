"""The inverse of the crawl value."""

from __future__ import annotations

import numpy as np
import pytest

from service.domain import Floats, Model
from service.policy.crawl_value import ceiling, crawl_value, value_slope
from service.policy.interval import _bracket, depth_at, revisit_interval_s


def random_model(generator: np.random.Generator, count: int) -> Model:
    silent = 10 ** generator.uniform(-6, 1, count)
    weight = 10 ** generator.uniform(-2, 1.5, count)
    signals = silent * 10 ** generator.uniform(-6, 6, count)
    edge = np.arange(count) % 20
    silent[edge == 0] = 0.0
    weight[edge == 1] = np.inf
    signals[edge == 2] = 0.0
    return Model(10 ** generator.uniform(-6, 6, count), silent, weight, signals)


def conditioning(depth: Floats, model: Model) -> Floats:
    """Relative change of the depth that one rounding of the price causes."""
    return np.asarray(crawl_value(depth, model) / (depth * value_slope(depth, model)))


def test_depth_comes_back_to_the_conditioning_limit() -> None:
    generator = np.random.default_rng(1)
    model = random_model(generator, 10_000)
    depth = 10 ** generator.uniform(-9, 1.4, 10_000)
    value = crawl_value(depth, model)
    back = depth_at(value, model)
    reachable = value < ceiling(model)
    limit = 1e-11 + 100 * np.finfo(np.float64).eps * conditioning(depth, model)
    assert np.all(np.abs(back / depth - 1)[reachable] <= limit[reachable])
    assert reachable.mean() > 0.99


def test_value_at_the_depth_found_is_the_price() -> None:
    generator = np.random.default_rng(2)
    model = random_model(generator, 10_000)
    price = ceiling(model) * generator.uniform(0, 1, 10_000) ** 4
    np.testing.assert_allclose(crawl_value(depth_at(price, model), model), price, rtol=1e-11)


def test_multiples_of_the_signal_weight_are_found_too() -> None:
    """With α = 0 the slope of the value jumps there."""
    for weight in (0.05, 0.7, 3.0):
        model = Model(np.ones(5), np.zeros(5), np.full(5, weight), np.ones(5))
        depth = weight * np.arange(1.0, 6.0)
        np.testing.assert_allclose(depth_at(crawl_value(depth, model), model), depth, rtol=1e-8)


def test_depth_grows_with_the_price() -> None:
    model = random_model(np.random.default_rng(3), 400)
    levels = np.linspace(0.001, 0.999, 60)[:, None]
    assert np.all(np.diff(depth_at(levels * ceiling(model), model), axis=0) > 0)


def test_price_at_or_above_the_ceiling_makes_a_page_dormant() -> None:
    model = Model(np.ones(3), np.full(3, 0.5), np.array([0.0, 1.0, np.inf]), np.ones(3))
    assert np.all(np.isinf(depth_at(ceiling(model), model)))
    assert np.all(np.isinf(revisit_interval_s(1e9, model)))
    assert np.all(np.isfinite(depth_at(ceiling(model) * (1 - 1e-12), model)))


@pytest.mark.parametrize("price", [0.0, -1.0])
def test_free_crawls_are_due_at_once(price: float) -> None:
    model = random_model(np.random.default_rng(4), 40)
    assert np.all(depth_at(price, model) == 0)
    assert np.all(revisit_interval_s(price, model) == 0)


def test_page_that_never_changes_is_never_due() -> None:
    model = Model(*(np.array(x) for x in (1.0, 0.0, 0.0, 3.0)))
    assert np.isinf(depth_at(1e-9, model))
    assert np.isinf(revisit_interval_s(1e-9, model))


def test_interval_is_depth_over_silent_rate() -> None:
    model = Model(np.ones(2), np.array([0.25, 0.0]), np.ones(2), np.ones(2))
    interval_s = revisit_interval_s(0.3, model)
    assert interval_s[0] == pytest.approx(float(depth_at(0.3, model)[0]) / 0.25)
    assert np.isinf(interval_s[1])  # only a signal can make it due


@pytest.mark.parametrize("level", [1e-12, 1e-6, 0.01, 0.5, 0.99, 1 - 1e-9])
def test_the_search_begins_with_bounds_that_hold(level: float) -> None:
    model = random_model(np.random.default_rng(6), 2000)
    low, high = _bracket(np.full(2000, level), model)
    depth = depth_at(level * ceiling(model), model)
    assert (low <= depth * (1 + 1e-6)).all()
    assert (depth <= high * (1 + 1e-6)).all()


def test_vector_equals_scalar() -> None:
    model = random_model(np.random.default_rng(5), 60)
    together = depth_at(0.5 * ceiling(model), model)
    fields = (model.importance, model.silent_rate, model.signal_weight, model.signal_rate)
    for i in range(60):
        alone = Model(*(np.asarray(f[i]) for f in fields))
        assert depth_at(0.5 * ceiling(alone), alone) == together[i]
