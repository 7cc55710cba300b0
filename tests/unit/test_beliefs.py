"""From what a user says of a page to what is stored."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.beliefs import DAY_S, model_from, model_rows, models_said, pack_models, ranking_rows
from service.domain import Belief, Floats, Model, Price
from service.errors import InvalidModel
from service.store.records import MODEL, RANKING, pack_rows

RATES = st.one_of(st.just(0.0), st.floats(1e-15, 1e4))


def model_of(**belief: float) -> Model:
    """One model in full precision, as arrays of length one."""
    columns = (np.array([value]) for value in model_from(Belief(**belief)))
    return Model(*columns)


def test_nothing_said_is_a_change_a_day_and_middling_signals() -> None:
    model = model_of()
    assert model.importance[0] == 1
    assert model.change_rate[0] * DAY_S == pytest.approx(1)
    assert model.precision[0] == pytest.approx(0.5)
    assert model.recall[0] == pytest.approx(0.5)


@given(
    st.floats(1e-6, 1e6),
    st.floats(0.02, 0.999),
    st.floats(0.001, 0.999),
)
def test_what_was_said_is_what_the_model_says(changes: float, precision: float, recall: float) -> None:
    model = model_of(change_rate_per_day=changes, precision=precision, recall=recall)
    assert model.change_rate[0] * DAY_S == pytest.approx(changes, rel=1e-9)
    assert model.precision[0] == pytest.approx(precision, rel=1e-9)
    assert model.recall[0] == pytest.approx(recall, rel=1e-9)


@given(st.floats(0.1, 100), st.floats(0.1, 0.9), st.floats(0.1, 0.9))
def test_recall_follows_from_the_signal_rate(changes: float, precision: float, recall: float) -> None:
    signals = recall * changes / precision
    said = model_of(change_rate_per_day=changes, precision=precision, signal_rate_per_day=signals)
    assert said.recall[0] == pytest.approx(recall, rel=1e-6)
    assert said.signal_rate[0] * DAY_S == pytest.approx(signals, rel=1e-6)


def test_precision_follows_from_recall_and_the_signal_rate() -> None:
    model = model_of(change_rate_per_day=4, recall=0.5, signal_rate_per_day=8)
    assert model.precision[0] == pytest.approx(0.25)


@pytest.mark.parametrize(
    "belief",
    [
        {"signal_rate_per_day": 0.0},
        {"precision": 0.0},
        {"recall": 0.0},
        {"change_rate_per_day": 0.0},
    ],
)
def test_signals_that_tell_nothing_leave_the_change_rate(belief: dict[str, float]) -> None:
    model = model_of(**belief)
    assert model.signal_rate[0] == 0
    expected = belief.get("change_rate_per_day", 1.0)
    assert model.change_rate[0] * DAY_S == pytest.approx(expected)


def test_signals_that_never_lie_have_infinite_weight() -> None:
    assert math.isinf(model_from(Belief(precision=1.0))[2])


@pytest.mark.parametrize(
    "belief",
    [
        Belief(change_rate_per_day=1, precision=0.5, recall=0.5, signal_rate_per_day=100),
        Belief(change_rate_per_day=1, precision=1.0, signal_rate_per_day=50),
        Belief(change_rate_per_day=10, recall=1.0, signal_rate_per_day=1),
    ],
)
def test_what_cannot_all_be_true_is_refused(belief: Belief) -> None:
    with pytest.raises(InvalidModel):
        model_from(belief)


@pytest.mark.parametrize("signals", [0.98, 1.0, 1.02])
def test_beliefs_that_nearly_agree_are_taken(signals: float) -> None:
    said = Belief(change_rate_per_day=1, precision=0.5, recall=0.5, signal_rate_per_day=signals)
    assert model_from(said) == pytest.approx((1.0, 0.5 / DAY_S, math.log(2), 1 / DAY_S))


@given(
    st.lists(
        st.tuples(
            st.floats(1e-9, 1e12),
            RATES,
            st.one_of(st.floats(0, 50), st.just(math.inf)),
            RATES,
        ),
        min_size=1,
        max_size=5,
    ),
    st.floats(0, 1e15),
    st.floats(0.01, 0.5),
)
@settings(max_examples=50)
def test_every_ranking_is_finite_and_packs_to_its_size(
    rows: list[tuple[float, float, float, float]], price: float, slack: float
) -> None:
    model = pack_models(rows)
    ranking, models = ranking_rows(model, Price(price, slack)), model_rows(model)
    for name in RANKING.names:
        assert np.all(np.isfinite(ranking[name])), name
    for name in MODEL.names:
        assert np.all(np.isfinite(models[name])), name
    assert {len(row) for row in pack_rows(ranking)} == {RANKING.itemsize}
    assert {len(row) for row in pack_rows(models)} == {MODEL.itemsize}


def test_a_dormant_page_has_a_negative_interval_and_a_waiting_one_a_positive() -> None:
    model = pack_models([model_from(Belief()), model_from(Belief(change_rate_per_day=0))])
    low, high = ranking_rows(model, Price(1e-3, 0.1)), ranking_rows(model, Price(1e15, 0.1))
    assert low["interval_s"][0] > 0 > high["interval_s"][0]
    assert low["interval_s"][1] < 0


def test_no_pages_pack_to_nothing() -> None:
    model = pack_models([])
    assert pack_rows(ranking_rows(model, Price(1.0, 0.1))) == []


def fields_of(beliefs: list[Belief]) -> Floats:
    said = [
        (b.importance, b.change_rate_per_day, b.precision, b.recall, b.signal_rate_per_day) for b in beliefs
    ]
    return np.array(said, dtype=np.float64).reshape(-1, 5)


def test_many_beliefs_become_the_models_each_becomes_alone() -> None:
    said = (None, 0.0, 0.4, 1.0)
    beliefs = [
        Belief(importance, rate, precision, recall, signals)
        for importance in (None, 3.0)
        for rate in (None, 0.0, 2.0)
        for precision, recall in product(said, said)
        for signals in (None, 0.0, 1.5)
    ]
    rows, refused = models_said(fields_of(beliefs), beliefs)
    for at, belief in enumerate(beliefs):
        if at in refused:
            with pytest.raises(InvalidModel, match=refused[at]):
                model_from(belief)
        else:
            assert rows[at].tolist() == pytest.approx(model_from(belief), rel=1e-15)
    assert 0 < len(refused) < len(beliefs)
    assert models_said(fields_of([]), [])[0].shape == (0, 4)
