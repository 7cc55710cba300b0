"""Greedy slots choose what they say they choose."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from loadtest.lab.signalled_objectives import AS_DEPTH, crawl_by_book, crawl_for
from loadtest.lab.slots import (
    Web,
    crawl_at_random,
    crawl_greedily,
    deaf_model,
    linear_value,
    model_of,
    value_of,
)
from loadtest.lab.starvation import MEASURES, POLICIES, judge
from loadtest.population import noisy_population, silent_population
from service.domain import Floats
from service.policy.objectives import FRESHNESS, HARMONIC


def draw(slots: int = 2_000, seed: int = 4) -> Web:
    rng = np.random.default_rng(seed)
    return Web.draw(silent_population(rng, 40, 1), 8.0, slots, rng)


def test_rates_as_values_are_rates_as_crawls() -> None:
    """V = ρι crawls each page ρ times per unit, but for the one crawl its last interval has begun."""
    web = draw()
    rate = np.random.default_rng(5).dirichlet(np.full(40, 3.0)) * web.bandwidth
    count = np.bincount(crawl_greedily(web, linear_value(rate)), minlength=40)
    np.testing.assert_allclose(count, rate * web.horizon, atol=2.0)


def test_random_crawls_follow_the_rates() -> None:
    web = draw(20_000)
    rate = np.linspace(0.1, 0.3, 40)
    count = np.bincount(crawl_at_random(web, rate, np.random.default_rng(6)), minlength=40)
    expected = rate / np.sum(rate) * 20_000
    assert np.max(np.abs(count - expected) / np.sqrt(expected)) < 4  # of 40 normal deviations


def test_equal_pages_are_crawled_in_turn() -> None:
    web = draw()
    crawled = crawl_greedily(web, linear_value(np.ones(40)))
    np.testing.assert_array_equal(crawled, np.tile(np.arange(40), 50))


def test_each_objective_wins_at_its_own_cost_and_only_freshness_starves() -> None:
    """Means over two webs, crawled 100 times per page: the gaps are several times the spread."""
    webs, rng = [draw(4_000, seed) for seed in (1, 2)], np.random.default_rng(7)
    names = ("greedy, freshness", "greedy, harmonic", "greedy, delay", "LambdaCrawl, Poisson")
    runs = {name: np.mean([judge(web, POLICIES[name](web, rng)) for web in webs], axis=0) for name in names}
    fresh, harmonic, delay, drawn = (dict(zip(MEASURES, runs[name], strict=True)) for name in names)
    assert fresh["freshness"] > harmonic["freshness"]
    assert harmonic["harmonic"] < min(fresh["harmonic"], drawn["harmonic"])
    assert delay["delay"] < harmonic["delay"] < fresh["delay"]
    assert fresh["never crawled"] > 0
    assert harmonic["never crawled"] == delay["never crawled"] == 0


def test_the_harmonic_value_leaves_out_only_pages_whose_interval_exceeds_the_run() -> None:
    """At the common price Λ with Σ 1/ι(Λ) = R every interval is finite, if long for the least important."""
    rng = np.random.default_rng([1, 0])
    web = Web.draw(silent_population(rng, 200, 1), 40.0, 8_000, rng)
    model, change_rate = deaf_model(web.population), web.population.change_rate

    def intervals(log_price: float) -> Floats:
        return HARMONIC.depth_at(np.exp(log_price), model) / change_rate

    log_price = brentq(lambda x: float(np.sum(1.0 / intervals(x))) - web.bandwidth, -10.0, 10.0)
    crawled = np.unique(crawl_greedily(web, value_of(HARMONIC, model)))
    left_out = np.setdiff1d(np.arange(200), crawled)
    assert len(left_out) > 0
    np.testing.assert_array_equal(left_out, np.flatnonzero(intervals(float(log_price)) > web.horizon))


def test_signals_are_heard_and_forgotten_at_a_crawl() -> None:
    """With V = n + a little for elapsed time, the page crawled has the most unheard signals."""
    rng = np.random.default_rng(8)
    web = Web.draw(noisy_population(rng, 30, 3), 6.0, 500, rng)
    crawled = crawl_greedily(web, lambda elapsed, heard: heard + 1e-6 * elapsed)
    last = np.zeros(30)
    for now, page in zip(web.slots.tolist(), crawled.tolist(), strict=True):
        fresh = (web.signals.at <= now) & (web.signals.at > last[web.signals.page])
        count = np.bincount(web.signals.page[fresh], minlength=30)
        assert count[page] == np.max(count)
        last[page] = now


def test_bounds_leave_out_no_winner() -> None:
    """Two ways to the same arg max; single precision of stored models may swap near ties."""
    rng = np.random.default_rng(9)
    web = Web.draw(noisy_population(rng, 25, 3), 5.0, 150, rng)
    brute = crawl_greedily(web, value_of(FRESHNESS, model_of(web.population)))
    np.testing.assert_array_equal(
        np.bincount(crawl_by_book(web), minlength=25), np.bincount(brute, minlength=25)
    )


def test_signals_lower_the_harmonic_cost() -> None:
    rng = np.random.default_rng(10)
    webs = [Web.draw(noisy_population(rng, 40, 3), 8.0, 1_500, rng) for _ in range(2)]
    cost = [
        [judge(web, crawl_for(HARMONIC, listening, web))[MEASURES.index("harmonic")] for web in webs]
        for listening in ("ignored", AS_DEPTH)
    ]
    assert np.mean(cost[1]) < 0.97 * np.mean(cost[0])
