"""What a run leaves behind, and the questions asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats


@dataclass(slots=True)
class Recorder:
    """Collects one row per slot while a run goes on."""

    rows: list[tuple[float, int, float, float, float, float]] = field(default_factory=list)

    def add(
        self,
        at: float,
        page: int,
        value: float,
        quality: float,
        fresh_time: float,
        expected: float,
    ) -> None:
        self.rows.append((at, page, value, quality, fresh_time, expected))

    def finish(self, wall_s: float) -> Run:
        table = np.array(self.rows, dtype=np.float64).reshape(-1, 6)
        at, page, value, quality, fresh_time, expected = table.T
        return Run(at, page.astype(np.int64), value, quality, fresh_time, expected, wall_s)


@dataclass(frozen=True, slots=True)
class Run:
    """One row per slot; times in units."""

    at: Floats
    page: NDArray[np.int64]
    value: Floats  # as served; NaN for a page's first crawl
    quality: Floats  # exact value of the served page ÷ largest exact value; NaN where not checked
    fresh_time: Floats  # of the web so far, at the slot
    expected: Floats  # chance of a fresh copy since the slot before, given all that was heard
    wall_s: float

    def freshness(self, begin: float, end: float) -> float:
        """Chance that a request at a random time in the window finds a fresh copy."""
        end = min(end, float(self.at[-1]))
        low, high = np.interp([begin, end], self.at, self.fresh_time)
        return float((high - low) / (end - begin))

    def expected_freshness(self, begin: float, end: float) -> float:
        """The same, from what is expected at each slot: the same mean with less noise."""
        low, high = np.interp([begin, min(end, float(self.at[-1]))], self.at, self._expected_time())
        return float((high - low) / (min(end, float(self.at[-1])) - begin))

    def crawls(self, begin: float, end: float, pages: NDArray[np.bool_]) -> int:
        """How often pages of a set were crawled in a window."""
        inside = (self.at >= begin) & (self.at < end)
        return int(np.count_nonzero(pages[self.page[inside]]))

    def _expected_time(self) -> Floats:
        return np.cumsum(self.expected * np.diff(self.at, prepend=self.at[0]))

    def batches(self, begin: float, end: float, count: int = 20) -> Floats:
        """Freshness of equal parts of a window: their spread tells the error of its mean."""
        edges = np.linspace(begin, min(end, float(self.at[-1])), count + 1)
        return np.diff(np.interp(edges, self.at, self.fresh_time)) / np.diff(edges)

    def moving(self, at: Floats, width: float) -> Floats:
        """Freshness of the window of this width around each instant.

        The mean of what is expected at each slot: the same mean as that of the fresh time, with
        much less noise.
        """
        total = self._expected_time()
        low = np.interp(at - width / 2, self.at, total)
        high = np.interp(at + width / 2, self.at, total)
        return np.asarray((high - low) / width)

    def qualities(self, begin: float, end: float) -> Floats:
        """Pick qualities that were checked in a window."""
        inside = (self.at >= begin) & (self.at < end) & np.isfinite(self.quality)
        return self.quality[inside]

    def write_csv(self, path: Path) -> None:
        series = (self.at, self.page, self.value, self.quality, self.fresh_time, self.expected)
        columns = np.column_stack(series)
        header = "time,page,value,quality,fresh_time,expected_freshness"
        np.savetxt(path, columns, "%.9g", delimiter=",", header=header, comments="")


def recovery(excess: Floats, at: Floats, step_at: float, tolerance: float) -> float:
    """Units after a step until `excess` (freshness ÷ its target) stays above 1 − tolerance.

    NaN if it never does.
    """
    after = at >= step_at
    short = np.flatnonzero(excess[after] < 1.0 - tolerance)
    if len(short) == 0:
        return 0.0
    if short[-1] + 1 >= np.count_nonzero(after):
        return float("nan")
    return float(at[after][short[-1] + 1] - step_at)
