"""Pages that should be seen though their value does not ask for it: exploration and floors.

A page whose price is never reached is never observed again, so a wrong belief about it would last for
ever. A small share of the bandwidth goes to the pages unseen for longest, and a floor, where an operator
sets one, to every page unseen for longer than it allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats, Policy
from service.store.records import CRAWLED, FIXED, HELD, LEASED, PARKED, crawled_at_ms
from service.store.shards import Bin

KEPT = 256  # candidates remembered of one shard
FLOOR_SHARE = 0.5  # most of a shard's bandwidth a floor may take
DAY_S = 86400.0


@dataclass(slots=True)
class Unseen:
    """The pages of a shard that were not crawled for longest."""

    pages: list[tuple[float, bool, str, int]] = field(default_factory=list)  # unseen s, learning, host, page

    def look(self, bins: list[Bin], heads: NDArray[Any], now_at: float) -> None:
        """Take these bins' pages into account."""
        flags = heads["flags"]
        waiting = ((flags & CRAWLED) > 0) & ((flags & (LEASED | PARKED | HELD)) == 0)
        unseen_s: Floats = np.where(waiting, now_at - crawled_at_ms(heads) / 1000, -1.0)
        names = [(page_bin.host_id, page_id) for page_bin in bins for page_id in page_bin.ids]
        oldest = np.argsort(-unseen_s, kind="stable")[:KEPT]
        for at in oldest[unseen_s[oldest] > 0].tolist():
            self.pages.append((float(unseen_s[at]), not flags[at] & FIXED, *names[at]))
        self.pages.sort(reverse=True)
        del self.pages[KEPT:]


def choose(
    unseen: Unseen, policy: Policy, credit: float, slots: float
) -> tuple[list[tuple[str, int]], float]:
    """Pages to promote, most urgent first, and what is left of the exploration credit.

    `credit` is the crawls saved up for exploration, `slots` the crawls the shard has had since its last
    sweep; a floor takes at most a share of those.
    """
    floor_s = DAY_S / policy.min_crawls_per_day if policy.min_crawls_per_day > 0 else np.inf
    most = max(1, int(FLOOR_SHARE * slots))
    starving = [(host, page) for age, _, host, page in unseen.pages if age > floor_s][:most]
    taken = set(starving)
    learning = [
        (host, page) for _, learns, host, page in unseen.pages if learns and (host, page) not in taken
    ]
    explored = learning[: int(credit)]
    return starving + explored, credit - len(explored)
