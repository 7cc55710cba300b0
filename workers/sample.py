"""A few pages of a shard, each as likely as any other, drawn while a sweep passes over all of them.

What would come of another bandwidth is asked of these (`service/outlook.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.store.records import MODEL, PARKED

SAMPLED = 256  # pages: of 16 shards, enough to tell freshness to a percent or two
_DRAWN = np.dtype([("lot", "<f8"), ("model", MODEL)])  # the pages with the least lots are kept


@dataclass(slots=True)
class Sample:
    """What was drawn so far, of how many pages that are crawled."""

    pages: int = 0
    drawn: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=_DRAWN))
    random: np.random.Generator = field(default_factory=np.random.default_rng)

    def look(self, heads: NDArray[Any]) -> None:
        """Draw from some more pages."""
        crawled = (heads["flags"] & PARKED) == 0
        lots = np.where(crawled, self.random.random(len(heads)), np.inf)
        most = self.drawn["lot"].max() if len(self.drawn) == SAMPLED else np.inf
        chosen = lots < most
        new = np.empty(np.count_nonzero(chosen), dtype=_DRAWN)
        new["lot"], new["model"] = lots[chosen], heads["model"][chosen]
        drawn = np.concatenate([self.drawn, new])
        if len(drawn) > SAMPLED:
            drawn = drawn[np.argpartition(drawn["lot"], SAMPLED - 1)[:SAMPLED]]
        self.drawn = drawn
        self.pages += int(np.count_nonzero(crawled))

    @property
    def models(self) -> bytes:
        """Those drawn, as records hold them, in a random order: the first of them are a sample, too."""
        return bytes(self.drawn["model"][np.argsort(self.drawn["lot"])].tobytes())

    def keep(self) -> list[Any]:
        """All of it, for whoever goes on with the sweep."""
        lots: list[float] = self.drawn["lot"].tolist()
        return [self.pages, lots, self.drawn["model"].tolist()]

    def take_up(self, pages: int, lots: list[float], models: list[list[float]]) -> None:
        """Go on with what was kept."""
        self.pages = pages
        self.drawn = np.empty(len(lots), dtype=_DRAWN)
        self.drawn["lot"] = lots
        self.drawn["model"] = np.array([tuple(model) for model in models], dtype=MODEL)
