"""The policies an operator can choose, as values: known forms, and the local form that scripts rank by."""

from __future__ import annotations

import numpy as np
import pytest

from service.beliefs import pack_models, ranking_rows, stored_value
from service.domain import Floats, Model, Policy, Price
from service.policy.crawl_value import crawl_value
from service.policy.valuation import NAMES, NCIS, SOLVED, UNTIMED_S, solve, solved, valuation_of, why_not
from service.store.records import CRAWLED, HEAD

DAY_S = 86400.0
PAGES = 400
SLACK = 0.05


@pytest.fixture(scope="module")
def model() -> Model:
    rng = np.random.default_rng(5)
    changes, recall = rng.uniform(0.1, 2, PAGES) / DAY_S, rng.uniform(0, 0.9, PAGES)
    weight, signals = rng.uniform(0.1, 3, PAGES), recall * changes
    rows = np.column_stack([rng.uniform(0.1, 2, PAGES), changes - signals, weight, signals])
    return pack_models([tuple(row) for row in rows.tolist()])


def values(policy: Policy, model: Model, *, elapsed_s: Floats, signals: Floats) -> Floats:
    valuation = valuation_of(policy)
    assert valuation is not None
    effective_s = elapsed_s + signals * model.signal_weight / model.silent_rate
    believed = valuation.believe(model)
    depth = valuation.depth(believed, elapsed_s=elapsed_s, effective_s=effective_s, signals=signals)
    return valuation.objective.value(depth, believed)


def stored(policy: Policy, model: Model, *, elapsed_s: Floats, signals: Floats) -> Floats:
    """The same from the records, as a script would find it."""
    valuation = valuation_of(policy)
    assert valuation is not None
    heads = np.zeros(PAGES, dtype=HEAD)
    heads["flags"], heads["signals"] = CRAWLED, signals
    typical = float(np.median(values(policy, model, elapsed_s=elapsed_s, signals=signals)))
    heads["ranking"] = ranking_rows(model, Price(typical, SLACK), valuation=valuation)
    heads["model"]["signal_weight"] = model.signal_weight
    effective_s = elapsed_s + signals * model.signal_weight / model.silent_rate
    return np.array(
        [
            stored_value(heads[at : at + 1], effective_s=effective_s[at], elapsed_s=elapsed_s[at])
            for at in range(PAGES)
        ]
    )


@pytest.mark.parametrize(
    ("policy", "objective"),
    [(p, o) for p in ("ncis", "greedy") for o in ("harmonic", "delay")]
    + [(p, "freshness") for p in ("uniform", "change-rate", "importance")],
)
def test_values_without_a_ceiling_are_stored_exactly(policy: str, objective: str, model: Model) -> None:
    rng = np.random.default_rng(1)
    state = {
        "elapsed_s": rng.exponential(5 * DAY_S, PAGES),
        "signals": rng.integers(0, 3, PAGES).astype(float),
    }
    chosen = Policy(policy=policy, objective=objective)
    # Far below the price single precision leaves a thousandth of the price.
    exact = values(chosen, model, **state)
    assert stored(chosen, model, **state) == pytest.approx(
        exact, rel=2e-3, abs=1e-3 * float(np.median(exact))
    )


@pytest.mark.parametrize("policy", ["greedy", "cis", "cis+", "approx-1", "approx-2", "approx-8"])
def test_values_with_a_ceiling_are_stored_closely(policy: str, model: Model) -> None:
    """Over all ages, not only near the price, where the form is centred."""
    rng = np.random.default_rng(2)
    state = {
        "elapsed_s": rng.exponential(2 * DAY_S, PAGES),
        "signals": rng.integers(0, 2, PAGES).astype(float),
    }
    exact = values(Policy(policy=policy), model, **state)
    found = stored(Policy(policy=policy), model, **state)
    error = np.abs(found - exact) / np.maximum(exact, 0.05 * exact.max())
    assert np.quantile(error, 0.5) < 0.02
    assert np.quantile(error, 0.95) < 0.15


