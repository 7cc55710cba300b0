"""From the evidence of hosts' pages to beliefs about hosts, sources and pages, and to the pages' models.

Pure: what is read and written is the workers' business. A host is refitted from its pages' evidence, its own
sums of last time and what all shards say, whole or in parts that add up; pages fixed by a user, and pages
that still live on a user's starting beliefs, keep their models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.beliefs import model_rows, ranking_rows
from service.cohort import Cohort, gather, sources_of
from service.domain import Floats, Model, Price
from service.ledger import OTHER, Entry
from service.policy import pooling
from service.policy.estimate import Estimate, Prior, fit
from service.policy.exploration import optimistic
from service.policy.ranking import storable
from service.policy.reputation import discredited
from service.policy.valuation import NCIS, Valuation
from service.store.bins import Bin
from service.store.learned import HostHead, HostPages
from service.store.records import STARTED, pack_rows, read_heads
from service.sums import DEFAULTS, FIGURES, Said, Sums
from service.trust import read_trust

BinRows = tuple[Bin, list[tuple[int, int, bytes]]]  # id, version, ranking and model of its pages
OWN_CRAWLS = 3.0  # observations after which a user's starting beliefs give way


@dataclass(frozen=True, slots=True)
class Refitted:
    """What was learned of one host."""

    host_id: str
    sums: Sums
    weights: Floats  # κ per source at this host
    moved: float  # largest relative change of its sums
    pages: list[BinRows]


def refit(
    hosts: list[HostPages],
    said: Said,
    price: Price,
    *,
    valuation: Valuation | None = NCIS,
    now_at: float,
    requests_half_life_s: float,
    pooled: bool,
    heard: tuple[int, ...] | None = None,
) -> list[Refitted]:
    """New beliefs for the hosts and models for their pages; without a valuation rankings stay as they are.

    `heard`: the sources of all pages of a host of which a part is given.
    """
    groups: dict[int, list[tuple[HostPages, tuple[int, ...], list[Entry]]]] = defaultdict(list)
    for host in hosts:
        entries = [
            Entry.read(kept.get(page_id, b""))
            for page_bin, kept in zip(host.bins, host.evidence, strict=True)
            for page_id in page_bin.ids
        ]
        sources = sources_of(entry.sources for entry in entries) if heard is None else heard
        groups[len(sources)].append((host, sources, entries))
    learned: list[Refitted] = []
    for parts in groups.values():
        if any(entries for _, _, entries in parts):
            group = gather(parts, now_at, requests_half_life_s)
            rank = partial(_ranked, group.heads, price, valuation)
            learned += _refit_group(group, said, rank, pooled)
    return learned


def _estimate(group: Cohort, said: Said, pooled: bool) -> tuple[Estimate, Prior, list[Sums], Any, Any]:
    sums = [Sums.read(h.sums, s) for h, s in zip(group.hosts, group.sources, strict=True)]
    blank = np.zeros(2)
    heard = np.array([[said.sources.get(n, blank) for n in (s or (OTHER,))] for s in group.sources])
    host_belief = pooling.believe_hosts(np.array([s.host for s in sums]), said.silent, DEFAULTS)
    source_belief = pooling.believe_sources(np.array([s.source for s in sums]), heard, DEFAULTS)
    signals = group.evidence["signals"].astype(np.float64) + group.open_signals
    watched = group.evidence["watched_s"].astype(np.float64) + group.open_s
    prior = pooling.page_prior(host_belief, source_belief, group.host, signals, watched, DEFAULTS)
    if not pooled:
        prior = _lonely_prior(prior)
    found = fit(group.evidence, prior, open_s=group.open_s, open_signals=group.open_signals)
    return found, prior, sums, host_belief, source_belief


def _ranked(heads: NDArray[Any], price: Price, valuation: Valuation | None, model: Model) -> NDArray[Any]:
    """The rankings of pages with a new model."""
    if valuation is None:
        return np.asarray(heads["ranking"])
    return ranking_rows(model, price, valuation=valuation)


def _refit_group(
    group: Cohort, said: Said, rank: Callable[[Model], NDArray[Any]], pooled: bool
) -> list[Refitted]:
    found, prior, before, host_belief, source_belief = _estimate(group, said, pooled)
    signals = group.evidence["signals"].astype(np.float64) + group.open_signals
    watched = group.evidence["watched_s"].astype(np.float64) + group.open_s
    host_rows = pooling.host_rows(found, prior, host_belief, group.host)
    source_rows = pooling.source_rows(
        found, prior, source_belief, group.host, signals=signals, watched_s=watched
    )
    count = len(group.hosts)
    host_sums = np.zeros((count, host_rows.shape[1]))
    source_sums = np.zeros((count, *source_rows.shape[1:]))
    figures = np.zeros((count, source_rows.shape[1], FIGURES))
    np.add.at(host_sums, group.host, host_rows)
    np.add.at(source_sums, group.host, source_rows)
    np.add.at(figures, group.host, _figures(found))
    trusted = replace(found, signal_weight=discredited(found.signal_weight, _trust(group)[group.host]))
    model = storable(optimistic(trusted).model(group.importance))
    belief = [r + m for r, m in zip(pack_rows(rank(model)), pack_rows(model_rows(model)), strict=True)]
    weights = _weights(source_sums, _trust(group))
    return [
        Refitted(
            host_id=host.host_id,
            sums=Sums(group.sources[at], host_sums[at], source_sums[at], figures[at]),
            weights=weights[at],
            moved=_moved(before[at], host_sums[at], source_sums[at]),
            pages=_by_bin(group, at, belief),
        )
        for at, host in enumerate(group.hosts)
    ]


def combine(host: HostHead, parts: list[Refitted]) -> Refitted:
    """What the parts of a host say together; their pages have been written."""
    sums = parts[0].sums
    for part in parts[1:]:
        sums = sums.plus(part.sums)
    moved = _moved(Sums.read(host.sums, sums.sources), sums.host, sums.source)
    weights = _weights(sums.source[None], np.array([_trust_row(host.trust, sums.sources)]))[0]
    return Refitted(host.host_id, sums, weights, moved, [])


def _weights(source_sums: Floats, trust: Floats) -> Floats:
    """κ of each source at each host."""
    level = pooling.believe_sources(source_sums, np.zeros((*source_sums.shape[:2], 2)), DEFAULTS).level
    return discredited(np.exp(level), trust)


def _trust(group: Cohort) -> Floats:
    """Trust of each host in each of its sources."""
    return np.array([_trust_row(h.trust, s) for h, s in zip(group.hosts, group.sources, strict=True)])


def _trust_row(raw: bytes, sources: tuple[int, ...]) -> list[float]:
    """Full where a source was never checked."""
    trust = read_trust(raw)
    return [trust.get(number, 1.0) for number in sources or (OTHER,)]


def _figures(found: Estimate) -> Floats:
    """Per page and source: γ, γ·precision, Δ of the page, 1."""
    true = found.signal_rate * -np.expm1(-found.signal_weight)
    changes = np.broadcast_to(found.change_rate[:, None], true.shape)
    return np.stack([found.signal_rate, true, changes, np.ones_like(true)], axis=2)


def _moved(before: Sums, host: Floats, source: Floats) -> float:
    """How far a host's sums have moved, relative to their size."""
    old = np.concatenate([before.host, before.source.ravel()])
    new = np.concatenate([host, source.ravel()])
    return float(np.max(np.abs(new - old) / (1.0 + np.abs(new))))


