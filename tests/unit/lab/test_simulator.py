"""The lazy simulator against brute force, pick by pick, and the witness against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.lab.bounds import Bounds
from loadtest.lab.brute_force import BruteForce, Policy
from loadtest.lab.events import NONE, Events, Happenings, known, truth
from loadtest.lab.low_discrepancy import LowDiscrepancy
from loadtest.lab.simulator import Simulator
from loadtest.lab.witness import Witness, unheard
from loadtest.population import Population, noisy_population
from loadtest.schedule import Schedule
from service.domain import Floats, Model
from service.policy.objectives import DELAY, HARMONIC
from service.policy.variants import cis, cis_plus, greedy, truncated


def policies(population: Population) -> dict[str, Policy]:
    model = known(population)
    named = {
        "greedy": Policy("greedy", greedy(model)),
        "cis": Policy("cis", cis(truth(population))),
        "cis+": Policy("cis+", cis_plus(model)),
        "ncis": Policy("ncis", model),
        "ncis, discarding": Policy("ncis, discarding", model, deaf=0.25),
        "cis, discarding": Policy("cis, discarding", cis(truth(population)), deaf=0.25),
    }
    cut = {f"approx-{j}": Policy(f"approx-{j}", model, truncated(j)) for j in (1, 2)}
    others = {o.name: Policy(o.name, model, o) for o in (HARMONIC, DELAY)}
    return named | cut | others


def slots_of(schedule: Schedule) -> Floats:
    return np.array([at for at, rate in schedule.ticks() if rate is None])


@pytest.mark.parametrize("name", policies(noisy_population(np.random.default_rng(0), 2, 1)))
@pytest.mark.parametrize("pages", [60, 12])
def test_the_simulator_picks_what_brute_force_picks(name: str, pages: int) -> None:
    """With delayed signals, bandwidth steps, pages that come up twice in a block and pages given up."""
    rng = np.random.default_rng(7)
    population = noisy_population(rng, pages, 1)
    policy = policies(population)[name]
    given_up = np.inf if np.all(np.isfinite(policy.objective.ceiling(policy.believed))) else 8.0
    depth = np.where(rng.random(pages) < 0.2, given_up, rng.random(pages))
    schedule = Schedule(((0.0, 20.0), (3.0, 60.0), (6.0, 5.0)), 12.0)
    slots = slots_of(schedule)
    fast, plain = Simulator(policy, depth), BruteForce(policy, depth)
    happenings = Happenings(population, rng, lambda rng, n: rng.poisson(6.0, n) / 20.0)
    for begin, end in ((0.0, 5.0), (5.0, 12.0)):
        _, signals = happenings.draw(begin, end)
        part = slots[(slots >= begin) & (slots < end)]
        lazy, brute = fast.advance(part, signals), plain.advance(part, signals)
        assert np.array_equal(lazy.page, brute.page)
        # Told are lower bounds, which are loose only for few pages or far above the price.
        assert np.all(lazy.value <= brute.value * (1 + 1e-6))
        assert np.median(1 - lazy.value / brute.value) < 0.02
    assert len(np.unique(lazy.page)) > 1


def test_a_start_with_nothing_to_gain_is_served_like_brute_force() -> None:
    rng = np.random.default_rng(1)
    policy = Policy("greedy", greedy(known(noisy_population(rng, 40, 1))))
    slots = np.arange(200) / 20.0
    fast, plain = (kind(policy, np.zeros(40)).advance(slots, NONE) for kind in (Simulator, BruteForce))
    assert plain.value[0] == 0.0
    assert np.array_equal(fast.page, plain.page)


@pytest.mark.parametrize("terms", [0, 1, 3])
def test_bounds_hold_and_are_tight(terms: int) -> None:
    rng = np.random.default_rng(2)
    model = known(noisy_population(rng, 300, 1))
    policy = Policy("ncis", model, truncated(terms)) if terms else Policy("ncis", model)
    bounds = Bounds(policy, 0.5, 0.8)
    pages = np.flatnonzero(np.isfinite(bounds.threshold))
    depth = bounds.threshold[pages] * rng.uniform(1.0, 1.5, len(pages)) + 1e-3
    depth[::10] = np.inf
    low, high = bounds.look(depth, pages)
    chosen = Model(*(np.asarray(getattr(model, f))[pages] for f in Model.__slots__))
    value = policy.objective.value(depth, chosen)
    assert np.all(low <= value * (1 + 1e-8))
    assert np.all(high >= value * (1 - 1e-8))
    inside = value < 0.8
    assert inside.sum() > 20
    assert np.median((high - low)[inside] / value[inside]) < 1e-3


def test_a_witness_integrates_freshness_exactly() -> None:
    """One page, α = 1, κ = log 2: crawled at 1, signalled at 2, watched until 3, in any portions."""
    model = Model(np.array([2.0]), np.array([1.0]), np.array([np.log(2.0)]), np.array([1.0]))
    crawls, signals = Events(np.array([1.0]), np.array([0])), Events(np.array([2.0]), np.array([0]))
    e = np.exp(-1.0)
    expected = (1 - e) / np.e**2 + (1 - e) + 0.5 * e * (1 - e)
    whole = Witness(model, np.array([2.0]))
    assert whole.watch(3.0, crawls, signals) * 3 == pytest.approx(expected, rel=1e-12)
    parts = Witness(model, np.array([2.0]))
    total = 1.5 * parts.watch(1.5, crawls, NONE) + 1.5 * parts.watch(3.0, NONE, signals)
    assert total == pytest.approx(expected, rel=1e-12)


def test_expected_and_true_fresh_time_agree() -> None:
    """Random crawls of 200 pages for 200 units: the true fresh time scatters by about 0.3%."""
    rng = np.random.default_rng(3)
    population = noisy_population(rng, 200, 1)
    model = truth(population)
    changes, signals = Happenings(population, rng).draw(0.0, 200.0)
    crawls = Events(np.arange(20000) / 100.0, rng.integers(200, size=20000))
    expected = Witness(model, np.zeros(200)).watch(200.0, crawls, signals)
    true = Witness(unheard(model), np.zeros(200)).watch(200.0, crawls, changes)
    assert expected == pytest.approx(true, rel=0.01)


def test_delayed_signals_are_neither_lost_nor_early() -> None:
    population = noisy_population(np.random.default_rng(5), 50, 1)
    happenings = Happenings(population, np.random.default_rng(6), lambda _, n: np.full(n, 2.5))
    parts = [happenings.draw(begin, begin + 5.0)[1] for begin in (0.0, 5.0, 10.0)]
    assert parts[0].at.min() >= 2.5
    for begin, part in zip((0.0, 5.0, 10.0), parts, strict=True):
        assert np.all((part.at >= begin) & (part.at < begin + 5.0))
    rate = np.sum(truth(population).signal_rate)
    count = sum(len(part.at) for part in parts)
    assert count == pytest.approx(12.5 * rate, abs=5 * np.sqrt(12.5 * rate))


def test_a_low_discrepancy_schedule_keeps_every_count_within_two_of_its_rate() -> None:
    rng = np.random.default_rng(8)
    frequency = rng.random(80)
    frequency[::4] = 0.0
    frequency *= 50.0 / frequency.sum()
    slots = np.arange(20_000) / 50.0
    pages = LowDiscrepancy(frequency, rng).advance(slots, NONE).page
    for stop in (1_000, 7_000, 20_000):
        counts = np.bincount(pages[:stop], minlength=80)
        assert np.all(np.abs(counts - frequency * stop / 50.0) < 2.0)
