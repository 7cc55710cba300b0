"""Beyond LambdaCrawl: its objective as a crawl value, with no rates to solve for and no page starved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loadtest.findings import Cell, Findings
from loadtest.lab.averages import mean_and_error, measured
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.slots import Web, crawl_at_random, crawl_greedily, deaf_model, linear_value, value_of
from loadtest.population import Population, silent_population
from service.domain import Floats
from service.policy.objectives import DELAY, FRESHNESS, HARMONIC, Objective
from service.policy.rates import (
    binary_rates,
    harmonic_rates,
    importance_rates,
    proportional_rates,
    uniform_rates,
)
from service.policy.staleness import Pages

Crawl = Callable[[Web, np.random.Generator], NDArray[np.int64]]
Solver = Callable[[Pages, float], Floats]
GREEDY = "greedy, freshness"
SHARES = (0.05, 0.2, 0.8)  # crawls per unit and page
SHOWN = 0.2
SETTLED = 0.3  # share of a run that is not counted


def pages_of(population: Population) -> Pages:
    return Pages(population.importance, population.change_rate, np.zeros(population.size, dtype=bool))


def by_rates(solve: Solver) -> Crawl:
    """V = ρι."""
    return lambda web, _: crawl_greedily(web, linear_value(solve(pages_of(web.population), web.bandwidth)))


def by_value(objective: Objective) -> Crawl:
    return lambda web, _: crawl_greedily(web, value_of(objective, deaf_model(web.population)))


def by_poisson(solve: Solver) -> Crawl:
    return lambda web, rng: crawl_at_random(web, solve(pages_of(web.population), web.bandwidth), rng)


POLICIES: dict[str, Crawl] = {
    GREEDY: by_value(FRESHNESS),
    "greedy, harmonic": by_value(HARMONIC),
    "greedy, delay": by_value(DELAY),
    "LambdaCrawl, V = ρι": by_rates(harmonic_rates),
    "LambdaCrawl, Poisson": by_poisson(harmonic_rates),
    "BLC, V = ρι": by_rates(binary_rates),
    "uniform": by_rates(uniform_rates),
    "change rate": by_rates(proportional_rates),
    "importance": by_rates(importance_rates),
}
MEASURES = ("freshness", "harmonic", "delay", "never crawled", "oldest copy")


def judge(web: Web, crawled: NDArray[np.int64]) -> Floats:
    """The measures: means weighted by importance; of all pages, the share without a crawl; in units."""
    found = web.judge(crawled, SETTLED * web.horizon)
    weight = web.population.importance / np.sum(web.population.importance)
    last = np.zeros(web.population.size)
    last[crawled] = web.slots  # of repeated pages the last slot stays
    costs = [float(np.dot(weight, cost)) for cost in (found.binary, found.harmonic, found.delay)]
    return np.array([1.0 - costs[0], *costs[1:], np.mean(last == 0), web.horizon - np.min(last)])


def run_starvation(effort: Effort) -> Findings:
    """Every policy on the same webs; in the plot, the freshness each gives up, over bandwidth."""
    findings = Findings(
        "starvation",
        f"Costs per unit of importance at {SHOWN:g} crawls per unit and page",
        ("crawls per unit and page", f"freshness relative to {GREEDY}"),
        scales=("log", "linear"),
    )
    shares = (SHOWN,) if effort.short else SHARES
    found = {share: _run_share(share, effort) for share in shares}  # (policy, repetition, measure)
    for index, name in enumerate(POLICIES):
        row: dict[str, Cell] = {"policy": name}
        for measure, values in zip(MEASURES, found[SHOWN][index].T, strict=True):
            row |= measured(measure, values)
        findings.rows.append(row)
        ratios = [mean_and_error(found[share][index, :, 0] / found[share][0, :, 0]) for share in shares]
        means, errors = np.array(ratios).T
        findings.curves[name], findings.bars[name] = (np.array(shares), means), np.nan_to_num(errors)
    for share in shares:
        findings.notes.append(_price_of_no_starvation(share, found[share]))
    return findings


def _run_share(share: float, effort: Effort) -> Floats:
    size, slots = (50, 1_000) if effort.short else (200, 12_000)
    measures = np.empty((len(POLICIES), effort.repetitions, len(MEASURES)))
    for n in range(effort.repetitions):
        population = silent_population(effort.rng(n), size, 1)
        web = Web.draw(population, share * size, slots, effort.rng(n, round(1e3 * share)))
        for index, crawl in enumerate(POLICIES.values()):
            measures[index, n] = judge(web, crawl(web, effort.rng(n, index)))
        done = SHARES.index(share) + (n + 1) / effort.repetitions
        effort.report(min(1.0, done / len(SHARES)))
    return measures


def _price_of_no_starvation(share: float, found: Floats) -> str:
    names = list(POLICIES)
    best = found[0, :, 0]
    parts = []
    for name in ("greedy, harmonic", "greedy, delay", "LambdaCrawl, V = ρι", "LambdaCrawl, Poisson"):
        mean, error = mean_and_error(1.0 - found[names.index(name), :, 0] / best)
        parts.append(f"{name} {mean:.1%} ± {error:.1%}")
    starved = np.mean(found[0, :, MEASURES.index("never crawled")])
    return f"Freshness given up at {share:g}: {', '.join(parts)}; {GREEDY} never crawls {starved:.0%}."


EXPERIMENTS = (
    Experiment(
        name="starvation",
        paper="beyond LambdaCrawl: its objective as a greedy crawl value",
        claim="Least harmonic cost keeps every page crawled; the freshest policy never crawls some.",
        run=run_starvation,
        repetitions=6,
        differs="Not an experiment of the paper: 200 pages with Δ, μ ~ U[0, 1] in slots of 1/R, 60 crawls"
        " per page on average. Costs of starved pages grow for ever, so that theirs are those of this run."
        " A page of little importance may have an interval longer than the run without being starved.",
    ),
)
