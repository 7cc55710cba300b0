"""The policies of "noisy change signals" as beliefs about pages, and the value cut short."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammainc

from service.domain import Model
from service.policy.crawl_value import ceiling, crawl_value
from service.policy.interval import depth_at
from service.policy.variants import cis, cis_plus, greedy, truncated


def noisy_pages(pages: int = 400) -> Model:
    rng = np.random.default_rng(4)
    changes, recall, false = rng.random(pages), rng.beta(0.25, 0.25, pages), rng.uniform(0.1, 0.6, pages)
    true = recall * changes
    return Model(rng.random(pages), changes - true, np.log1p(true / false), true + false)


def test_every_belief_keeps_importance_and_change_rate() -> None:
    model = noisy_pages()
    for believe in (greedy, cis, cis_plus):
        assert np.allclose(believe(model).change_rate, model.change_rate, rtol=1e-12)
        assert np.array_equal(believe(model).importance, model.importance)


def test_greedy_is_the_classical_value() -> None:
    model, elapsed = noisy_pages(), np.linspace(0.1, 20.0, 400)
    believed = greedy(model)
    classical = model.importance / model.change_rate * gammainc(2.0, model.change_rate * elapsed)
    assert np.allclose(crawl_value(believed.silent_rate * elapsed, believed), classical, rtol=1e-10)


def test_cis_is_the_printed_value_until_a_signal_and_the_ceiling_after() -> None:
    model, elapsed = noisy_pages(), np.linspace(0.1, 20.0, 400)
    believed = cis(model)
    silent, rate = believed.silent_rate, believed.signal_rate
    printed = -np.expm1(-(silent + rate) * elapsed) / (silent + rate)
    printed -= -np.expm1(-rate * elapsed) / rate * np.exp(-silent * elapsed)
    value = crawl_value(silent * elapsed, believed)
    # The printed difference cancels where little has happened yet: 1e-16 of its terms remain.
    assert np.allclose(value, model.importance * printed, rtol=1e-7, atol=1e-12)
    assert np.allclose(crawl_value(np.inf, believed), ceiling(model), rtol=1e-12)


def test_cis_plus_trusts_only_good_signals() -> None:
    model = Model(np.ones(3), np.array([0.2, 0.2, 0.8]), np.array([3.0, 0.5, 3.0]), np.array([0.8, 0.8, 0.2]))
    believed = cis_plus(model)
    assert np.array_equal(np.isinf(believed.signal_weight), [True, False, False])
    assert np.array_equal(believed.signal_rate > 0, [True, False, False])


@pytest.mark.parametrize("terms", [1, 2, 4])
def test_a_cut_value_is_the_printed_sum(terms: int) -> None:
    model = noisy_pages()
    interval = np.linspace(1.0, 30.0, 400)
    credit = model.signal_weight / model.silent_rate
    total, changes, false = np.zeros(400), model.change_rate, model.false_rate
    for i in range(terms):
        left = np.maximum(interval - i * credit, 0.0)
        kept = false**i / (changes + false) ** (i + 1)
        total += kept * gammainc(i + 1, (model.silent_rate + model.signal_rate) * left)
        total -= (
            np.exp(-model.silent_rate * interval)
            / model.signal_rate
            * gammainc(i + 1, model.signal_rate * left)
        )
    value = truncated(terms).value(model.silent_rate * interval, model)
    assert np.allclose(value, model.importance * total, rtol=1e-7, atol=1e-12)


def test_many_terms_are_the_whole_value_and_few_never_exceed_it() -> None:
    model, depth = noisy_pages(), np.linspace(0.001, 4.0, 400)
    usual = model.signal_weight > 0.05  # at most 80 terms up to depth 4
    whole = crawl_value(depth, model)
    assert np.allclose(truncated(80).value(depth, model)[usual], whole[usual], rtol=1e-8)
    before = np.zeros(400)
    for terms in (1, 2, 4, 8):
        value = truncated(terms).value(depth, model)
        assert np.all(value >= before * (1 - 1e-9))
        assert np.all(value <= whole * (1 + 1e-9))
        before = value


def test_with_signals_that_never_lie_one_term_is_everything() -> None:
    believed, depth = cis(noisy_pages()), np.linspace(0.001, 5.0, 400)
    assert np.allclose(truncated(1).value(depth, believed), crawl_value(depth, believed), rtol=1e-9)


@pytest.mark.parametrize("terms", [1, 2, 4])
def test_slope_ceiling_and_inverse_belong_to_the_cut_value(terms: int) -> None:
    cut, model, depth = truncated(terms), noisy_pages(), np.linspace(0.05, 5.0, 400)
    step = 1e-5 * depth
    rise = (cut.value(depth + step, model) - cut.value(depth - step, model)) / (2 * step)
    top = cut.ceiling(model)
    # A central difference of a value with a relative error of 1e-9 over a step of 1e-5 of the depth.
    assert np.allclose(cut.slope(depth, model), rise, rtol=1e-4, atol=1e-4 * top)
    assert np.allclose(cut.value(np.inf, model), top, rtol=1e-12)
    price = 0.7 * top
    assert np.allclose(cut.value(cut.depth_at(price, model), model), price, rtol=1e-9)
    assert np.all(np.isinf(cut.depth_at(top, model)))
    assert np.all(cut.depth_at(price, model) >= depth_at(price, model) * (1 - 1e-9))
