"""Exact check of the bandwidth bound over every window."""

from __future__ import annotations

from bisect import bisect_right


class Pace:
    """Every turn of the dial and every slot granted, in the order they happened."""

    def __init__(self) -> None:
        self._at: list[float] = []
        self._rate: list[float] = []
        self._before: list[float] = []
        self._grants: list[tuple[int, float]] = []

    def turn(self, at: float, rate: float) -> None:
        self._before.append(self.allowed_until(at))
        self._at.append(at)
        self._rate.append(rate)

    def grant(self, not_before: float) -> None:
        self._grants.append((len(self._at), not_before))

    @property
    def granted(self) -> int:
        return len(self._grants)

    def allowed_until(self, at: float) -> float:
        """∫R from the first turn to `at`."""
        turn = bisect_right(self._at, at) - 1
        if turn < 0:
            return 0.0
        return self._before[turn] + (at - self._at[turn]) * self._rate[turn]

    def worst_excess(self) -> float:
        """The most by which grants exceed ∫R + 1 in any window; 0 when the bound holds.

        For grants i ≤ j the window holds j − i + 1 of them, so the excess is the rise of k − ∫R from i
        to j. A slot granted before a turn of the dial that starts after it cannot be taken back: it is
        paid for by the grants after the turn, and no window begins or ends at it.
        """
        worst, least = 0.0, float("inf")
        for at, (turns, instant) in enumerate(sorted(self._grants)):
            if turns < len(self._at) and self._at[turns] < instant:
                continue
            level = at - self.allowed_until(instant)
            least = min(least, level)
            worst = max(worst, level - least)
        return worst
