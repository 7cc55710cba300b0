"""Slots of a cluster on their way to pages, and what was served of late."""

from __future__ import annotations

from collections import defaultdict

from service.store.rows import PRICED, VALUE, Row
from service.store.wire import pack


class Served:
    """Pages handed out that nobody was told of yet who keeps the price."""

    def __init__(self) -> None:
        self.count = 0
        self.values: dict[str, list[float]] = {}  # the price follows, by which value they are

    def add(self, count: int, ranked_by: str, values: list[float]) -> None:
        self.count += count
        self.values.setdefault(ranked_by, []).extend(values)

    def add_all(self, others: Served) -> None:
        self.count += others.count
        for ranked_by, values in others.values.items():
            self.add(0, ranked_by, values)

    def packed(self) -> tuple[int, bytes]:
        return self.count, pack(self.values)


class Filling:
    """Slots on their way to pages."""

    def __init__(self, slots: list[float], wanted: int) -> None:
        """Somebody waits for so many of them; the others are filled only where all shards have plenty."""
        self.slots = slots
        self._wanted = wanted
        self.open = list(slots)
        self.used: set[float] = set()
        self.parts: list[Row] = []
        self.served = Served()

    @property
    def missing(self) -> int:
        """Pages that somebody still waits for, as far as slots are left for them."""
        return max(0, min(len(self.open), self._wanted - len(self.parts)))

    def take(self, shards: list[int]) -> dict[int, list[float]]:
        """The next slots by the shard each is for; they count as used until it says otherwise."""
        taken: dict[int, list[float]] = defaultdict(list)
        for shard, slot in zip(shards, self.open, strict=False):
            taken[shard].append(slot)
            self.used.add(slot)
        self.open = self.open[len(shards) :]
        return taken

    def add(self, parts: list[Row], slots: list[float], ranked_by: str) -> None:
        left = slots[len(parts) :]
        self.used.difference_update(left)
        self.open = sorted(self.open + left)
        self.parts += parts
        self.served.add(len(parts), ranked_by, [row[VALUE] for row in parts if row[PRICED]])
