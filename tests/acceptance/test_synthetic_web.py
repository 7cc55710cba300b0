"""The promise as a whole: on a synthetic web the service keeps copies about as fresh as possible.

Short runs through the real interface; `freshet simulate` makes the long ones.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loadtest.drive import Plan, simulate
from loadtest.population import UNIT_S, Population, noisy_population
from loadtest.record import Run
from loadtest.reference import Book, note_signals, run_reference
from loadtest.schedule import Schedule, parse_schedule
from loadtest.simulate import main
from loadtest.web import SyntheticWeb
from service.embedded import EmbeddedServer
from service.policy.crawl_value import crawl_value
from service.policy.forecast import optimum


@pytest.fixture
def empty_store(tmp_path: Path) -> Iterator[str]:
    """A server of its own: a run starts from nothing."""
    with EmbeddedServer(tmp_path / "store") as server:
        yield server.url


def alike(pages: int, change_rate: float, recall: float = 0.0, lies: float = 0.0) -> Population:
    """Many pages of one kind, so that the law of large numbers holds within one run."""
    return Population(
        importance=np.ones(pages),
        change_rate=np.full(pages, change_rate),
        recall=np.full(pages, recall),
        false_rate=np.full(pages, lies),
        host=np.zeros(pages, dtype=np.int64),
    )


def noisy_web(pages: int) -> SyntheticWeb:
    population = noisy_population(np.random.default_rng(1), pages, 50)
    return SyntheticWeb(population, np.random.default_rng(2))


# --- the web itself


def test_a_page_never_crawled_is_never_fresh() -> None:
    web = SyntheticWeb(alike(10, 0.5), np.random.default_rng(1))
    web.advance(20.0)
    assert web.fresh_time == 0.0


def test_a_page_crawled_once_is_fresh_for_the_mean_time_to_a_change() -> None:
    """∫ e^(−Δt) dt = 1/Δ, with a standard error of 1/(Δ√pages)."""
    pages = 20_000
    web = SyntheticWeb(alike(pages, 0.5), np.random.default_rng(1))
    for page in range(pages):
        web.crawl(page)
    web.advance(40.0)
    assert web.fresh_time == pytest.approx(2.0, abs=4 * 2.0 / np.sqrt(pages))


def test_a_page_crawled_periodically_is_fresh_as_in_the_closed_form() -> None:
    """(1 − e^(−Δp))/(Δp) at period p."""
    pages, rate, period, cycles = 200, 0.7, 1.5, 100
    web = SyntheticWeb(alike(pages, rate), np.random.default_rng(1))
    for cycle in range(cycles):
        web.advance(cycle * period)
        for page in range(pages):
            web.crawl(page)
    web.advance(cycles * period)
    closed = -np.expm1(-rate * period) / (rate * period)
    error = 0.5 / np.sqrt(pages * cycles)  # a share of a cycle varies by less than ½
    assert web.fresh_time / web.now == pytest.approx(closed, abs=4 * error)


def test_signals_come_at_their_rate_and_speak_the_truth_as_often_as_stated() -> None:
    """γ = λΔ + ν signals per page; a signal's page has surely changed in a share λΔ/γ of cases."""
    pages, span = 500, 40.0
    web = SyntheticWeb(alike(pages, 0.5, recall=0.8, lies=0.2), np.random.default_rng(1))
    heard = web.advance(span)
    expected = (0.8 * 0.5 + 0.2) * pages * span
    assert len(heard) == pytest.approx(expected, abs=4 * np.sqrt(expected))
    assert heard == sorted(heard)
    assert web.population.precision[0] == pytest.approx(2 / 3)


def test_delayed_signals_are_late_but_not_lost() -> None:
    prompt = SyntheticWeb(alike(300, 0.5, 0.8, 0.2), np.random.default_rng(1))
    late = SyntheticWeb(alike(300, 0.5, 0.8, 0.2), np.random.default_rng(1), signal_delay=2.0)
    first_prompt, first_late = len(prompt.advance(10.0)), len(late.advance(10.0))
    missing = 300 * 0.6 * 2.0 * -np.expm1(-10.0 / 2.0)
    assert first_late == pytest.approx(first_prompt - missing, rel=0.15)
    assert len(late.advance(200.0)) + first_late == pytest.approx(200 * 300 * 0.6, rel=0.05)


def test_what_happens_does_not_depend_on_the_steps_time_is_advanced_by() -> None:
    small, large = noisy_web(50), noisy_web(50)
    heard = [signal for step in range(1, 501) for signal in small.advance(step / 50)]
    assert heard == large.advance(10.0)


