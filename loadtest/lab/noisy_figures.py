"""Noisy change signals: the figures that compare policies by freshness, 2 to 4, 8 and 9."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from loadtest.findings import Cell, Findings
from loadtest.lab.contest import Contest, Crawler, Start, bests, settled, steady
from loadtest.lab.events import known, truth
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.low_discrepancy import LowDiscrepancy
from loadtest.lab.tally import Tally
from loadtest.population import Population, noisy_population, silent_population
from loadtest.schedule import Schedule
from service.policy.forecast import optimum
from service.policy.variants import cis, greedy, truncated

PAPER = "Noisy change signals"
R = 100.0
SIZES = (100, 200, 500, 750, 1_000, 10_000)
# BASELINE where the text of the figures can be read.
BASELINE = {100: 0.83, 500: 0.507, 1_000: 0.366, 10_000: 0.117}
WARM, END = 100.0, 300.0
Crawlers = dict[str, Crawler]
Cast = Callable[[Population, Start, np.random.Generator], Crawlers]


def true_signals(rng: np.random.Generator, pages: int, hosts: int) -> Population:
    """Δ, μ ~ U[0, 1], λ ~ Beta(¼, ¼) and no false signals: section 6.5."""
    return replace(noisy_population(rng, pages, hosts), false_rate=np.zeros(pages))


def deaf_cast(population: Population, start: Start, rng: np.random.Generator) -> Crawlers:
    model = greedy(truth(population))
    lds = LowDiscrepancy(optimum(model, R).frequency, rng)
    return {"GREEDY": start.simulate(model), "LDS": lds}


def true_cast(population: Population, start: Start, _: np.random.Generator) -> Crawlers:
    model = truth(population)
    return {"GREEDY": start.simulate(greedy(model)), "GREEDY-CIS": start.simulate(cis(model))}


def noisy_cast(population: Population, start: Start, rng: np.random.Generator) -> Crawlers:
    model = known(population)
    return true_cast(population, start, rng) | {
        "GREEDY-NCIS": start.simulate(model),
        "G-NCIS-APPROX-1": start.simulate(model, truncated(1)),
        "G-NCIS-APPROX-2": start.simulate(model, truncated(2)),
    }


def delayed_cast(population: Population, start: Start, _: np.random.Generator) -> Crawlers:
    model = known(population)
    return {"GREEDY-NCIS": start.simulate(model), "GREEDY-NCIS-D": start.simulate(model, deaf=5.0 / R)}


def by_size(
    name: str,
    title: str,
    draw: Callable[[np.random.Generator, int, int], Population],
    cast: Cast,
    contest: Contest,
) -> Callable[[Effort], Findings]:
    """Freshness of each policy against the number of pages, at R = 100."""

    def run(effort: Effort) -> Findings:
        sizes = (100, 300) if effort.short else SIZES
        length = steady(R, warm=10.0, end=20.0, delay=contest.delay) if effort.short else contest
        tally = Tally()
        for repetition in range(effort.repetitions):
            for at, pages in enumerate(sizes):
                rng = effort.rng(pages, repetition)
                population = draw(rng, pages, 1)
                start = settled(population, R, rng)
                runs = length.run(population, start, cast(population, start, rng), rng)
                deaf, best = bests(population, R)
                tally.add(pages, {"BASELINE": deaf, "optimum": best})
                tally.add(pages, {policy: each.freshness for policy, each in runs.items()})
                effort.report((repetition + (at + 1) / len(sizes)) / effort.repetitions)
        return _findings(name, title, tally)

    return run


def _findings(name: str, title: str, tally: Tally) -> Findings:
    findings = Findings(name, title, ("pages", "freshness"), scales=("log", "linear"))
    for pages, policy, mean, error in tally.cells():
        share, share_error = tally.ratio(pages, policy, "optimum")
        row: dict[str, Cell] = {"pages": int(pages), "policy": policy, "freshness": mean, "±": error}
        row |= {"÷ optimum": share, "± of that": share_error}
        row["paper"] = BASELINE.get(int(pages), "") if policy == "BASELINE" else ""
        findings.rows.append(row)
    findings.curves, findings.bars = tally.curves()
    return findings


def run_steps(effort: Effort) -> Findings:
    """Figure 9: bandwidth 100, then 150, then 100 again; nothing is recomputed."""
    steps = (10.0, 20.0, 30.0) if effort.short else (150.0, 250.0, 400.0)
    schedule = Schedule(((0.0, R), (steps[0], 1.5 * R), (steps[1], R)), steps[2])
    contest = Contest(schedule, warm=0.0, span=2.0 if effort.short else 10.0)
    tally = Tally()
    for repetition in range(effort.repetitions):
        rng = effort.rng(repetition)
        population = silent_population(rng, 200 if effort.short else 1_000, 1)
        start = settled(population, R, rng)
        crawlers: Crawlers = {"GREEDY": start.simulate(greedy(truth(population)))}
        run = contest.run(population, start, crawlers, rng)["GREEDY"]
        levels = {rate: bests(population, rate)[0] for rate in (R, 1.5 * R)}
        for end, fresh in zip(run.at.tolist(), run.by_span.tolist(), strict=True):
            between = steps[0] < end <= steps[1]
            tally.add(end, {"GREEDY": fresh, "BASELINE at this bandwidth": levels[1.5 * R if between else R]})
        effort.report((repetition + 1) / effort.repetitions)
    findings = Findings("fig9", "Bandwidth 100, 150, 100", ("time", "freshness"), marks=list(steps[:2]))
    findings.rows = [
        {"until": end, "policy": policy, "freshness": mean, "±": error}
        for end, policy, mean, error in tally.cells()
    ]
    findings.curves, findings.bars = tally.curves()
    return findings


LONG = steady(R, warm=WARM, end=END)
DELAYED = steady(R, warm=20.0, end=END, delay=lambda rng, n: rng.poisson(6.0, n) / R)
DIFFERS = (
    "Ours is the long run: 200 units after a warm-up of 100 from near the long run, instead of 1,000 "
    "from the start; freshness is the share of time, not of drawn requests. "
)

EXPERIMENTS = (
    Experiment(
        "fig2",
        f"{PAPER}, figure 2",
        "Without signals, picking the largest value (GREEDY) is on par with a low-discrepancy schedule of "
        "the optimal rates (LDS) and with the continuous optimum (BASELINE), at every number of pages.",
        by_size("fig2", "Policies without signals", silent_population, deaf_cast, LONG),
        repetitions=10,
        differs=DIFFERS + "LDS is earliest deadline first on the optimal rates.",
    ),
    Experiment(
        "fig3",
        f"{PAPER}, figure 3",
        "Signals that miss some changes but never lie make GREEDY-CIS clearly better than GREEDY.",
        by_size("fig3", "Signals that never lie", true_signals, true_cast, LONG),
        repetitions=5,
        differs=DIFFERS,
    ),
    Experiment(
        "fig4",
        f"{PAPER}, figure 4",
        "With false signals too, GREEDY-NCIS is best; its cuts to one or two terms keep up only while "
        "bandwidth is ample, and believing every signal (GREEDY-CIS) gets worse the more pages there are.",
        by_size("fig4", "Signals that miss and lie", noisy_population, noisy_cast, LONG),
        repetitions=4,
        differs=DIFFERS + "Signals of precision below 1% are not listened to, as in the service.",
    ),
    Experiment(
        "fig8",
        f"{PAPER}, figure 8",
        "Delayed signals hurt GREEDY-NCIS when bandwidth is ample; discarding those heard within 5/R of a "
        "crawl (GREEDY-NCIS-D) almost repairs it at 100 pages.",
        by_size("fig8", "Signals delayed by Poisson(6)/R", noisy_population, delayed_cast, DELAYED),
        repetitions=4,
        differs=DIFFERS
        + "The paper leaves the unit of the delay open; we read slots of 1/R. Freshness is true fresh time. "
        "Discarding then regains a small part of the loss at 100 pages, not almost all of it.",
    ),
    Experiment(
        "fig9",
        f"{PAPER}, figure 9",
        "When bandwidth changes, GREEDY moves to the new optimum by itself.",
        run_steps,
        repetitions=10,
        differs="Freshness per 10 units instead of over the last 1,000 crawls.",
    ),
)
