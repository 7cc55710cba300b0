"""Means and standard errors over repetitions, by setting and policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from loadtest.lab.averages import mean_and_error
from service.domain import Floats


class Tally:
    """What each policy scored in each setting (a number of pages, a time …), repetition by repetition."""

    def __init__(self) -> None:
        self._scores: dict[float, dict[str, list[float]]] = {}

    def add(self, setting: float, scores: Mapping[str, float]) -> None:
        """One repetition."""
        there = self._scores.setdefault(setting, {})
        for policy, score in scores.items():
            there.setdefault(policy, []).append(score)

    def cells(self) -> Iterator[tuple[float, str, float, float]]:
        """(setting, policy, mean, standard error)."""
        for setting, there in self._scores.items():
            for policy, scores in there.items():
                yield setting, policy, *mean_and_error(scores)

    def ratio(self, setting: float, policy: str, other: str) -> tuple[float, float]:
        """Mean and standard error of policy ÷ other, paired by repetition."""
        there = self._scores[setting]
        return mean_and_error(np.array(there[policy]) / np.array(there[other]))

    def curves(self) -> tuple[dict[str, tuple[Floats, Floats]], dict[str, Floats]]:
        """Means over the settings as curves, standard errors as bars, by policy."""
        points: dict[str, list[tuple[float, float, float]]] = {}
        for setting, policy, mean, error in self.cells():
            points.setdefault(policy, []).append((setting, mean, error))
        columns = {policy: np.array(each).T for policy, each in points.items()}
        return {p: (c[0], c[1]) for p, c in columns.items()}, {p: c[2] for p, c in columns.items()}
