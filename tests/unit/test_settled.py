"""Which rankings may stay as they are, and which values need not be computed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from service.beliefs import is_settled, pack_models, ranking_rows
from service.domain import Model, Policy, Price
from service.policy.crawl_value import crawl_value, most_value
from service.policy.valuation import Valuation, valuation_of

TOLERANCE = 0.02
CHOICES = (
    "ncis/freshness",
    "greedy/freshness",
    "cis/freshness",
    "approx-2/freshness",
    "ncis/harmonic",
    "ncis/delay",
)


def mix(size: int = 2000, seed: int = 1) -> Model:
    rng = np.random.default_rng(seed)
    change, recall = 10 ** rng.uniform(-7, -3, size), rng.uniform(0, 0.99, size)
    precision = np.where(rng.random(size) < 0.3, 0.0, rng.uniform(0.05, 0.99, size))
    heard = precision > 0
    rows = np.column_stack(
        [
            10 ** rng.normal(0, 1, size),
            np.where(heard, (1 - recall) * change, change),
            -np.log1p(-precision),
            np.where(heard, recall * change / np.maximum(precision, 0.05), 0.0),
        ]
    )
    return pack_models([(*row,) for row in rows.tolist()])


def valuation(name: str) -> Valuation:
    policy, _, objective = name.partition("/")
    found = valuation_of(Policy(policy=policy, objective=objective))
    assert found is not None
    return found


def settled(model: Model, then: Price, now: Price, name: str, later: str | None = None) -> NDArray[np.bool_]:
    rows = ranking_rows(model, then, valuation=valuation(name))
    due = np.full(len(rows), now.due)
    chosen = valuation(later or name)
    return is_settled(rows, model, now, due, valuation=chosen, tolerance=TOLERANCE)


def price_of(model: Model, share: float = 0.3) -> float:
    return float(np.quantile(model.importance / model.change_rate, share))


@pytest.mark.parametrize("name", CHOICES)
def test_what_was_just_ranked_is_settled_and_stays_so_while_the_price_hardly_moves(name: str) -> None:
    model = mix()
    then = Price(price_of(model), 0.1, 0.95)
    assert settled(model, then, then, name).all()
    near = Price(then.served * 1.01, 0.1, 0.95)
    assert settled(model, then, near, name).mean() > 0.98  # a few fall dormant between the two


@pytest.mark.parametrize("name", CHOICES)
def test_every_page_with_a_due_time_is_ranked_anew_when_the_price_moves(name: str) -> None:
    model = mix()
    then, now = Price(price_of(model), 0.1), Price(1.05 * price_of(model), 0.1)
    dormant = ranking_rows(model, now, valuation=valuation(name))["interval_s"] < 0
    assert not settled(model, then, now, name)[~dormant].any()


def test_a_dormant_page_is_settled_exactly_where_its_ranking_is_the_same() -> None:
    model = mix()
    for factor in (0.3, 0.8, 1.5, 20.0):
        then, now = Price(price_of(model), 0.1), Price(factor * price_of(model), 0.1)
        before, after = ranking_rows(model, then), ranking_rows(model, now)
        stays = (before["interval_s"] < 0) & (after["interval_s"] < 0)
        assert stays.any()
        assert (before[stays] == after[stays]).all()
        found = settled(model, then, now, "ncis/freshness")
        assert found[stays].all()
        assert not found[(before["interval_s"] < 0) != (after["interval_s"] < 0)].any()


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("ncis/freshness", "greedy/freshness"),
        ("ncis/harmonic", "ncis/delay"),
        ("ncis/freshness", "ncis/delay"),
    ],
)
def test_rankings_by_another_value_are_not_settled(then: str, now: str) -> None:
    model = mix()
    heard = model.signal_rate > 0
    price = Price(price_of(model), 0.1)
    assert not settled(model, price, price, then, now)[heard].any()


def test_a_slack_that_moved_calls_for_a_new_ranking() -> None:
    model = mix()
    live = ranking_rows(model, Price(price_of(model), 0.3))["interval_s"] > 0
    found = settled(model, Price(price_of(model), 0.1), Price(price_of(model), 0.3), "ncis/freshness")
    assert not found[live].any()


def test_the_bound_of_a_value_is_never_below_it() -> None:
    model = mix(5000, seed=2)
    for depth in (0.0, 1e-9, 1e-4, 1e-3, 0.01, 0.3, 1.0, 5.0, 30.0):
        depths = np.full(5000, depth)
        value, most = crawl_value(depths, model), most_value(depths, model)
        assert (most >= value * (1 - 1e-6)).all()
        assert (most <= model.importance / model.change_rate).all()


def test_the_bound_is_tight_without_signals() -> None:
    model = mix(5000, seed=3)
    deaf = Model(model.importance, model.change_rate, np.zeros(5000), np.zeros(5000))
    depth = np.linspace(0.01, 5.0, 5000)
    assert most_value(depth, deaf) == pytest.approx(crawl_value(depth, deaf), rel=1e-9)


def test_the_bound_of_a_page_that_never_changes_is_nothing() -> None:
    none = np.zeros(2)
    never = Model(np.ones(2), none, none, none)
    assert (most_value(np.array([0.0, 1.0]), never) == 0).all()
