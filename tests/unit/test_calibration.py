"""Predicted chances of a change against what came."""

from __future__ import annotations

import numpy as np
import pytest

from service.calibration import Calibration


def test_true_predictions_show_little_error_and_wrong_ones_their_gap() -> None:
    rng = np.random.default_rng(1)
    chance = rng.random(20_000)
    true, wrong = Calibration.read(b""), Calibration.read(b"")
    true.add(chance, rng.random(20_000) < chance)
    wrong.add(np.full(20_000, 0.8), rng.random(20_000) < 0.3)
    assert true.error is not None
    assert true.error < 0.02
    assert wrong.error == pytest.approx(0.5, abs=0.02)


def test_nothing_predicted_is_no_error_yet() -> None:
    assert Calibration.read(b"").error is None


def test_it_reads_back_and_adds_up() -> None:
    one, two = Calibration.read(b""), Calibration.read(b"")
    one.add(np.array([0.2, 0.9]), np.array([False, True]))
    two.merge(Calibration.read(one.pack()))
    assert two.error == one.error