# --- the yardstick


def test_lazy_arg_max_finds_what_brute_force_finds() -> None:
    web = noisy_web(200)
    book = Book(web.population.model)
    for slot in range(800):
        at = slot / 100
        note_signals(book, web.advance(at))
        page, value = book.best(at * UNIT_S)
        if not np.isnan(value) and slot % 10 == 0:
            values = crawl_value(book.depth(at * UNIT_S), book.model)
            assert page == int(np.argmax(values))
            assert value == pytest.approx(float(values.max()), rel=1e-12)
        web.crawl(page)
        book.crawl(page, at * UNIT_S)


def test_slots_keep_their_spacing_through_a_turn_of_the_dial() -> None:
    """What had passed of a slot is carried over in proportion."""
    ticks = list(parse_schedule(2.0, "1.25:4", 2.0).ticks())
    assert ticks[0] == (0.0, 2.0)
    assert (1.25, 4.0) in ticks
    slots = [at for at, rate in ticks if rate is None]
    assert slots == pytest.approx([0.0, 0.5, 1.0, 1.375, 1.625, 1.875])


# --- the service


@pytest.fixture(scope="module", params=[0.0, 1.0], ids=["hosts never rest", "hosts rest"])
def steady(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, float]:
    """(ours, optimum) for 300 pages at 100 crawls per unit."""
    schedule = Schedule(((0.0, 100.0),), 40.0)
    plan = Plan(schedule, judge_from=15.0, sweep_every=0.5, min_delay_s=request.param)
    with EmbeddedServer(tmp_path_factory.mktemp("steady")) as server:
        ours = asyncio.run(simulate(server.url, noisy_web(300), plan))
    best = optimum(noisy_web(300).population.model, 100.0 / UNIT_S).freshness
    return ours, best


def test_copies_are_nearly_as_fresh_as_any_policy_could_keep_them(
    steady: tuple[Run, float],
) -> None:
    ours, best = steady
    assert ours.freshness(15.0, 39.9) / best >= 0.985


def test_what_is_served_is_nearly_the_most_valuable_page(steady: tuple[Run, float]) -> None:
    picks = steady[0].qualities(15.0, 40.0)
    assert len(picks) >= 2000
    assert np.median(picks) >= 0.999
    assert np.percentile(picks, 1) >= 0.98


def test_hosts_that_politeness_holds_back_serve_their_best_pages(empty_store: str) -> None:
    """Three hosts that may give 130 pages per unit together are asked for 100."""
    population = noisy_population(np.random.default_rng(1), 100, 3)
    plan = Plan(Schedule(((0.0, 100.0),), 30.0), judge_every=0, sweep_every=0.5, min_delay_s=2000.0)
    ours = asyncio.run(simulate(empty_store, SyntheticWeb(population, np.random.default_rng(2)), plan))
    assert ours.freshness(10.0, 29.9) / optimum(population.model, 100.0 / UNIT_S).freshness >= 0.97


def test_freshness_follows_the_bandwidth(empty_store: str) -> None:
    """100 → 25 → 100 crawls per unit: soon after each step as fresh as by the exact policy."""
    schedule = parse_schedule(100.0, "10:25,16:100", 24.0)
    plan = Plan(schedule, judge_every=0, sweep_every=0.5)
    ours = asyncio.run(simulate(empty_store, noisy_web(100), plan))
    exact = run_reference(noisy_web(100), schedule)
    for begin, end in ((12.0, 16.0), (18.0, 23.9)):
        assert ours.freshness(begin, end) / exact.freshness(begin, end) >= 0.98


def test_the_command_writes_a_table_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--pages", "20", "--time", "18", "--bandwidth", "20", "--steps", "11:30"]
    assert main([*small, "--seed", "3", "--out", str(tmp_path)]) == 0
    assert "exact arg max" in capsys.readouterr().out
    assert (tmp_path / "freshness.png").stat().st_size > 1000
    assert len((tmp_path / "freshet-seed-3.csv").read_text().splitlines()) > 300


def test_shards_of_unequal_hosts_cost_no_freshness(tmp_path: Path) -> None:
    """Hosts of Zipf sizes and rates: one shard of sixteen has several times its share of pages."""
    options = ["--pages", "200", "--hosts", "12", "--bandwidth", "30", "--time", "40", "--window", "5"]
    assert main(["skew", *options, "--out", str(tmp_path)]) == 0
    with (tmp_path / "skew.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["largest shard"]) > 2 / 16
    assert float(row["16 shards ÷ 1"]) >= 0.985