def test_tables_value_a_page_by_the_time_since_its_crawl_alone(model: Model) -> None:
    elapsed, heard = np.full(PAGES, 1000.0), np.full(PAGES, 5.0)
    expected = {"uniform": np.ones(PAGES), "change-rate": model.change_rate, "importance": model.importance}
    for policy, rate in expected.items():
        found = values(Policy(policy=policy), model, elapsed_s=elapsed, signals=heard)
        np.testing.assert_allclose(found, 1000.0 * rate)


def test_greedy_ignores_signals_and_cis_believes_them(model: Model) -> None:
    elapsed, none, one = np.full(PAGES, DAY_S), np.zeros(PAGES), np.ones(PAGES)
    deaf = Policy(policy="greedy")
    np.testing.assert_array_equal(
        values(deaf, model, elapsed_s=elapsed, signals=none),
        values(deaf, model, elapsed_s=elapsed, signals=one),
    )
    heard = model.signal_weight > 0
    sure = values(Policy(policy="cis"), model, elapsed_s=elapsed, signals=one)
    np.testing.assert_allclose(sure[heard], (model.importance / model.change_rate)[heard], rtol=1e-4)


def test_the_default_is_the_exact_value(model: Model) -> None:
    elapsed, one = np.full(PAGES, DAY_S), np.ones(PAGES)
    depth = model.silent_rate * DAY_S + model.signal_weight
    np.testing.assert_allclose(
        values(Policy(), model, elapsed_s=elapsed, signals=one), crawl_value(depth, model)
    )
    assert valuation_of(Policy()) == NCIS


def test_solved_rates_spend_the_bandwidth_and_observed_pages_count_signals() -> None:
    changes = np.array([1.0, 2.0, 3.0, 1.0]) / DAY_S
    sure = np.array([False, False, False, True])
    silent = np.where(sure, 1e-9 * changes, changes)
    model = Model(np.ones(4), silent, np.where(sure, 20.0, 0.0), np.where(sure, changes, 0.0))
    believed = solve("lambdacrawl", model, 2.0 / DAY_S)
    chance = believed.signal_weight
    assert 0 < chance[3] < 1
    assert not chance[:3].any()
    assert believed.silent_rate[3] == pytest.approx(chance[3] / UNTIMED_S)
    spent = np.sum(believed.silent_rate[:3]) + chance[3] * model.change_rate[3]
    assert spent == pytest.approx(2.0 / DAY_S, rel=1e-6)
    valuation = solved(believed)
    assert valuation.credit_s(believed)[3] == pytest.approx(UNTIMED_S)
    deaf = solve("lds", model, 2.0 / DAY_S)
    assert not deaf.signal_weight.any()
    assert np.sum(deaf.silent_rate) == pytest.approx(2.0 / DAY_S, rel=1e-6)


@pytest.mark.parametrize("policy", [*NAMES, "approx-1", "approx-64"])
def test_every_name_is_a_policy(policy: str) -> None:
    assert why_not(policy, "freshness") is None
    assert (valuation_of(Policy(policy=policy)) is None) == (policy in SOLVED)


@pytest.mark.parametrize(
    ("policy", "objective", "word"),
    [
        ("best", "freshness", "lambdacrawl"),
        ("approx-0", "freshness", "approx-1"),
        ("approx-65", "freshness", "approx-1"),
        ("ncis", "age", "harmonic"),
        ("uniform", "harmonic", "greedy"),
        ("approx-2", "delay", "ncis"),
        ("cis", "harmonic", "greedy"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(policy: str, objective: str, word: str) -> None:
    fault = why_not(policy, objective)
    assert fault is not None
    assert word in fault[1]


def test_a_page_far_below_its_depth_has_a_number_for_a_value() -> None:
    """Due at a depth beyond what an exponential can take, and just crawled."""
    model = pack_models([(0.5, 1000.0 / DAY_S, 0.0, 0.0)])
    valuation = valuation_of(Policy(objective="harmonic"))
    assert valuation is not None
    head = np.zeros(1, dtype=HEAD)
    head["flags"], head["ranking"] = CRAWLED, ranking_rows(model, Price(80_000.0, SLACK), valuation=valuation)
    assert head["ranking"]["interval_s"][0] * model.silent_rate[0] > 709
    assert stored_value(head, effective_s=0.0, elapsed_s=0.0) == pytest.approx(0.0, abs=500.0)