def _lonely_prior(prior: Prior) -> Prior:
    """The prior of a page that knows no host: the defaults, weakly held."""
    ones = np.ones_like(prior.silent_mean)
    each = np.ones_like(prior.weight_mean)
    return Prior(
        silent_mean=ones * DEFAULTS.silent_rate,
        silent_shape=ones * 0.5,
        weight_mean=each,
        weight_shape=each,
        signal_mean=each * DEFAULTS.signal_rate,
        signal_shape=each,
    )


def _by_bin(group: Cohort, host_at: int, belief: list[bytes]) -> list[BinRows]:
    """A host's pages to be written, bin by bin."""
    at = int(np.searchsorted(group.host, host_at))
    found = []
    for page_bin in group.hosts[host_at].bins:
        rows = []
        for page_id in page_bin.ids:
            started = group.heads["flags"][at] & STARTED
            if not started or group.evidence["crawls"][at] >= OWN_CRAWLS:
                rows.append((page_id, int(group.heads["version"][at]), belief[at]))
            at += 1
        found.append((page_bin, rows))
    return found


def estimate_page(
    raw: bytes, sums: bytes, said: Said, *, open_s: float, open_signals: dict[int, int]
) -> tuple[Estimate, tuple[int, ...]]:
    """What is believed of one page and how firmly, with the sources its columns speak of."""
    entry = Entry.read(raw)
    sources = entry.sources
    counts = [[float(open_signals.get(number, 0)) for number in sources or (OTHER,)]]
    group = Cohort(
        hosts=[HostPages("", sums, b"", [], [], [])],
        sources=[sources],
        heads=read_heads([]),
        host=np.zeros(1, dtype=np.intp),
        evidence=entry.row,
        open_s=np.array([open_s]),
        open_signals=np.array(counts),
        importance=np.ones(1),
    )
    return _estimate(group, said, pooled=True)[0], sources
