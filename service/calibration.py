"""Predicted chances of a change against changes seen, and crawls by what brought them about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats
from service.ledger import Claims
from service.policy.reputation import LEAST_DEPTH

BINS = 10
SOURCES = 256  # numbers a source can have
HALF_LIFE = 5_000.0  # observations of a shard after which one counts half


@dataclass(slots=True)
class Calibration:
    """Per tenth of predicted chance: how many predictions, what they promised, what came."""

    counts: Floats
    predicted: Floats
    changed: Floats
    bought: Floats  # crawls by source number: of each crawl the share of its depth the source's signals made

    @classmethod
    def read(cls, raw: bytes) -> Calibration:
        table = np.frombuffer(raw, dtype=np.float64) if raw else np.zeros(3 * BINS + SOURCES)
        counts, predicted, changed = table[: 3 * BINS].reshape(3, BINS).copy()
        return cls(counts, predicted, changed, table[3 * BINS :].copy())

    def pack(self) -> bytes:
        return np.concatenate([self.counts, self.predicted, self.changed, self.bought]).tobytes()

    def add(self, predicted: Floats, changed: NDArray[np.bool_], claims: Claims) -> None:
        """Take predictions, what came of them and what signals claimed into account."""
        keep = 2.0 ** (-len(predicted) / HALF_LIFE)
        tenth = np.minimum((predicted * BINS).astype(int), BINS - 1)
        for table, values in (
            (self.counts, np.ones_like(predicted)),
            (self.predicted, predicted),
            (self.changed, changed.astype(np.float64)),
        ):
            table *= keep
            np.add.at(table, tenth, values)
        self.bought *= keep
        for source, (rest, claimed) in (c for each in claims.values() for c in each.items()):
            self.bought[source] += claimed / max(rest + claimed, LEAST_DEPTH)

    def merge(self, other: Calibration) -> None:
        self.counts += other.counts
        self.predicted += other.predicted
        self.changed += other.changed
        self.bought += other.bought

    @property
    def error(self) -> float | None:
        """Mean gap between promise and outcome over the tenths, by how often each was predicted."""
        total = float(np.sum(self.counts))
        return float(np.sum(np.abs(self.predicted - self.changed))) / total if total >= 1 else None
