"""How fast LambdaCrawl's optimum is found: one search over a common price against what else there is."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from loadtest.findings import Cell, Findings
from loadtest.lab.averages import mean_and_error, measured
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.lambdacrawl_pages import BANDWIDTH_SHARE, EXTENDED
from loadtest.lab.lambdacrawl_solvers import generic_rates, nested_rates
from service.domain import Floats
from service.policy.rates import harmonic_rates
from service.policy.staleness import Pages, harmonic_cost

Solver = Callable[[Pages, float], Floats]
ONE_SEARCH, GENERIC = "one search", "SLSQP"
MANY = 5  # runs of the fast solver, of which the median counts


def nested_with_our_blind(pages: Pages, bandwidth: float) -> Floats:
    """The nested search with our root finder inside it: what is left is owed to the nesting."""
    return nested_rates(pages, bandwidth, harmonic_rates)


NESTED: dict[str, Solver] = {
    "nested, as printed": nested_rates,
    "nested, our root finder": nested_with_our_blind,
}


def timed(solve: Solver, pages: Pages, runs: int = 1) -> tuple[Floats, float]:
    """Rates and the median CPU seconds to find them: what else the machine does is not counted."""
    seconds = []
    for _ in range(runs):
        started = time.process_time()
        rate = solve(pages, BANDWIDTH_SHARE * pages.size)
        seconds.append(time.process_time() - started)
    return rate, float(np.median(seconds))


def excess_cost(rate: Floats, best: Floats, pages: Pages) -> float:
    """Harmonic cost relative to that of `best`, less 1."""
    found, least = (float(np.sum(harmonic_cost(r, pages))) for r in (rate, best))
    return found / least - 1.0


def run_mixed(effort: Effort) -> Findings:
    """One search for the common multiplier against golden sections over the split."""
    findings = Findings(
        "mixed",
        "Mixed observability: seconds of the nested search ÷ seconds of one search",
        ("pages", "times as long"),
        scales=("log", "log"),
    )
    sizes = (100, 1_000) if effort.short else (100, 1_000, 10_000, 100_000)
    for index, size in enumerate(sizes):
        instances = [EXTENDED.draw(size, effort.rng(index, n)) for n in range(effort.repetitions)]
        findings.rows += [_nested_row(name, solve, instances) for name, solve in NESTED.items()]
        effort.report((index + 1) / len(sizes))
    for name in NESTED:
        rows = [row for row in findings.rows if row["contestant"] == name]
        up, bar = (
            np.array([float(row[key]) for row in rows]) for key in ("times as long", "± times as long")
        )
        findings.curves[name], findings.bars[name] = (np.array(sizes, dtype=np.float64), up), bar
    return findings


def _nested_row(name: str, solve: Solver, instances: list[Pages]) -> dict[str, Cell]:
    ratios, ours_s, costs, apart = [], [], [], []
    for pages in instances:
        best, quick_s = timed(harmonic_rates, pages, MANY)
        rate, slow_s = timed(solve, pages)
        ratios.append(slow_s / quick_s)
        ours_s.append(quick_s)
        costs.append(abs(excess_cost(rate, best, pages)))
        apart.append(float(np.max(np.abs(rate / best - 1.0))))
    return {
        "pages": instances[0].size,
        "contestant": name,
        "one search (ms)": 1e3 * float(np.mean(ours_s)),
        **measured("times as long", ratios),
        "least": min(ratios),
        "most": max(ratios),
        "costs differ": f"{max(costs):.0e}",
        "rates differ": f"{max(apart):.0e}",
    }


def run_scale(effort: Effort) -> Findings:
    """Time over pages: ours to a million, a generic solver as far as it gets."""
    findings = Findings(
        "lambda-scale", "Solving LambdaCrawl", ("pages", "CPU milliseconds"), scales=("log", "log")
    )
    generic_sizes = (10, 30, 100) if effort.short else (10, 30, 100, 300, 1_000)
    our_sizes = (1_000, 10_000) if effort.short else (1_000, 10_000, 100_000, 1_000_000)
    for index, size in enumerate(sorted({*generic_sizes, *our_sizes})):
        repetitions = 1 if size == 1_000 and size in generic_sizes else effort.repetitions
        instances = [EXTENDED.draw(size, effort.rng(index, n)) for n in range(repetitions)]
        findings.rows.append(_scale_row(instances, with_generic=size in generic_sizes))
        effort.report((index + 1) / 8)
    for name in (ONE_SEARCH, GENERIC):
        rows = [row for row in findings.rows if row[f"{name} (ms)"] != "–"]
        at, up, bar = (
            np.array([float(r[k]) for r in rows]) for k in ("pages", f"{name} (ms)", f"± {name} (ms)")
        )
        findings.curves[name], findings.bars[name] = (at, up), np.nan_to_num(bar)
        power = np.polyfit(np.log(at[-3:]), np.log(up[-3:]), 1)[0]
        findings.notes.append(f"{name}: time grows as pages^{power:.2f} over its three largest sizes.")
    return findings


def _scale_row(instances: list[Pages], *, with_generic: bool) -> dict[str, Cell]:
    ours = [timed(harmonic_rates, pages, MANY) for pages in instances]
    row: dict[str, Cell] = {
        "pages": instances[0].size,
        **measured(f"{ONE_SEARCH} (ms)", [1e3 * s for _, s in ours]),
    }
    spent = [abs(float(np.sum(rate)) / (BANDWIDTH_SHARE * len(rate)) - 1.0) for rate, _ in ours]
    row["bandwidth missed"] = f"{max(spent):.0e}"
    if not with_generic:
        return row | dict.fromkeys(
            (f"{GENERIC} (ms)", f"± {GENERIC} (ms)", "times as long", "its cost above ours"), "–"
        )
    theirs = [timed(generic_rates, pages) for pages in instances]
    above = [excess_cost(r, best, p) for (r, _), (best, _), p in zip(theirs, ours, instances, strict=True)]
    ratio = mean_and_error([slow / quick for (_, slow), (_, quick) in zip(theirs, ours, strict=True)])[0]
    row |= measured(f"{GENERIC} (ms)", [1e3 * seconds for _, seconds in theirs])
    return row | {"times as long": ratio, "its cost above ours": f"{max(above):.0e}"}


EXPERIMENTS = (
    Experiment(
        name="mixed",
        paper="LambdaCrawl, Algorithm 3",
        claim="Mixed observability takes a search over the split of bandwidth, Algorithms 1 and 2 inside.",
        run=run_mixed,
        repetitions=10,
        differs="Not an experiment of the paper: at the optimum both kinds of pages share one multiplier, so"
        " one search gives the same rates. The nested search ends at splits 1e-9 of the bandwidth apart.",
    ),
    Experiment(
        name="lambda-scale",
        paper="LambdaCrawl, Propositions 4 and 8",
        claim="Rates are found in nearly linear time, where general convex optimisation could not follow.",
        run=run_scale,
        repetitions=3,
        differs="The paper prints no times. The generic solver is given exact derivatives and logarithms of"
        " rates, the form it solved fastest; at 1,000 pages it runs once.",
    ),
)
