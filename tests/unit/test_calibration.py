"""Predicted chances of a change against what came."""

from __future__ import annotations

import numpy as np
import pytest

from service.calibration import Calibration


def test_true_predictions_show_little_error_and_wrong_ones_their_gap() -> None:
    rng = np.random.default_rng(1)
    chance = rng.random(20_000)
    true, wrong = Calibration.read(b""), Calibration.read(b"")
    true.add(chance, rng.random(20_000) < chance, {})
    wrong.add(np.full(20_000, 0.8), rng.random(20_000) < 0.3, {})
    assert true.error is not None
    assert true.error < 0.02
    assert wrong.error == pytest.approx(0.5, abs=0.02)


def test_nothing_predicted_is_no_error_yet() -> None:
    assert Calibration.read(b"").error is None


def test_it_reads_back_and_adds_up() -> None:
    one, two = Calibration.read(b""), Calibration.read(b"")
    one.add(np.array([0.2, 0.9]), np.array([False, True]), {b"1": {3: (1.0, 3.0)}})
    two.merge(Calibration.read(one.pack()))
    assert two.error == one.error
    assert two.bought[3] == 0.75


def test_a_crawl_is_bought_by_sources_in_the_measure_of_the_depth_they_claimed() -> None:
    checked = Calibration.read(b"")
    claims = {b"1": {0: (0.5, 0.5), 7: (0.75, 0.25)}, b"2": {0: (0.0, 2.0)}}
    checked.add(np.array([0.6, 0.8, 0.1]), np.array([True, True, False]), claims)
    assert (checked.bought[0], checked.bought[7]) == (1.5, 0.25)
    assert checked.bought.sum() == 1.75
