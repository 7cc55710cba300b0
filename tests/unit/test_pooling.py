"""What pages of a host and hosts of a source teach each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.domain import Floats
from service.policy import pooling
from service.policy.estimate import Estimate, fit
from service.policy.evidence import fold, no_evidence

DEFAULTS = pooling.Defaults(silent_rate=0.25, signal_rate=0.5)


@dataclass
class Learner:
    """All pages of a few hosts with one source, as a worker would hold them."""

    evidence: NDArray[Any]
    host: NDArray[np.intp]
    hosts: int
    host_sums: Floats = field(init=False)
    source_sums: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.host_sums = np.zeros((self.hosts, 9))
        self.source_sums = np.zeros((self.hosts, 1, 6))

    def beliefs(self) -> tuple[pooling.HostBelief, pooling.SourceBelief]:
        sums, source = self.host_sums, self.source_sums
        up = pooling.ascend(sums[:, pooling.WEIGHT], sums[:, pooling.LEVEL], DEFAULTS.silent_spread)
        weight, level = source[:, :, pooling.SOURCE_WEIGHT], source[:, :, pooling.SOURCE_LEVEL]
        across = pooling.ascend(weight, level, DEFAULTS.host_spread).sum(axis=0)
        return (
            pooling.believe_hosts(sums, up.sum(axis=0), DEFAULTS),
            pooling.believe_sources(source, across, DEFAULTS),
        )

    def sweep(self, rounds: int = 8) -> Estimate:
        for _ in range(rounds):
            hosts, sources = self.beliefs()
            signals = self.evidence["signals"].astype(np.float64)
            watched = self.evidence["watched_s"].astype(np.float64)
            prior = pooling.page_prior(hosts, sources, self.host, signals, watched, DEFAULTS)
            estimate = fit(self.evidence, prior)
            self.host_sums = np.zeros_like(self.host_sums)
            self.source_sums = np.zeros_like(self.source_sums)
            np.add.at(self.host_sums, self.host, pooling.host_rows(estimate, prior, hosts, self.host))
            rows = pooling.source_rows(
                estimate, prior, sources, self.host, signals=signals, watched_s=watched
            )
            np.add.at(self.source_sums, self.host, rows)
        return estimate


def observe(
    generator: np.random.Generator, silent: Floats, true: Floats, false: Floats, *, crawls: int
) -> NDArray[Any]:
    evidence = no_evidence(silent.size)
    for _ in range(crawls):
        elapsed = generator.exponential(1 / (silent + true))
        told = generator.poisson(true * elapsed)
        signals = told + generator.poisson(false * elapsed)
        changed = told + generator.poisson(silent * elapsed) > 0
        evidence = fold(evidence, elapsed, signals[:, None], changed)
    return evidence


def like_hosts(
    generator: np.random.Generator, *, hosts: int, pages: int, crawls: int
) -> tuple[Learner, Floats, Floats]:
    """Hosts whose pages share precision and recall: (learner, α, κ)."""
    host = np.repeat(np.arange(hosts), pages)
    precision, recall = generator.uniform(0.2, 0.95, (2, hosts))
    changes = generator.uniform(0.05, 1.0, host.size)
    true = recall[host] * changes
    false = true * (1 / precision[host] - 1)
    evidence = observe(generator, changes - true, true, false, crawls=crawls)
    return Learner(evidence, host, hosts), changes - true, np.log1p(true / false)


def test_pooling_cuts_the_error_of_pages_seldom_crawled() -> None:
    learner, silent, weight = like_hosts(np.random.default_rng(1), hosts=20, pages=40, crawls=6)
    alone = Learner(learner.evidence, np.arange(800), 800).sweep(1)
    pooled = learner.sweep()

    def errors(estimate: Estimate) -> tuple[float, float]:
        rate = np.median(np.abs(np.log(estimate.silent_rate / silent)))
        return float(rate), float(np.mean(np.abs(np.exp(-estimate.signal_weight[:, 0]) - np.exp(-weight))))

    assert errors(pooled)[0] < 0.7 * errors(alone)[0]
    assert errors(pooled)[1] < 0.5 * errors(alone)[1]


def test_the_silent_rate_follows_the_signal_rate_where_that_explains_the_host() -> None:
    learner, _, _ = like_hosts(np.random.default_rng(2), hosts=10, pages=100, crawls=30)
    learner.sweep(12)
    assert np.mean(learner.beliefs()[0].slope) == pytest.approx(1.0, abs=0.2)


def test_the_silent_rate_ignores_a_signal_rate_that_explains_nothing() -> None:
    generator = np.random.default_rng(3)
    host = np.repeat(np.arange(10), 100)
    false = np.exp(generator.normal(-1.0, 1.0, host.size))
    learner = Learner(observe(generator, np.full(host.size, 0.3), 0 * false, false, crawls=30), host, 10)
    learner.sweep(12)
    assert np.mean(np.abs(learner.beliefs()[0].slope)) < 0.2


def test_hosts_of_unlike_pages_pool_less() -> None:
    generator = np.random.default_rng(4)
    host = np.repeat([0, 1], 200)
    silent = np.where(host == 0, 0.3, np.exp(generator.normal(-1.2, 1.2, host.size)))
    learner = Learner(observe(generator, silent, 0 * silent, 0.3 + 0 * silent, crawls=20), host, 2)
    learner.sweep(12)
    alike, unlike = learner.beliefs()[0].spread
    assert alike < 0.2
    assert 0.7 < unlike < 2.5


def test_a_new_page_starts_from_its_host() -> None:
    learner, _, weight = like_hosts(np.random.default_rng(5), hosts=4, pages=100, crawls=20)
    learner.sweep()
    hosts, sources = learner.beliefs()
    every = np.arange(4)
    prior = pooling.page_prior(hosts, sources, every, np.zeros((4, 1)), np.zeros(4), DEFAULTS)
    np.testing.assert_allclose(1 - np.exp(-prior.weight_mean[:, 0]), 1 - np.exp(-weight[::100]), atol=0.1)


def test_replacing_rows_page_by_page_gives_the_same_sums_as_a_sweep() -> None:
    learner, _, _ = like_hosts(np.random.default_rng(6), hosts=3, pages=10, crawls=5)
    hosts, sources = learner.beliefs()
    signals, watched = learner.evidence["signals"].astype(float), learner.evidence["watched_s"].astype(float)
    prior = pooling.page_prior(hosts, sources, learner.host, signals, watched, DEFAULTS)
    rows = pooling.host_rows(fit(learner.evidence, prior), prior, hosts, learner.host)
    kept = np.zeros((3, 9))
    for page in np.random.default_rng(0).permutation(30):
        kept[learner.host[page]] += 5.0 * rows[page]
        kept[learner.host[page]] += rows[page] - 5.0 * rows[page]
    whole = np.zeros((3, 9))
    np.add.at(whole, learner.host, rows)
    np.testing.assert_allclose(kept, whole, rtol=1e-9)


def test_a_bad_sender_keeps_its_name_on_new_pages_and_new_hosts() -> None:
    generator = np.random.default_rng(7)
    host = np.repeat(np.arange(6), 30)
    silent, false = np.full(host.size, 0.1), np.full(host.size, 1.0)
    learner = Learner(observe(generator, silent, 0 * silent, false, crawls=30), host, 7)
    learner.sweep(12)
    hosts, sources = learner.beliefs()
    prior = pooling.page_prior(hosts, sources, np.array([0, 6]), np.zeros((2, 1)), np.zeros(2), DEFAULTS)
    new_page, new_host = 1 - np.exp(-prior.weight_mean[:, 0])
    assert new_page < 0.1
    assert new_host < 0.2


def test_one_host_of_bad_signals_hardly_hurts_the_others() -> None:
    generator = np.random.default_rng(8)
    host = np.repeat(np.arange(10), 30)
    true = np.where(host == 0, 0.0, 0.4)
    false = np.where(host == 0, 2.0, 0.1)
    learner = Learner(observe(generator, np.full(host.size, 0.1), true, false, crawls=20), host, 11)
    learner.sweep(12)
    precision = 1 - np.exp(-np.exp(learner.beliefs()[1].level[:, 0]))
    assert precision[0] < 0.15
    np.testing.assert_allclose(precision[1:10], 0.8, atol=0.12)
    assert precision[10] > 0.5
