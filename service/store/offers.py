"""What the shards of a cluster had to offer when last asked, and which of them to ask for the next pages."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import cycle
from math import ceil

FRESH_MS = 100.0  # how long an offer is taken to hold: values move slowly, signals should be heard soon
AS_GOOD = 0.99  # of the worth: pages this close cost no freshness
FEW_SHARDS = 4  # asked for one answer without a thought of asking fewer
MANY_PAGES = 8  # asked for at once, from which on their order within `FRESH_MS` is left to convenience
RUSH_PAGES = 224  # asked for within `FRESH_MS`, from which on shards take turns, as on one server
TURN_PAGES = 14  # of a shard: for fewer its turn would not be worth a call
PAGES_PER_SHARD = 64  # asked for at once: so many are leased in a few milliseconds
PLENTY = "plenty"  # said by a shard that has more due pages than it looked at
GOLDEN = 0.6180339887  # its multiples are far apart


@dataclass(slots=True)
class Offer:
    """One shard: the worths of its best pages, best first, and why it had no more."""

    worths: list[float] = field(default_factory=list)
    seen_ms: float = float("-inf")
    reason: str = "no-pages"
    retry_ms: float = 1000.0


class Offers:
    """The offers of all shards."""

    def __init__(self, shards: int) -> None:
        self._offers = [Offer() for _ in range(shards)]
        self._asked: deque[tuple[float, int]] = deque()  # instant and pages of late
        self._soon = 0  # pages in it
        # Neighbours lie on one server: who takes turns with whom is told by this order.
        self._turns = sorted(range(shards), key=lambda shard: shard * GOLDEN % 1)

    def stale(self, now_ms: float) -> list[int]:
        """Shards whose offers are too old to choose by."""
        return [at for at, offer in enumerate(self._offers) if not 0 <= now_ms - offer.seen_ms < FRESH_MS]

    def note(self, shard: int, offer: Offer) -> None:
        self._offers[shard] = offer

    def expect(self, count: int, now_ms: float) -> int:
        """Pages likely to be asked for while an offer holds: as many as were of late, with these."""
        self._asked.append((now_ms, count))
        self._soon += count
        while not 0 <= now_ms - self._asked[0][0] < FRESH_MS:
            self._soon -= self._asked.popleft()[1]
        return self._soon

    def take_turns(self, count: int, soon: int) -> tuple[list[int], float]:
        """As `allot`, in a rush; nobody if there is none.

        So much is asked for `soon` that every shard will be, and each has plenty. Then few are asked at a
        time, those whose last turn is longest ago, but all of them while an offer holds: none has to be
        looked at between its turns.
        """
        offers = [offer for offer in self._offers if offer.worths]
        if not offers or soon < max(RUSH_PAGES, TURN_PAGES * len(offers)):
            return [], 0.0
        if any(offer.reason != PLENTY for offer in offers):
            return [], 0.0
        turns = [at for at in self._by_turn() if self._offers[at].worths]
        least = min([offer.worths[-1] for offer in offers]) * AS_GOOD
        few = max(ceil(count * len(turns) / soon), ceil(count / PAGES_PER_SHARD))
        asked = min(count, PAGES_PER_SHARD * len(turns))
        return [at for _, at in zip(range(asked), cycle(turns[:few]), strict=False)], least

    def allot(self, count: int, soon: int = 0) -> tuple[list[int], float]:
        """The shard to ask for each of so many pages, the best page first, and the least worth of them.

        The best pages are asked for wherever they are; the last ones, where many shards have some as good,
        from few of them. Where many are wanted and still more are `soon`, any of those will do: all are
        served while their values hardly move.
        """
        reach = max(count, soon) if count >= MANY_PAGES else count
        known = [(worth, at) for at in self._by_turn() for worth in self._offers[at].worths[:reach]]
        best = nlargest(reach, known)
        if not best:
            return [], 0.0
        level = best[-1][0]
        if len(best) > count:
            best = _gathered([], known, level, count)
        elif len({at for _, at in best}) > FEW_SHARDS:
            better = [(worth, at) for worth, at in best if worth * AS_GOOD > level]
            best = _gathered(better, known, level, len(best))
        return [at for _, at in best], level * AS_GOOD

    def _by_turn(self) -> list[int]:
        """All shards, first those whose last turn is longest ago."""
        return sorted(self._turns, key=lambda at: self._offers[at].seen_ms)

    def why_nothing(self) -> tuple[str, float]:
        """The reason why no shard has a page to offer, and when asking again may help, in ms."""
        resting = any(offer.reason == "politeness" for offer in self._offers)
        reason = "politeness" if resting else "no-pages"
        return reason, max(1.0, min(o.retry_ms for o in self._offers if not resting or o.reason == reason))


def _gathered(
    chosen: list[tuple[float, int]], known: list[tuple[float, int]], level: float, count: int
) -> list[tuple[float, int]]:
    """So many pages: the chosen ones, the others from the shards that have most as good.

    Of those that have as many, from the first that is known: one that always has more must not be drained.
    """
    asked = Counter(at for _, at in chosen)
    alike = Counter(at for worth, at in known if worth >= level * AS_GOOD) - asked
    for at in sorted(alike, key=lambda at: (at not in asked, -alike[at])):
        chosen += [(level, at)] * min(alike[at], count - len(chosen))
    return chosen


def unused_tail(slots: Sequence[float], used: set[float]) -> int:
    """How many of the last slots nobody used; those in between are lost."""
    tail = 0
    for slot in reversed(slots):
        if slot in used:
            break
        tail += 1
    return tail
