"""Means over repetitions with their standard errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from loadtest.findings import Cell
from service.domain import Floats


def means_and_errors(samples: ArrayLike, axis: int = 0) -> tuple[Floats, Floats]:
    """Means along an axis and their standard errors; those of one sample, or of infinite ones, are NaN."""
    values = np.asarray(samples, dtype=np.float64)
    count = values.shape[axis]
    mean = np.asarray(np.mean(values, axis=axis))
    known = np.isfinite(mean) & (count > 1)
    finite = np.where(np.isfinite(values), values, 0.0)
    error = np.std(finite, axis=axis, ddof=min(1, count - 1)) / np.sqrt(count)
    return mean, np.where(known, error, np.nan)


def mean_and_error(values: Sequence[float] | Floats) -> tuple[float, float]:
    """The same of one series."""
    mean, error = means_and_errors(values)
    return float(mean), float(error)


def measured(name: str, values: Sequence[float] | Floats) -> dict[str, Cell]:
    """Two cells of a row: the mean, and its standard error under `± name`."""
    mean, error = mean_and_error(values)
    return {name: mean, f"± {name}": error}
