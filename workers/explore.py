"""Pages that should be seen though their value does not ask for it: exploration and floors.

A page whose price is never reached is never observed again, so a wrong belief about it would last for
ever. A small share of the bandwidth goes to the pages unseen for longest; a floor, where an operator sets one
for all pages or for some, to every page unseen for longer than it allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats
from service.store.bins import Bin
from service.store.records import CRAWLED, FIXED, HELD, LEASED, PARKED, crawled_at_ms

KEPT = 1024  # candidates remembered of one shard
FLOOR_SHARE = 0.5  # most of a shard's bandwidth floors may take
DAY_S = 86400.0
PageName = tuple[str, int]  # host id, page id


@dataclass(slots=True)
class Unseen:
    """The pages of a shard that were not crawled for longest, and those below their floor."""

    floor: float = 0.0  # least crawls per day of every page
    oldest: list[tuple[float, PageName]] = field(default_factory=list)  # by age; those that can be learned of
    starving: list[tuple[float, PageName]] = field(default_factory=list)  # by crawls missed

    def look(self, bins: list[Bin], heads: NDArray[Any], now_at: float) -> None:
        """Take these bins' pages into account."""
        flags = heads["flags"]
        waiting = ((flags & CRAWLED) > 0) & ((flags & (LEASED | PARKED | HELD)) == 0)
        unseen_s: Floats = np.where(waiting, now_at - crawled_at_ms(heads) / 1000, 0.0)
        missed = unseen_s * np.maximum(heads["floor"], self.floor) / DAY_S
        ends = np.cumsum([len(page_bin.names) for page_bin in bins])
        for kept, urgency, least in (
            (self.oldest, np.where(flags & FIXED, 0.0, unseen_s), 0.0),
            (self.starving, missed, 1.0),
        ):
            new = _most_urgent(urgency, max(least, kept[-1][0]) if len(kept) == KEPT else least)
            kept += zip(urgency[new].tolist(), _names(bins, ends, new), strict=True)
            kept.sort(reverse=True)
            del kept[KEPT:]


def _most_urgent(urgency: Floats, least: float) -> NDArray[np.intp]:
    """Where the most urgent pages stand, of those above what is the least."""
    new = np.flatnonzero(urgency > least)
    if len(new) > KEPT:
        new = new[np.argpartition(-urgency[new], KEPT)[:KEPT]]
    return new


def _names(bins: list[Bin], ends: NDArray[np.intp], places: NDArray[np.intp]) -> list[PageName]:
    """The pages that stand at these places, counted over all bins."""
    numbers = np.searchsorted(ends, places, side="right")
    within = (places - ends[numbers]).tolist()  # counted from the end of the bin
    found = [(bins[at], back) for at, back in zip(numbers.tolist(), within, strict=True)]
    return [(page_bin.host_id, int(page_bin.names[back])) for page_bin, back in found]


def choose(
    unseen: Unseen, explore_credit: float, floor_credit: float
) -> tuple[list[PageName], tuple[float, float]]:
    """Pages to promote, most urgent first, and what is left of the crawls saved up for both."""
    starving = [page for _, page in unseen.starving[: int(floor_credit)]]
    taken = set(starving)
    explored = [page for _, page in unseen.oldest if page not in taken][: int(explore_credit)]
    left = explore_credit - len(explored), floor_credit - len(starving)
    return starving + explored, left
