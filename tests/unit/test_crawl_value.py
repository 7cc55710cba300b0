"""The crawl value against high precision, and its limits."""

from __future__ import annotations

from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from scipy.special import gammainc

from service.domain import Floats, Model
from service.policy.crawl_value import (
    ceiling,
    crawl_value,
    cycle_time,
    evaluate,
    fresh_time,
    value_slope,
)

mp = mpmath.mp.clone()
mp.prec = 200
SETS = 10_000
LONGEST = 30.0  # terms of a random set before its tail: the reference costs their square


def poisson_tail(index: int, mean: Any) -> Any:
    """R_i(x) by the recurrence of Poisson terms, summed on the side that does not cancel."""
    if mean > index + 30:
        term, total = mp.exp(-mean), mp.zero
        for j in range(index + 1):
            total += term
            term *= mean / (j + 1)
        return 1 - total
    term = mp.exp(-mean) * mean ** (index + 1) / mp.factorial(index + 1)
    total, j = mp.zero, index + 1
    while term > total * mp.mpf(2) ** -120:
        total += term
        j += 1
        term *= mean / j
    return total


def reference(depth: float, silent: float, weight: float, signals: float) -> tuple[Any, Any, Any]:
    """(ψ, w, V/μ) of one page by the defining sums."""
    s, alpha, kappa, gamma = (mp.mpf(x) for x in (depth, silent, weight, signals))
    if gamma == 0:
        return s / alpha, (1 - mp.exp(-s)) / alpha, (1 - mp.exp(-s) * (1 + s)) / alpha
    share = gamma / (alpha + gamma)
    fade = share * mp.exp(-kappa)
    crawls = fresh = mp.zero
    index, left, factor = 0, s, share
    while left > 0:
        mean = gamma / alpha * left if alpha else None
        crawl = poisson_tail(index, mean) if mean is not None else mp.one
        kept = factor * (poisson_tail(index, mean + left) if mean is not None else mp.one)
        crawls, fresh = crawls + crawl, fresh + kept
        if crawl < crawls * 1e-20 and kept < fresh * 1e-30:
            break
        index, factor = index + 1, factor * fade
        left = s - index * kappa
    return crawls / gamma, fresh / gamma, (fresh - mp.exp(-s) * crawls) / gamma


def random_sets(generator: np.random.Generator, count: int) -> tuple[Floats, Model]:
    """Depths and models over the whole range; every tenth set sits on one of the edges."""
    depth = 10 ** generator.uniform(-12, 1.6, count)
    silent = 10 ** generator.uniform(-6, 1, count)
    weight = 10 ** generator.uniform(-4, 1.5, count)
    signals = silent * 10 ** generator.uniform(-8, 7, count)
    edge = np.arange(count) % 50
    silent[edge == 0] = 0.0
    weight[edge == 1] = np.inf
    signals[edge == 2] = 0.0
    signals[edge == 3] *= 1e-25
    silent[edge == 4] *= 1e-30
    # Sums longer than the reference can afford are compared with other forms below.
    ratio = np.where(silent > 0, signals / np.maximum(silent, 1e-300), 1e300)
    terms = depth / np.where(np.isinf(weight), 1e3, weight + 1.0 / np.maximum(ratio, 1e-300))
    weight = np.where(terms > LONGEST, depth / (LONGEST + 0.5), weight)
    return depth, Model(np.ones(count), silent, weight, signals)


def relative_error(found: Floats, expected: Any) -> float:
    return float(abs(mp.mpf(float(found)) / expected - 1))


def test_agrees_with_high_precision_over_the_whole_range() -> None:
    depth, model = random_sets(np.random.default_rng(11), SETS)
    cycle = evaluate(depth, model)
    # Near a multiple of κ the cycle time moves with g: rounding s − iκ alone costs this much.
    ratio = model.signal_rate / np.where(model.silent_rate > 0, model.silent_rate, np.inf)
    steep = 4 * np.finfo(np.float64).eps * ratio * depth
    errors = np.empty((3, SETS))
    for i in range(SETS):
        exact = reference(depth[i], model.silent_rate[i], model.signal_weight[i], model.signal_rate[i])
        found = (cycle.time_s[i], cycle.fresh_s[i], cycle.value[i])
        errors[:, i] = [relative_error(f, e) for f, e in zip(found, exact, strict=True)]
    assert np.all(errors[0] <= 1e-11 + np.minimum(steep, 1.0))
    assert np.all(errors[1] <= 1e-11 + np.minimum(steep, 1.0))
    assert np.max(errors[2]) <= 1e-11


def test_long_sums_equal_the_plain_sum() -> None:
    """The closed-form head and the cut-off leave nothing out, thousands of terms deep."""
    for depth, silent, weight, signals in (
        (20.0, 1e-3, 1e-3, 10.0),
        (30.0, 1.0, 1e-3, 100.0),
        (2.0, 1e-4, 1e-4, 1.0),
        (8.0, 0.5, 1e-4, 300.0),
        (0.5, 1e-9, 1e-4, 1.0),
    ):
        ratio = signals / silent
        index = np.arange(np.ceil(depth / weight))
        left = depth - index * weight
        crawls = gammainc(index + 1, ratio * left)
        factor = np.exp(-index * weight - (index + 1) * np.log1p(1 / ratio))
        fresh = np.sum(factor * gammainc(index + 1, (1 + ratio) * left))
        value = (fresh - np.exp(-depth) * np.sum(crawls)) / signals
        model = Model(*(np.array(x) for x in (1.0, silent, weight, signals)))
        assert crawl_value(depth, model) == pytest.approx(value, rel=1e-10)
        assert cycle_time(depth, model) == pytest.approx(np.sum(crawls) / signals, rel=1e-10)


