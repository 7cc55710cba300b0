"""Per-host limits added to the comparison of policies: what is lost when hosts must rest after a crawl."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from loadtest.findings import Cell, Findings
from loadtest.lab.averages import means_and_errors, measured
from loadtest.lab.contest import Contest, Crawler, Start, settled, steady
from loadtest.lab.events import Pages, known, truth
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.noisy_figures import PAPER
from loadtest.lab.rests import Demand, Polite, Tabulated, Value
from loadtest.population import Population, noisy_population
from service.domain import Floats, Model
from service.policy.forecast import optimum
from service.policy.variants import cis, greedy

PAGES_PER_CRAWL = 5  # pages ÷ bandwidth, as with 500 pages in the paper's figures
EQUAL, SKEWED = "equal", "Zipf"
EXPONENTS = {EQUAL: 0.0, SKEWED: 1.0}  # of the sizes of hosts, 1/k^exponent
NCIS, AWARE, BOUND = "GREEDY-NCIS", "LDS, rates within limits", "optimum within limits"

Ranking = tuple[Model, Value]  # what is believed of the pages, and their values


@dataclass(frozen=True, slots=True)
class Size:
    """How large a web, and for how long."""

    pages: int
    hosts: int
    rests: tuple[int, ...]  # in slots; the first is no limit at all
    warm: float
    end: float

    @property
    def bandwidth(self) -> float:
        return self.pages / PAGES_PER_CRAWL

    @property
    def contest(self) -> Contest:
        return steady(self.bandwidth, warm=self.warm, end=self.end)


FULL = Size(250, 20, (1, 4, 10, 20, 40), warm=30.0, end=110.0)
SHORT = Size(50, 5, (1, 5, 10), warm=10.0, end=30.0)


def spread(pages: int, hosts: int, exponent: float) -> Pages:
    """The host of each page, the k-th having a share of the pages ∝ 1/k^exponent."""
    upto = np.cumsum(np.arange(1.0, hosts + 1) ** -exponent)
    return np.searchsorted(upto / upto[-1], (np.arange(pages) + 0.5) / pages)


def linear(rate: Floats) -> Ranking:
    """V = ρι: depth that grows by ρ per unit, and is the value."""
    nothing = np.zeros_like(rate)
    return Model(nothing, rate, nothing, nothing), lambda depth: depth


def rankings(population: Population, bandwidth: float) -> dict[str, Ranking]:
    """The policies that know nothing of limits."""
    true = truth(population)
    models = {NCIS: known(population), "GREEDY-CIS": cis(true), "GREEDY": greedy(true)}
    found: dict[str, Ranking] = {name: (model, Tabulated(model)) for name, model in models.items()}
    rates = optimum(greedy(true), bandwidth).frequency
    return found | {"LDS": linear(rates), "uniform": linear(np.ones(population.size))}


@dataclass(frozen=True)
class Trial:
    """One web, crawled by every policy under every limit."""

    size: Size
    population: Population
    start: Start
    rankings: dict[str, Ranking]
    deaf: Demand  # without signals
    heard: Demand

    @classmethod
    def draw(cls, size: Size, exponent: float, rng: np.random.Generator) -> Trial:
        host = spread(size.pages, size.hosts, exponent)
        population = replace(noisy_population(rng, size.pages, 1), host=host)
        start = settled(population, size.bandwidth, rng)
        demands = (Demand(model, host) for model in (greedy(truth(population)), known(population)))
        return cls(size, population, start, rankings(population, size.bandwidth), *demands)

    def run(self, rest: int, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
        """(freshness, share of slots lost) of every policy, and of what bounds them."""
        host, bandwidth = self.population.host, self.size.bandwidth
        cap = bandwidth / rest
        rates, _ = self.deaf.optimum(bandwidth, cap)
        cast = self.rankings | {AWARE: linear(rates)}
        crawlers: dict[str, Crawler] = {
            name: Polite(model, value, self.start.depth(model), host, 1.0 / cap)
            for name, (model, value) in cast.items()
        }
        runs = self.size.contest.run(self.population, self.start, crawlers, rng)
        slots = bandwidth * (self.size.end - self.size.warm)
        found = {name: (run.freshness, _lost(run.crawls.sum() / slots)) for name, run in runs.items()}
        frequency, best = self.heard.optimum(bandwidth, cap)
        return found | {BOUND: (best, _lost(frequency.sum() / bandwidth))}


def _lost(used: float) -> float:
    """What is left of all slots; rounding errors are not."""
    return max(0.0, round(1.0 - float(used), 9))


def run_politeness(effort: Effort) -> Findings:
    """Rests from none to twice as many slots as there are hosts, on equal and on skewed hosts."""
    size = SHORT if effort.short else FULL
    findings = Findings(
        "politeness",
        f"{size.pages} pages on {size.hosts} hosts that rest after a crawl",
        (f"largest share of bandwidth a host can get ({SKEWED} hosts)", f"freshness ÷ {NCIS} without rests"),
        scales=("log", "linear"),
    )
    for index, hosts in enumerate(EXPONENTS):
        trials = []
        for repetition in range(effort.repetitions):
            trial = Trial.draw(size, EXPONENTS[hosts], effort.rng(index, repetition))
            signals = (effort.rng(index, repetition, 1) for _ in size.rests)  # the same under every limit
            trials.append([trial.run(rest, rng) for rest, rng in zip(size.rests, signals, strict=True)])
            effort.report((index + (repetition + 1) / effort.repetitions) / len(EXPONENTS))
        found = {name: np.array([[run[name] for run in runs] for runs in trials]) for name in trials[0][0]}
        findings.rows += _rows(hosts, size, found)
        largest = np.bincount(trial.population.host)[0] / size.pages
        findings.notes.append(f"{hosts} hosts: the largest has {largest:.0%} of the pages.")
    _draw(findings, size, found)
    return findings


def _rows(hosts: str, size: Size, found: dict[str, Floats]) -> list[dict[str, Cell]]:
    """One kind of hosts; what was found is repetition × rest × (freshness, slots lost)."""
    rows = []
    for at, rest in enumerate(size.rests):
        for policy, scores in found.items():
            fresh, lost = scores[:, at].T
            row: dict[str, Cell] = {"hosts": hosts, "rest, slots": rest, "host's share": 1.0 / rest}
            row |= {"policy": policy} | measured("freshness", fresh)
            row |= measured("÷ itself without rests", fresh / scores[:, 0, 0])
            row |= measured("÷ NCIS without rests", fresh / found[NCIS][:, 0, 0])
            row |= measured("÷ optimum", fresh / found[BOUND][:, at, 0])
            rows.append(row | {"slots lost": float(np.mean(lost))})
    return rows


def _draw(findings: Findings, size: Size, found: dict[str, Floats]) -> None:
    shares = 1.0 / np.array(size.rests)
    for policy, scores in found.items():
        means, errors = means_and_errors(scores[:, :, 0] / found[NCIS][:, :1, 0])
        findings.curves[policy], findings.bars[policy] = (shares, means), errors


EXPERIMENTS = (
    Experiment(
        "politeness",
        f"beyond {PAPER.lower()}: hosts that rest after a crawl",
        "Picking the page of largest value among the hosts awake stays close to the best that limits per host"
        " allow, with nothing recomputed; rates solved without the limits do not.",
        run_politeness,
        repetitions=4,
        differs="The paper leaves limits per host out. Values are read from a table. The optimum bounds how"
        " often a host is crawled but not how evenly, so no policy can quite reach it.",
    ),
)
