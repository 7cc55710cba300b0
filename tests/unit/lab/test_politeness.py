"""Hosts that rest: rests are kept, the best within limits is the best, and what the experiment finds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from loadtest.lab.bounds import take
from loadtest.lab.brute_force import BruteForce, Policy
from loadtest.lab.contest import LOST, settled, steady
from loadtest.lab.events import NONE, Happenings, known, truth
from loadtest.lab.experiment import Effort
from loadtest.lab.politeness import BOUND, EQUAL, NCIS, SHORT, SKEWED, linear, run_politeness, spread
from loadtest.lab.rests import Demand, Polite, Tabulated
from loadtest.population import noisy_population
from service.domain import Model
from service.policy.crawl_value import crawl_value
from service.policy.forecast import optimum
from service.policy.variants import cis, greedy

POPULATION = noisy_population(np.random.default_rng(1), 120, 1)
HOST = spread(120, 10, 1.0)
SLOTS = np.arange(400) / 24.0


def test_hosts_have_the_sizes_asked_for() -> None:
    np.testing.assert_array_equal(np.bincount(spread(100, 5, 0.0)), np.full(5, 20))
    sizes = np.bincount(spread(1_000, 4, 1.0))
    np.testing.assert_allclose(sizes, 1_000 / np.array([1, 2, 3, 4]) / (25 / 12), atol=1.0)


@pytest.mark.parametrize("believe", [lambda model: model, cis, greedy])
def test_tabulated_values_are_never_too_small_and_close(believe: Callable[[Model], Model]) -> None:
    model = believe(truth(POPULATION))
    look = Tabulated(model)
    for depth in np.random.default_rng(2).exponential(1.0, (20, 120)):
        exact = crawl_value(depth, model)
        assert np.all(look(depth) >= exact * (1 - 1e-9))
        assert np.all(look(depth) <= exact + 0.004 * model.importance / model.change_rate)
    np.testing.assert_allclose(look(np.full(120, np.inf)), model.importance / model.change_rate)


def test_without_rest_the_page_of_largest_value_is_picked() -> None:
    rng = np.random.default_rng(3)
    model, start = known(POPULATION), settled(POPULATION, 24.0, rng)
    _, signals = Happenings(POPULATION, rng).draw(0.0, 17.0)
    plain = BruteForce(Policy("ncis", model), start.depth(model))
    polite = Polite(model, lambda depth: crawl_value(depth, model), start.depth(model), HOST, 1 / 24.0)
    served = polite.advance(SLOTS, signals)
    np.testing.assert_array_equal(served.page, plain.advance(SLOTS, signals).page)


def test_a_host_rests_and_the_best_of_the_others_is_served() -> None:
    """Against a scan of plain Python; V = ρι, so that nothing but the last crawl matters."""
    rate, rest = np.random.default_rng(4).random(120), 8 / 24.0
    model, value = linear(rate)
    served = Polite(model, value, np.ones(120), HOST, rest).advance(SLOTS, NONE)
    depth_at, asked_at = np.ones(120), dict.fromkeys(range(10), -1.0)
    last = np.zeros(120)
    for now, page in zip(SLOTS.tolist(), served.page.tolist(), strict=True):
        awake = [p for p in range(120) if now - asked_at[int(HOST[p])] > rest - 1e-6]
        worth = {p: depth_at[p] + rate[p] * (now - last[p]) for p in awake}
        assert worth[page] == pytest.approx(max(worth.values()))
        depth_at[page], last[page], asked_at[int(HOST[page])] = 0.0, now, now


def test_slots_are_lost_only_when_all_hosts_rest() -> None:
    """10 hosts that rest for 16 slots: of every 16 slots 6 are lost, in all 25 rounds."""
    model, value = linear(np.ones(120))
    served = Polite(model, value, np.ones(120), HOST, 16 / 24.0).advance(SLOTS, NONE)
    lost = (served.page == LOST).reshape(25, 16)
    assert not lost[:, :10].any()
    assert lost[:, 10:].all()


def test_a_contest_counts_no_crawl_in_a_lost_slot() -> None:
    rng = np.random.default_rng(5)
    start = settled(POPULATION, 24.0, rng)
    model, value = linear(np.ones(120))
    crawlers = {"polite": Polite(model, value, start.depth(model), HOST, 20 / 24.0)}
    run = steady(24.0, warm=10.0, end=20.0).run(POPULATION, start, crawlers, rng)["polite"]
    assert run.crawls.sum() == 120  # half of 240 slots
    assert 0 < run.freshness < 1


def test_limits_that_do_not_bind_leave_the_optimum() -> None:
    """Levels of price are 4% apart; what following two of them in turn costs is of second order."""
    model = known(POPULATION)
    frequency, fresh = Demand(model, HOST).optimum(24.0, 24.0)
    best = optimum(model, 24.0)
    assert fresh == pytest.approx(best.freshness, rel=2e-4)
    assert np.sum(frequency) == pytest.approx(24.0)


def test_hosts_at_their_limit_have_their_own_price_and_the_others_share_one() -> None:
    model, cap = known(POPULATION), 3.2
    frequency, fresh = Demand(model, HOST).optimum(24.0, cap)
    asked = np.bincount(HOST, frequency)
    is_capped = asked > 0.999 * cap
    assert 1 <= np.count_nonzero(is_capped) <= 8
    assert np.max(asked) <= cap * (1 + 1e-9)
    assert np.sum(asked) == pytest.approx(24.0)
    rest = np.flatnonzero(~is_capped[HOST])
    parts = [(rest, 24.0 - cap * int(np.count_nonzero(is_capped)))]
    parts += [(np.flatnonzero(one == HOST), cap) for one in np.flatnonzero(is_capped).tolist()]
    total = 0.0
    for pages, bandwidth in parts:
        best = optimum(take(model, pages), bandwidth)
        total += float(np.sum(model.importance[pages] * best.page_freshness))
    assert fresh == pytest.approx(total / np.sum(model.importance), rel=3e-4)


def test_limits_cost_freshness_and_the_exact_value_stays_best() -> None:
    """Two small webs: ratios scatter by a few percent."""
    told: list[float] = []
    findings = run_politeness(Effort(seed=3, repetitions=2, short=True, report=told.append))
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)
    assert all(row.keys() == findings.rows[0].keys() for row in findings.rows)
    by = {(row["hosts"], row["rest, slots"], row["policy"]): row for row in findings.rows}
    for hosts in (EQUAL, SKEWED):
        free, full, half = (by[hosts, rest, NCIS] for rest in SHORT.rests)
        assert free["slots lost"] == full["slots lost"] == 0.0
        assert half["slots lost"] == pytest.approx(0.5, abs=0.02)
        assert float(half["freshness"]) < 0.85 * float(full["freshness"])
        assert 0.9 < float(half["÷ optimum"]) < 1.03
        assert float(half["freshness"]) > float(by[hosts, SHORT.rests[-1], "uniform"]["freshness"])
        assert by[hosts, SHORT.rests[-1], BOUND]["÷ optimum"] == 1.0
    assert set(findings.curves) == {row["policy"] for row in findings.rows}
