"""What a sweep makes of pages it has read: their new rankings, and what they show of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.beliefs import is_settled, ranking_rows
from service.domain import Floats, Model, Price
from service.policy.interval import select
from service.policy.objectives import Objective
from service.policy.valuation import Valuation
from service.store.bins import Bin, Rankings
from service.store.records import (
    CRAWLED,
    HELD,
    LEASED,
    PARKED,
    RANKING,
    crawled_at_ms,
    model_of,
    read_heads,
)
from workers.explore import Unseen
from workers.sample import Sample

READY = 48  # pages that should stand above the due price: the candidates a script compares
HELD_BACK_MS = 10_000.0  # a host whose rest ended longer ago is not what politeness holds back
MOVED = 0.02  # a price this far (relative) from the one a page is ranked by calls for a new ranking


@dataclass(slots=True)
class Seen:
    """What a sweep has seen of its shard so far."""

    pages: int = 0
    renewed: int = 0
    fresh: float = 0.0  # importance of the copies expected fresh
    weight: float = 0.0  # importance of all pages
    unseen: Unseen = field(default_factory=Unseen)
    sample: Sample = field(default_factory=Sample)
    top: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))


def models_of(bins: list[Bin]) -> Model:
    """The models of bins' pages, in their order."""
    return model_of(_heads(bins))


def _heads(bins: list[Bin]) -> NDArray[Any]:
    return read_heads([raw for page_bin in bins for raw in page_bin.records])


def look(bins: list[Bin], valuation: Valuation, now_at: float, seen: Seen) -> tuple[NDArray[Any], Model]:
    """Add what these pages show to `seen`: freshness, the largest values, who was not seen for long."""
    heads = _heads(bins)
    model = model_of(heads)
    crawled_ms = crawled_at_ms(heads)
    effective_s = np.maximum(0.0, now_at - _anchors_ms(bins, crawled_ms) / 1000)
    crawled_s = np.maximum(0.0, now_at - crawled_ms / 1000)
    crawled = (heads["flags"] & CRAWLED) > 0
    waiting = crawled & ((heads["flags"] & (LEASED | PARKED | HELD)) == 0)
    seen.pages += len(heads)
    seen.unseen.look(bins, heads, now_at)
    seen.sample.look(heads)
    fresh = np.where(crawled, np.exp(-model.silent_rate * effective_s), 0)
    seen.fresh += float(np.sum(model.importance * fresh))
    seen.weight += float(np.sum(model.importance))
    believed = valuation.believe(model)
    signals = heads["signals"].astype(np.float64)
    depth = valuation.depth(believed, elapsed_s=crawled_s, effective_s=effective_s, signals=signals)
    if waiting.any():
        _note_values(depth[waiting], select(believed, waiting), valuation.objective, seen)
    return heads, believed


def _anchors_ms(bins: list[Bin], crawled_ms: Floats) -> Floats:
    """The anchors of bins' pages; of one never crawled it means nothing."""
    anchors, begin = crawled_ms.copy(), 0
    for page_bin in bins:
        for at, anchor_ms in page_bin.anchors_ms:
            anchors[begin + at] = anchor_ms
        begin += len(page_bin.names)
    return anchors


def _note_values(depth: Floats, believed: Model, objective: Objective, seen: Seen) -> None:
    """Keep the largest values; what cannot be among them is not computed."""
    if objective.most is None:
        return _keep_largest(objective.value(depth, believed), seen)
    most = objective.most(depth, believed)
    promising = np.zeros(len(most), dtype=bool)
    promising[np.argpartition(-most, READY)[:READY] if len(most) > READY else slice(None)] = True
    _keep_largest(objective.value(depth[promising], select(believed, promising)), seen)
    least = seen.top.min() if len(seen.top) == READY else 0.0
    left = ~promising & (most > least)
    return _keep_largest(objective.value(depth[left], select(believed, left)), seen)


def _keep_largest(values: Floats, seen: Seen) -> None:
    best = np.concatenate([seen.top, values.astype(np.float32)])
    seen.top = best if len(best) <= READY else -np.partition(-best, READY - 1)[:READY]


def rerank(
    bins: list[Bin], price: Price, valuation: Valuation, now_at: float, seen: Seen, *, anew: bool = False
) -> list[tuple[Bin, Rankings]]:
    """New rankings of the pages that need one, bin by bin; adds what all of them show to `seen`.

    `anew`: what was ranked before was ranked by another value.
    """
    heads, believed = look(bins, valuation, now_at, seen)
    due = _due_prices(bins, price, now_at * 1000)
    stale = np.ones(len(heads), dtype=bool)
    if not anew:
        seen_so = replace(valuation, believe=lambda _: believed)
        stale = ~is_settled(heads["ranking"], believed, price, due, valuation=seen_so, tolerance=MOVED)
    if not stale.any():
        return []
    some = replace(valuation, believe=lambda model: model)
    rows = ranking_rows(select(believed, stale), price, due[stale], valuation=some)
    return _by_bin(bins, np.flatnonzero(stale), heads["version"][stale].tobytes(), rows.tobytes())


def _by_bin(
    bins: list[Bin], places: NDArray[np.intp], versions: bytes, rows: bytes
) -> list[tuple[Bin, Rankings]]:
    """The rankings of the pages at these places, by their bins."""
    size = RANKING.itemsize
    ends = np.cumsum([len(page_bin.names) for page_bin in bins])
    cuts = [0, *np.searchsorted(places, ends).tolist()]
    within = (places - np.repeat(ends, np.diff(cuts))).tolist()  # counted from the end of the bin
    items = []
    for page_bin, low, high in zip(bins, cuts, cuts[1:], strict=False):
        if high > low:
            names = [page_bin.names[at] for at in within[low:high]]
            items.append((page_bin, (names, versions[low:high], rows[low * size : high * size])))
    return items


def _due_prices(bins: list[Bin], price: Price, now_ms: float) -> NDArray[np.float64]:
    """Each page's due price: a host politeness holds back serves dearer pages, and is keyed by its own."""
    own = [_host_price(page_bin, price, now_ms) for page_bin in bins]
    return np.repeat(np.array(own), [len(page_bin.names) for page_bin in bins])


def _host_price(page_bin: Bin, price: Price, now_ms: float) -> float:
    """The host's own price only where it is clearly dearer: below that the difference is noise."""
    own = page_bin.host_price * (1 - price.slack)
    is_held_back = page_bin.host_rests_until_ms > now_ms - HELD_BACK_MS
    return own if is_held_back and own > price.served else price.due
