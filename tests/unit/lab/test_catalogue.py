"""The experiments by name, and the command that runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtest.lab.averages import mean_and_error, means_and_errors
from loadtest.lab.catalogue import catalogue
from loadtest.simulate import main

FIGURES = {f"fig{number}" for number in (2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14)}
OTHERS = {"lambda1", "lambda2", "lambda3", "learning1", "learning2", "learning3", "deep1", "deep2", "speed"}


def test_every_experiment_is_there_and_says_what_is_claimed() -> None:
    known = catalogue()
    assert set(known) >= FIGURES | OTHERS
    for experiment in known.values():
        assert experiment.paper
        assert experiment.claim.endswith(".")
        assert experiment.repetitions >= 1


def test_one_experiment_makes_a_table_a_plot_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "RESULTS.md"
    command = ["--experiment", "lambda2", "--short", "--seed", "3", "--out", str(tmp_path)]
    assert main([*command, "--results", str(page)]) == 0
    shown, written = capsys.readouterr().out, page.read_text()
    assert "Observed pages alone" in shown
    assert "`freshet simulate --experiment lambda2 --seed 3 --repetitions 2 --short`" in written
    assert "experiment 2" in written
    assert "![" in written
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".png", ".md"}


def test_the_same_seed_finds_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        main(["--experiment", "lambda2", "--short", "--seed", "5", "--out", str(tmp_path / name)])
    assert (tmp_path / "one/lambda2.csv").read_text() == (tmp_path / "two/lambda2.csv").read_text()


def test_the_list_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--experiment", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in catalogue())


def test_an_unknown_experiment_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--experiment", "fig99"])
    assert "fig4" in capsys.readouterr().err


def test_means_carry_errors_only_where_they_are_known() -> None:
    mean, error = mean_and_error([1.0, 2.0, 3.0])
    assert (mean, error) == (2.0, pytest.approx(1 / np.sqrt(3)))
    assert np.isnan(mean_and_error([1.0])[1])
    assert np.isnan(mean_and_error([1.0, np.inf])[1])
    means, errors = means_and_errors([[1.0, np.inf], [3.0, 1.0]])
    assert means.tolist() == [2.0, np.inf]
    assert errors[0] == pytest.approx(1.0)
    assert np.isnan(errors[1])
