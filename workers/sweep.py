"""One pass over a shard: by which price, how far it has got, and what it has seen.

It is kept in the shard now and then: whoever sweeps the shard next goes on where the last one stopped.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import numpy as np

from service.domain import Price
from service.store.bins import START, Place
from service.store.wire import pack, unpack
from workers.appraise import MOVED, Seen


@dataclass(slots=True)
class Sweep:
    """A pass that has begun."""

    price: Price
    begun_at: float
    seen: Seen
    place: Place = START

    def pack(self) -> bytes:
        """All of it but the pages not seen for long: half a shard has enough of those."""
        seen = self.seen
        figures = (seen.pages, seen.renewed, seen.fresh, seen.weight, seen.top.tolist())
        return pack([astuple(self.price), self.begun_at, astuple(self.place), figures, seen.sample.keep()])

    def take_up(self, raw: bytes) -> None:
        """Go on with what an earlier sweep had begun, unless the price has moved since."""
        price, begun_at, place, (pages, renewed, fresh, weight, top), sample = unpack(raw)
        begun, place = Price(*price), Place(*place)
        if place == START or not is_near(begun, self.price):
            return  # it begins anew, so nothing it had seen counts
        self.seen.sample.take_up(*sample)
        self.price, self.begun_at, self.place = begun, begun_at, place
        self.seen.pages, self.seen.renewed = pages, renewed
        self.seen.fresh, self.seen.weight = fresh, weight
        self.seen.top = np.array(top, dtype=np.float32)


def is_near(one: Price, other: Price) -> bool:
    """Whether pages ranked by one price need not be ranked anew by the other."""
    pairs = (one.due, other.due), (one.centre, other.centre)
    return one.of == other.of and all(math.isclose(a, b, rel_tol=MOVED) for a, b in pairs)
