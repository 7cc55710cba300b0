"""What hosts say of their pages, and shards of their hosts: sums that add up, as they are stored."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from service.domain import Floats
from service.policy import pooling
from service.store.wire import pack, unpack

DEFAULTS = pooling.Defaults()
HOST_COLUMNS, SOURCE_COLUMNS, FIGURES = 9, 6, 4


@dataclass(frozen=True, slots=True)
class Said:
    """What all hosts together say: (weight, weight × level) of silent rates and of each source's κ."""

    silent: Floats = field(default_factory=lambda: np.zeros(2))
    sources: dict[int, Floats] = field(default_factory=dict)
    figures: dict[int, Floats] = field(default_factory=dict)  # Σγ, Σγ·precision, ΣΔ, pages


@dataclass(frozen=True, slots=True)
class Sums:
    """A host's sums over its pages, and per source what an operator wants to know."""

    sources: tuple[int, ...]
    host: Floats
    source: Floats  # (source, column)
    figures: Floats  # (source, figure)

    def pack(self) -> bytes:
        parts = (list(self.sources), self.host.tolist(), self.source.tolist(), self.figures.tolist())
        return pack(parts)

    def plus(self, other: Sums) -> Sums:
        """Of the pages of both; they have heard of the same sources."""
        return Sums(
            self.sources, self.host + other.host, self.source + other.source, self.figures + other.figures
        )

    @classmethod
    def read(cls, raw: bytes, sources: tuple[int, ...]) -> Sums:
        """The sums over these sources; zeros where nothing was summed yet."""
        width = max(1, len(sources))
        columns, figures_ = np.zeros((width, SOURCE_COLUMNS)), np.zeros((width, FIGURES))
        blank = cls(sources, np.zeros(HOST_COLUMNS), columns, figures_)
        if not raw:
            return blank
        numbers, host, source, figures = unpack(raw)
        if not sources and not numbers:  # a host nobody signals still has its one column
            blank.source[0], blank.figures[0] = source[0], figures[0]
        for at, number in enumerate(numbers):
            if number in sources:
                blank.source[sources.index(number)] = source[at]
                blank.figures[sources.index(number)] = figures[at]
        return cls(sources, np.array(host), blank.source, blank.figures)


def listen(raws: list[bytes]) -> Said:
    """What hosts with these sums say together."""
    said = Said()
    sources: dict[int, list[Floats]] = defaultdict(list)
    for raw in raws:
        numbers, host, source, figures = unpack(raw)
        row = np.array(host)
        said.silent[:] += pooling.ascend(row[pooling.WEIGHT], row[pooling.LEVEL], DEFAULTS.silent_spread)
        for at, number in enumerate(numbers):
            part = np.array(source[at])
            weight, level = part[pooling.SOURCE_WEIGHT], part[pooling.SOURCE_LEVEL]
            sources[number].append(pooling.ascend(weight, level, DEFAULTS.host_spread))
            said.figures[number] = said.figures.get(number, np.zeros(FIGURES)) + np.array(figures[at])
    said.sources.update({number: np.sum(messages, axis=0) for number, messages in sources.items()})
    return said


def pack_said(said: Said) -> bytes:
    sources = [(number, message.tolist()) for number, message in said.sources.items()]
    return pack([said.silent.tolist(), sources])


def read_said(raws: list[bytes], names: dict[int, str]) -> Said:
    """What all shards say together; senders of one source, by the sources' names, lean on each other.

    Only senders whose name a key vouches for: what comes without one says nothing of those.
    """
    total = Said()
    for raw in raws:
        silent, sources = unpack(raw)
        total.silent[:] += silent
        for number, message in sources:
            total.sources[number] = total.sources.get(number, np.zeros(2)) + np.array(message)
    for kin in _families(names):
        rows = np.array([total.sources.get(number, np.zeros(2)) for number in kin])
        total.sources.update(zip(kin, pooling.lean_on_kin(rows, DEFAULTS), strict=True))
    return total


def _families(names: dict[int, str]) -> list[list[int]]:
    """Numbers of the senders of each source that has several."""
    families: dict[str, list[int]] = defaultdict(list)
    for number, name in sorted(names.items()):
        source, _, sender = name.partition("@")
        if sender:
            families[source].append(number)
    return [kin for kin in families.values() if len(kin) > 1]
