"""Figures of a bench: every one measured several times, given as a median with its spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Series:
    """One figure, measured once per round."""

    part: str
    name: str
    unit: str
    note: str = ""
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


class Findings:
    """All figures by name, in the order they were first measured, and what went wrong."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.remarks: dict[str, str] = {}  # by what they are about

    def add(self, part: str, name: str, value: float, unit: str, note: str = "") -> None:
        """One more round of a figure."""
        self.series.setdefault(name, Series(part, name, unit, note)).values.append(value)

    def get(self, name: str) -> Series | None:
        return self.series.get(name)

    def ratio(self, name: str, other: str) -> list[float] | None:
        """The ratio in each round, so that what slows the machine down slows both."""
        above, below = self.get(name), self.get(other)
        if above is None or below is None:
            return None
        if len(above.values) != len(below.values):
            return [above.median / below.median]
        return [a / b if b else math.nan for a, b in zip(above.values, below.values, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def pretty(value: float) -> str:
    """Three significant digits, thousands in groups."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
