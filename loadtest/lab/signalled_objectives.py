"""Whether signals help the harmonic and delay objectives, whose values were derived without them.

Three ways to take n signals of precision p = 1 − e^(−κ): not at all; as a depth of κ each, which is
what P(fresh) says; as p missed changes each, which is what they mean and what the service does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loadtest.findings import Cell, Findings
from loadtest.lab.averages import mean_and_error, measured
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.slots import Web, crawl_greedily, deaf_model, model_of, value_of
from loadtest.lab.starvation import MEASURES, judge
from loadtest.population import UNIT_S, Population, noisy_population, shared_population
from loadtest.reference import Book
from service.domain import Floats
from service.policy.objectives import DELAY, FRESHNESS, HARMONIC, Objective

SHARE = 0.2  # crawls per unit and page
DEAF, AS_DEPTH, AS_CHANGES = "ignored", "κ of depth", "p missed changes"


def precise_population(rng: np.random.Generator, pages: int, hosts: int) -> Population:
    """Δ, μ ~ U[0, 1], recall ~ Beta(¼, ¼), one signal in a hundred false: one is nearly a proof."""
    importance, change_rate = 1.0 - rng.random(pages), 1.0 - rng.random(pages)
    recall = rng.beta(0.25, 0.25, pages)
    return Population(
        importance, change_rate, recall, recall * change_rate / 99.0, rng.integers(hosts, size=pages)
    )


POPULATIONS: dict[str, Callable[[np.random.Generator, int, int], Population]] = {
    "noisy": noisy_population,
    "shared": shared_population,
    "precise": precise_population,
}
CONTESTANTS: tuple[tuple[Objective, str], ...] = (
    (HARMONIC, DEAF),
    (HARMONIC, AS_DEPTH),
    (HARMONIC, AS_CHANGES),
    (DELAY, DEAF),
    (DELAY, AS_DEPTH),
    (DELAY, AS_CHANGES),
    (FRESHNESS, DEAF),
    (FRESHNESS, AS_DEPTH),
)


def crawl_for(objective: Objective, listening: str, web: Web) -> NDArray[np.int64]:
    """The pages crawled, slot by slot."""
    population = web.population
    if listening == DEAF:
        return crawl_greedily(web, value_of(objective, deaf_model(population)))
    if objective is FRESHNESS:
        return crawl_by_book(web)
    weight = population.precision if listening == AS_CHANGES else None
    return crawl_greedily(web, value_of(objective, model_of(population), weight))


def crawl_by_book(web: Web) -> NDArray[np.int64]:
    """The same arg max of the freshness value, whose sums are dear, by bounds that leave most pages out."""
    book = Book(web.population.model)
    for page in range(web.population.size):
        book.crawl(page, 0.0)
    crawled = np.empty(len(web.slots), dtype=np.int64)
    seen = 0
    for slot, now in enumerate((web.slots * UNIT_S).tolist()):
        while seen < len(web.signals) and web.signals.at[seen] * UNIT_S <= now:
            book.signal(int(web.signals.page[seen]))
            seen += 1
        crawled[slot], _ = book.best(now)
        book.crawl(int(crawled[slot]), now)
    return crawled


def run_signals(effort: Effort) -> Findings:
    """Every objective with and without its ears, on the same webs."""
    findings = Findings(
        "harmonic-signals",
        f"Signals under other objectives, at {SHARE:g} crawls per unit and page",
        ("population: noisy, shared, precise", "own cost relative to ignoring signals"),
    )
    found = np.array([_run_population(index, effort) for index in range(len(POPULATIONS))])
    for place, name in enumerate(POPULATIONS):
        for index, (objective, listening) in enumerate(CONTESTANTS):
            row: dict[str, Cell] = {"population": name, "greedy for": objective.name, "signals": listening}
            for measure, values in zip(MEASURES[:4], found[place, index].T, strict=False):
                row |= measured(measure, values)
            findings.rows.append(row)
    _add_curves(findings, found)
    return findings


def _run_population(place: int, effort: Effort) -> Floats:
    """(contestant, repetition, measure)."""
    size, slots = (20, 100) if effort.short else (200, 6_000)
    draw = list(POPULATIONS.values())[place]
    measures = np.empty((len(CONTESTANTS), effort.repetitions, len(MEASURES)))
    for n in range(effort.repetitions):
        population = draw(effort.rng(place, n), size, 10)
        web = Web.draw(population, SHARE * size, slots, effort.rng(place, n, 1))
        for index, (objective, listening) in enumerate(CONTESTANTS):
            measures[index, n] = judge(web, crawl_for(objective, listening, web))
        effort.report((place + (n + 1) / effort.repetitions) / len(POPULATIONS))
    return measures


def _add_curves(findings: Findings, found: Floats) -> None:
    """The cost each objective is for, relative to ignoring signals; population by population."""
    own = {"harmonic": MEASURES.index("harmonic"), "delay": MEASURES.index("delay")}
    for index, (objective, listening) in enumerate(CONTESTANTS):
        if listening == DEAF or objective.name not in own:
            continue
        measure, deaf = own[objective.name], CONTESTANTS.index((objective, DEAF))
        ratios = found[:, index, :, measure] / found[:, deaf, :, measure]
        means, errors = np.array([mean_and_error(ratio) for ratio in ratios]).T
        name = f"{objective.name}, {listening}"
        findings.curves[name] = np.arange(1.0, len(ratios) + 1), means
        findings.bars[name] = np.nan_to_num(errors)
        listed = (f"{p} {m:.3f} ± {e:.3f}" for p, m, e in zip(POPULATIONS, means, errors, strict=True))
        findings.notes.append(f"Own cost relative to ignoring signals, {name}: {', '.join(listed)}.")


EXPERIMENTS = (
    Experiment(
        name="harmonic-signals",
        paper="beyond LambdaCrawl: noisy signals under its objective",
        claim="The paper knows complete observations or none; here signals are noisy.",
        run=run_signals,
        repetitions=4,
        differs="Not an experiment of the paper: 200 pages in slots of 1/R, 30 crawls per page on average.",
    ),
)
