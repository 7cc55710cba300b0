"""Hosts whose pages are refitted together: those that hear of as many sources each, as one set of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats
from service.ledger import MOST_SOURCES, OTHER, Entry, stack
from service.store.learned import HostPages
from service.store.records import CRAWLED, crawled_at_ms, read_heads, read_sources, request_rate_per_day


@dataclass(slots=True)
class Cohort:
    """Their pages in one order, a row each."""

    hosts: list[HostPages]
    sources: list[tuple[int, ...]]
    heads: NDArray[Any]
    host: NDArray[np.intp]  # of each page
    evidence: NDArray[Any]
    open_s: Floats
    open_signals: Floats
    importance: Floats


def sources_of(heard: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The sources a host's pages have heard of, in order, the rest under one number."""
    numbers = sorted({number for sources in heard for number in sources})
    if len(numbers) <= MOST_SOURCES:
        return tuple(numbers)
    return (*[n for n in numbers if n != OTHER][: MOST_SOURCES - 1], OTHER)


def gather(
    parts: list[tuple[HostPages, tuple[int, ...], list[Entry]]], now_at: float, requests_half_life_s: float
) -> Cohort:
    """The pages of these hosts, with what has been heard and asked of them since their last crawl."""
    raws = [raw for host, _, _ in parts for page_bin in host.bins for raw in page_bin.records]
    heads = read_heads(raws)
    counts = [len(entries) for _, _, entries in parts]
    width = max(1, len(parts[0][1]))
    open_signals = np.zeros((len(raws), width))
    importance = heads["model"]["importance"].astype(np.float64)
    crawled = (heads["flags"] & CRAWLED) > 0
    open_s = np.where(crawled, np.maximum(0.0, now_at - crawled_at_ms(heads) / 1000), 0.0)
    heard = crawled & (heads["signals"] > 0)
    at = 0
    for host, sources, _ in parts:
        for page_bin, asked in zip(host.bins, host.requests, strict=True):
            for page_id, raw in zip(page_bin.ids, page_bin.records, strict=True):
                if heard[at] and sources:
                    for number, count in read_sources(raw).items():
                        column = sources.index(number) if number in sources else len(sources) - 1
                        open_signals[at, column] += count
                if page_id in asked:
                    rate = request_rate_per_day(asked[page_id], now_at * 1000, requests_half_life_s)
                    importance[at] = max(rate, 1e-6)
                at += 1
    return Cohort(
        hosts=[host for host, _, _ in parts],
        sources=[sources for _, sources, _ in parts],
        heads=heads,
        host=np.repeat(np.arange(len(parts)), counts),
        evidence=np.concatenate([stack(entries, sources) for _, sources, entries in parts]),
        open_s=open_s,
        open_signals=open_signals,
        importance=importance,
    )
