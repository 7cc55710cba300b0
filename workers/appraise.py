"""What a sweep makes of pages it has read: their new rankings, and what they show of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.beliefs import ranking_rows
from service.domain import Floats, Model, Price
from service.policy.interval import select
from service.policy.valuation import Valuation
from service.store.records import (
    CRAWLED,
    HELD,
    LEASED,
    PARKED,
    crawled_at_ms,
    model_of,
    pack_rows,
    read_heads,
)
from service.store.shards import Bin
from workers.explore import Unseen

READY = 48  # pages that should stand above the due price: the candidates a script compares
Reranked = tuple[Bin, list[tuple[int, int, bytes]]]


@dataclass(slots=True)
class Seen:
    """What a sweep has seen of its shard so far."""

    renewed: int = 0
    fresh: float = 0.0  # importance of the copies expected fresh
    weight: float = 0.0  # importance of all pages
    unseen: Unseen = field(default_factory=Unseen)
    top: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))


def models_of(bins: list[Bin]) -> Model:
    """The models of bins' pages, in their order."""
    return model_of(read_heads([raw for page_bin in bins for raw in page_bin.records]))


def look(bins: list[Bin], valuation: Valuation, now_at: float, seen: Seen) -> NDArray[Any]:
    """Add what these pages show to `seen`: freshness, the largest values, who was not seen for long."""
    heads = read_heads([raw for page_bin in bins for raw in page_bin.records])
    model = model_of(heads)
    anchors_ms = np.concatenate([page_bin.anchors_ms for page_bin in bins])
    effective_s = np.maximum(0.0, now_at - anchors_ms / 1000)
    seen.unseen.look(bins, heads, now_at)
    crawled = (heads["flags"] & CRAWLED) > 0
    seen.fresh += float(
        np.sum(model.importance * np.where(crawled, np.exp(-model.silent_rate * effective_s), 0))
    )
    seen.weight += float(np.sum(model.importance))
    waiting = crawled & ((heads["flags"] & (LEASED | PARKED | HELD)) == 0)
    if waiting.any():
        _note_values(_values(heads, model, effective_s, valuation, waiting, now_at), seen)
    return heads


def _values(
    heads: NDArray[Any],
    model: Model,
    effective_s: Floats,
    valuation: Valuation,
    which: NDArray[np.bool_],
    now_at: float,
) -> Floats:
    believed = valuation.believe(model)
    depth = valuation.depth(
        believed,
        elapsed_s=np.maximum(0.0, now_at - crawled_at_ms(heads) / 1000),
        effective_s=effective_s,
        signals=heads["signals"].astype(np.float64),
    )
    return valuation.objective.value(depth[which], select(believed, which))


def _note_values(values: Floats, seen: Seen) -> None:
    best = np.concatenate([seen.top, values.astype(np.float32)])
    seen.top = best if len(best) <= READY else -np.partition(-best, READY - 1)[:READY]


def rerank(bins: list[Bin], price: Price, valuation: Valuation, now_at: float, seen: Seen) -> list[Reranked]:
    """New rankings per bin; adds what these pages show to `seen`."""
    heads = look(bins, valuation, now_at, seen)
    rows = pack_rows(ranking_rows(model_of(heads), price, _due_prices(bins, price), valuation=valuation))
    items: list[Reranked] = []
    at = 0
    for page_bin in bins:
        end = at + len(page_bin.ids)
        versions = heads["version"][at:end].tolist()
        items.append((page_bin, list(zip(page_bin.ids, versions, rows[at:end], strict=True))))
        at = end
    return items


def _due_prices(bins: list[Bin], price: Price) -> NDArray[np.float64]:
    """Each page's due price: a host politeness holds back serves dearer pages, and is keyed by its own."""
    own = [_host_price(page_bin.host_price * (1 - price.slack), price) for page_bin in bins]
    return np.repeat(np.array(own), [len(page_bin.ids) for page_bin in bins])


def _host_price(own: float, price: Price) -> float:
    """The host's own price only where it is clearly dearer: below that the difference is noise."""
    return own if own > price.served else price.due
