"""Evidence of pages as it is stored: which sources its columns speak of, then the packed record.

A page's columns are its own: sources take one in the order in which the page first hears of them, and what
comes after the last column is counted there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.policy.drift import expected_depth
from service.policy.evidence import fold, fold_known_change, no_evidence, read_evidence
from service.store.observations import Observation, PageName

MOST_SOURCES = 4
OTHER = 255  # the number under which sources without a column of their own are kept


@dataclass(slots=True)
class Entry:
    """One page's evidence."""

    sources: tuple[int, ...]
    body: bytes  # one record

    @classmethod
    def read(cls, raw: bytes) -> Entry:
        if not raw:
            return cls((), no_evidence(1, 1).tobytes())
        return cls(tuple(raw[1 : 1 + raw[0]]), raw[1 + raw[0] :])

    def pack(self) -> bytes:
        return bytes([len(self.sources), *self.sources]) + self.body

    @property
    def row(self) -> NDArray[Any]:
        return read_evidence(self.body, max(1, len(self.sources)))

    def over(self, sources: tuple[int, ...]) -> bytes:
        """The record with a column for each of these sources; what has none is counted under the rest."""
        wide, row = no_evidence(1, max(1, len(sources))), self.row
        for name in wide.dtype.names or ():
            if name in ("signals", "quiet_signals", "heard"):
                for column, source in enumerate(self.sources):
                    place = sources.index(source if source in sources else OTHER)
                    wide[name][..., place] += row[name][..., column]
            else:
                wide[name] = row[name]
        return wide.tobytes()

    def hear_of(self, sources: Iterable[int]) -> None:
        """Make room for sources the page has not heard of."""
        known = list(self.sources)
        for source in sorted(sources):
            if source not in known:
                known.append(source if len(known) < MOST_SOURCES - 1 else OTHER)
        wanted = tuple(dict.fromkeys(known))
        if wanted != self.sources:
            self.body, self.sources = self.over(wanted), wanted

    def counts(self, signals: dict[int, int]) -> list[float]:
        """Signals in the order of the columns."""
        row = [0.0] * max(1, len(self.sources))
        for source, count in signals.items():
            row[self.sources.index(source if source in self.sources else OTHER)] += count
        return row


Claims = dict[bytes, dict[int, tuple[float, float]]]  # observation: source: (other depth, claimed depth)


def fold_all(
    entries: dict[PageName, Entry],
    observations: list[Observation],
    half_life: float,
    *,
    dated: Set[bytes] = frozenset(),
) -> Claims:
    """Fold observations into their pages' entries, each page's in their order, many pages at a time.

    `dated` are those whose change has a time that can be believed. Returns what each observation's
    signals claimed by the page's own past: the depth they added, beside the rest of its depth.
    """
    claims: Claims = {}
    waiting: dict[PageName, list[Observation]] = defaultdict(list)
    for observation in observations:
        waiting[observation.page].append(observation)
    while waiting:
        rounds: dict[tuple[int, bool], list[Observation]] = defaultdict(list)
        for page in list(waiting):
            observation = waiting[page].pop(0)
            entries[page].hear_of(observation.signals)
            rounds[len(entries[page].sources), observation.entry in dated].append(observation)
            if not waiting[page]:
                del waiting[page]
        for (_, known), group in rounds.items():
            if not known:
                _weigh_claims(entries, group, claims)
            _fold_group(entries, group, half_life, known)
    return claims


def _weigh_claims(entries: dict[PageName, Entry], group: list[Observation], claims: Claims) -> None:
    """Split the depth of observations with signals by source, before they are folded."""
    heard = [o for o in group if o.signals]
    if not heard:
        return
    before = _rows([entries[o.page] for o in heard])
    counts = np.array([entries[o.page].counts(o.signals) for o in heard])
    elapsed = np.array([o.elapsed_s for o in heard])
    depth = expected_depth(before, elapsed, counts)
    for column in range(counts.shape[1]):
        without = counts.copy()
        without[:, column] = 0.0
        rest = np.minimum(expected_depth(before, elapsed, without), depth)
        for at, observation in enumerate(heard):
            if counts[at, column] > 0:
                source = entries[observation.page].sources[column]
                claim = (float(rest[at]), float(depth[at] - rest[at]))
                claims.setdefault(observation.entry, {})[source] = claim


def _fold_group(
    entries: dict[PageName, Entry], group: list[Observation], half_life: float, known: bool
) -> None:
    """Fold one observation each into pages with the same number of columns."""
    before = _rows([entries[o.page] for o in group])
    signals = np.array([entries[o.page].counts(o.signals) for o in group])
    elapsed = np.array([o.elapsed_s for o in group])
    if known:
        since = np.array([o.since_change_s for o in group])
        nothing = np.zeros_like(signals)
        after = fold_known_change(before, since, nothing, nothing, elapsed_s=elapsed, half_life=half_life)
    else:
        changed = np.array([o.changed for o in group])
        after = fold(before, elapsed, signals, changed, half_life=half_life)
    bodies, size = after.tobytes(), after.dtype.itemsize
    for at, observation in enumerate(group):
        entries[observation.page].body = bodies[at * size : (at + 1) * size]


def _rows(entries: list[Entry]) -> NDArray[Any]:
    """The records of entries with as many columns each."""
    return read_evidence(b"".join(e.body for e in entries), max(1, len(entries[0].sources)))


def stack(entries: list[Entry], sources: tuple[int, ...]) -> NDArray[Any]:
    """The records of many pages over one list of sources."""
    bodies = [e.body if e.sources == sources else e.over(sources) for e in entries]
    return read_evidence(b"".join(bodies), max(1, len(sources)))
