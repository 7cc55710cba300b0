"""Every objective keeps the promises of the one interface."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from service.domain import Model
from service.policy.objectives import DELAY, FRESHNESS, HARMONIC, OBJECTIVES, Objective

EACH = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES.keys())


def pages(count: int) -> Model:
    generator = np.random.default_rng(8)
    silent, weight, signals = generator.uniform(0.01, 2, (3, count))
    return Model(generator.uniform(0.1, 5, count), silent, weight, signals)


@EACH
def test_depth_at_inverts_the_value(objective: Objective) -> None:
    model = pages(2_000)
    depth = 10 ** np.random.default_rng(9).uniform(-7, 1.1, 2_000)
    np.testing.assert_allclose(objective.depth_at(objective.value(depth, model), model), depth, rtol=1e-9)


@EACH
def test_slope_is_the_derivative(objective: Objective) -> None:
    model, step = pages(50), 1e-6
    for depth in (0.02, 0.98, 5.0):
        rise = objective.value(depth + step, model) - objective.value(depth - step, model)
        np.testing.assert_allclose(objective.slope(depth, model), rise / (2 * step), rtol=1e-5)


@EACH
def test_value_starts_at_zero_and_grows(objective: Objective) -> None:
    model = pages(50)
    value = objective.value(np.linspace(0, 20, 100)[:, None], model)
    assert np.all(value[0] == 0)
    assert np.all(np.diff(value, axis=0) > 0)
    assert np.all(value <= objective.ceiling(model))


@EACH
def test_page_that_never_changes_is_never_due(objective: Objective) -> None:
    model = Model(*(np.array(x) for x in (1.0, 0.0, 0.0, 0.0)))
    assert objective.value(4.0, model) == 0
    assert objective.value(np.inf, model) == 0
    assert objective.slope(4.0, model) == 0
    assert np.isinf(objective.depth_at(1e-6, model))


@EACH
def test_free_crawls_are_due_at_once(objective: Objective) -> None:
    assert np.all(objective.depth_at(0.0, pages(5)) == 0)


@pytest.mark.parametrize(
    ("objective", "cost_slope"),
    [
        (FRESHNESS, lambda age, rate: rate * np.exp(-rate * age)),
        (HARMONIC, lambda age, rate: (1 - np.exp(-rate * age)) / age),
        (DELAY, lambda _, rate: rate),
    ],
    ids=["freshness", "harmonic", "delay"],
)
def test_value_without_signals_is_the_integral_of_its_cost(objective: Objective, cost_slope: object) -> None:
    """V(ι) = μ ∫₀^ι u g'(u) du; E H(N) of a Poisson number N of changes has the slope above."""
    assert callable(cost_slope)
    rate, interval_s = 0.4, 3.0
    model = Model(*(np.array(x) for x in (2.0, rate, 0.0, 0.0)))
    area, _ = quad(lambda age: age * cost_slope(age, rate), 0, interval_s)
    assert objective.value(rate * interval_s, model) == pytest.approx(2.0 * area, rel=1e-9)


def test_only_freshness_lets_pages_starve() -> None:
    model = pages(5)
    assert np.all(np.isinf(FRESHNESS.depth_at(1e6, model)))
    for objective in (HARMONIC, DELAY):
        assert np.all(np.isfinite(objective.depth_at(1e6, model)))
        assert np.all(np.isinf(objective.ceiling(model)))
