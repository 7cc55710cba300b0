"""Noisy change signals at scale: pages in shards, and how much faster lazy evaluation is."""

from __future__ import annotations

import time

import numpy as np

from loadtest.findings import Findings
from loadtest.lab.averages import mean_and_error
from loadtest.lab.brute_force import BruteForce, Policy
from loadtest.lab.contest import Contest, Crawler, settled, steady
from loadtest.lab.events import Events, Happenings, Pages, known
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.noisy_figures import PAPER, R
from loadtest.lab.shards import Shards
from loadtest.lab.simulator import Simulator
from loadtest.lab.tally import Tally
from loadtest.population import noisy_population

SHARDS = 16
EXPONENT = 0.1  # of (shard price ÷ mean price)


def run_shards(effort: Effort) -> Findings:
    """Section 5.2: N shards, 1/N of the bandwidth each; and shares that follow the prices."""
    pages, shards = (100, 2) if effort.short else (1_000, SHARDS)
    contest: Contest = steady(R, warm=10.0, end=30.0) if effort.short else steady(R, warm=100.0, end=300.0)
    tally = Tally()
    for repetition in range(effort.repetitions):
        rng = effort.rng(repetition)
        population = noisy_population(rng, pages, 1)
        start, model = settled(population, R, rng), known(population)
        policy, depth = Policy("ncis", model), start.depth(model)
        crawlers: dict[str, Crawler] = {"one shard": Simulator(policy, depth)}
        for name, shard in _spreads(rng, pages, shards).items():
            crawlers[f"{name}, equal shares"] = Shards(policy, depth, shard, rng)
            crawlers[f"{name}, shares by price"] = Shards(policy, depth, shard, rng, EXPONENT)
        runs = contest.run(population, start, crawlers, rng)
        tally.add(shards, {name: run.freshness for name, run in runs.items()})
        effort.report((repetition + 1) / effort.repetitions)
    findings = Findings("shards", f"{pages} pages in {shards} shards", ("shards", "freshness"))
    for _, name, mean, error in tally.cells():
        share, share_error = tally.ratio(shards, name, "one shard")
        findings.rows.append(
            {"pages": name, "freshness": mean, "±": error, "÷ one shard": share, "± of that": share_error}
        )
    return findings


def _spreads(rng: np.random.Generator, pages: int, shards: int) -> dict[str, Pages]:
    """Pages dealt out at random, and as if a few hosts had most of them (1, ½, ⅓ …)."""
    weight = 1.0 / np.arange(1, shards + 1)
    skewed = rng.choice(shards, pages, p=weight / weight.sum())
    skewed[:shards] = np.arange(shards)  # no shard is empty
    return {"spread at random": rng.permutation(np.arange(pages) % shards), "skewed": skewed}


def run_speed(effort: Effort) -> Findings:
    """CPU time per slot of the lazy simulator and of brute force, on the same web."""
    pages, end, slots = (1_000, 20.0, 10) if effort.short else (10_000, 1_000.0, 25)
    findings = Findings("speed", f"CPU time per slot, {pages} pages", ("repetition", "times as fast"))
    ratios = []
    for repetition in range(effort.repetitions):
        rng = effort.rng(repetition)
        population = noisy_population(rng, pages, 1)
        model = known(population)
        policy, depth = Policy("ncis", model), settled(population, R, rng).depth(model)
        lazy_s, fast = _time_lazy(Simulator(policy, depth), Happenings(population, rng), end)
        plain = BruteForce(policy, depth)
        plain.base = fast.base.copy()  # the same pages in the same state, long after the start
        _, signals = Happenings(population, rng).draw(end, end + slots / R)
        began = time.process_time()
        plain.advance(end + np.arange(slots) / R, signals)
        brute_s = (time.process_time() - began) / slots
        ratios.append(brute_s / lazy_s)
        findings.rows.append(
            {
                "slots": round(end * R),
                "lazy, µs": 1e6 * lazy_s,
                "brute force, µs": 1e6 * brute_s,
                "ratio": ratios[-1],
            }
        )
        effort.report((repetition + 1) / effort.repetitions)
    mean, error = mean_and_error(ratios)
    findings.notes.append(f"{mean:.0f} ± {error:.0f} times as fast; brute force was timed on {slots} slots.")
    findings.curves["lazy against brute force"] = (np.arange(1.0, len(ratios) + 1), np.array(ratios))
    return findings


def _time_lazy(fast: Simulator, happenings: Happenings, end: float) -> tuple[float, Simulator]:
    """Seconds of CPU per slot, drawing the web not counted."""
    spent = 0.0
    for begin in np.arange(0.0, end, 10.0).tolist():
        signals: Events = happenings.draw(begin, begin + 10.0)[1]
        began = time.process_time()
        fast.advance(begin + np.arange(10 * R) / R, signals)
        spent += time.process_time() - began
    return spent / (end * R), fast


EXPERIMENTS = (
    Experiment(
        "shards",
        f"{PAPER}, section 5.2",
        "Pages can be split into N shards that crawl independently with 1/N of the bandwidth each.",
        run_shards,
        repetitions=5,
        differs="The paper reports no figures for it. Shares that follow the shards' prices are ours.",
    ),
    Experiment(
        "speed",
        f"{PAPER}, section 5.1",
        "Most values need not be computed at every step, as the price tells when a page may come up.",
        run_speed,
        repetitions=3,
        differs="The paper sketches the idea only. Ours picks exactly what brute force picks.",
    ),
)