def test_signals_for_every_change_give_the_closed_form_however_long() -> None:
    """With α = 0 the page is due after N = ⌈s/κ⌉ signals: ψ = N/γ, w = (1 − q^N)/Δ."""
    weight = 10 ** np.random.default_rng(3).uniform(-4, 1, 500)
    depth = weight * np.random.default_rng(4).uniform(0.01, 1 / weight * 30)
    model = Model(np.ones(500), np.zeros(500), weight, np.full(500, 2.0))
    needed = np.ceil(depth / weight)
    fresh = -np.expm1(-needed * weight) / model.change_rate
    np.testing.assert_allclose(cycle_time(depth, model), needed / 2.0, rtol=1e-12)
    np.testing.assert_allclose(fresh_time(depth, model), fresh, rtol=1e-10)


def test_no_signals_give_the_classical_value() -> None:
    depth = np.logspace(-12, 3, 200)
    model = Model(np.full(200, 3.0), np.full(200, 0.5), np.full(200, 1.0), np.zeros(200))
    np.testing.assert_allclose(crawl_value(depth, model), 6.0 * gammainc(2, depth), rtol=1e-13)
    np.testing.assert_allclose(cycle_time(depth, model), 2.0 * depth, rtol=1e-13)


@pytest.mark.parametrize("depth", [1e-6, 0.02, 1.0, 9.0])
def test_worthless_signals_change_nothing(depth: float) -> None:
    plain = Model(*(np.array(x) for x in (1.0, 0.5, 0.0, 0.0)))
    noisy = Model(*(np.array(x) for x in (1.0, 0.5, 0.0, 40.0)))
    assert crawl_value(depth, noisy) == crawl_value(depth, plain)
    nearly = Model(*(np.array(x) for x in (1.0, 0.5, 1e-9, 1.0)))
    assert crawl_value(depth, nearly) == pytest.approx(float(crawl_value(depth, plain)), rel=1e-7)


def test_unerring_signals_leave_one_term() -> None:
    depth = np.logspace(-2, 1, 50)
    model = Model(np.ones(50), np.full(50, 0.2), np.full(50, np.inf), np.full(50, 0.6))
    np.testing.assert_allclose(cycle_time(depth, model), -np.expm1(-3 * depth) / 0.6, rtol=1e-13)
    capped = Model(np.ones(50), np.full(50, 0.2), np.full(50, 20.0), np.full(50, 0.6))
    np.testing.assert_allclose(crawl_value(depth, model), crawl_value(depth, capped), rtol=1e-7)


def test_value_reaches_its_ceiling_far_out() -> None:
    model = Model(np.full(3, 2.0), np.array([0.5, 0.1, 0.0]), np.full(3, 0.3), np.full(3, 1.0))
    for depth in (60.0, 1e4, np.inf):
        np.testing.assert_allclose(crawl_value(depth, model), ceiling(model), rtol=1e-12)
    assert np.all(np.isinf(cycle_time(np.inf, model)))
    assert np.all(value_slope(np.inf, model) == 0)


def test_page_that_never_changes_has_no_value() -> None:
    for signals in (0.0, 5.0):
        model = Model(*(np.array(x) for x in (1.0, 0.0, 0.0, signals)))
        assert crawl_value(3.0, model) == 0
        assert value_slope(3.0, model) == 0
        assert np.isinf(cycle_time(3.0, model))
        assert np.isinf(ceiling(model))


def test_nothing_is_gained_right_after_a_crawl() -> None:
    model = Model(np.ones(2), np.array([0.5, 0.0]), np.ones(2), np.ones(2))
    cycle = evaluate(0.0, model)
    assert not np.any([cycle.time_s, cycle.fresh_s, cycle.value])


def test_value_and_cycle_time_grow_with_depth_and_without_jumps() -> None:
    generator = np.random.default_rng(5)
    _, model = random_sets(generator, 300)
    # Across the change of form at s = 0.01, and across multiples of κ.
    depth = np.logspace(-4, 1.3, 400)[:, None]
    value, time_s = crawl_value(depth, model), cycle_time(depth, model)
    assert np.all(np.diff(value, axis=0) >= -1e-13 * value[1:])
    assert np.all(np.diff(time_s, axis=0) >= -1e-12 * time_s[1:])
    below, above = (crawl_value(s, model) for s in (np.nextafter(0.01, 0), 0.01))
    np.testing.assert_allclose(above, below, rtol=2e-12)


def test_slope_is_the_derivative_of_the_value() -> None:
    model = Model(np.full(4, 1.5), np.full(4, 0.3), np.array([0.1, 0.7, 2.0, 0.0]), np.ones(4))
    for depth in (0.05, 0.93, 4.1):
        step = 1e-6
        rise = crawl_value(depth + step, model) - crawl_value(depth - step, model)
        np.testing.assert_allclose(value_slope(depth, model), rise / (2 * step), rtol=1e-6)


def test_vector_equals_scalar() -> None:
    depth, model = random_sets(np.random.default_rng(6), 120)
    together = evaluate(depth, model)
    for i in range(120):
        fields = (model.importance, model.silent_rate, model.signal_weight, model.signal_rate)
        alone = evaluate(depth[i], Model(*(np.asarray(f[i]) for f in fields)))
        assert alone.value.shape == ()
        assert (alone.time_s, alone.fresh_s, alone.value) == (
            together.time_s[i],
            together.fresh_s[i],
            together.value[i],
        )
