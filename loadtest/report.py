"""Tables and plots of simulated runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from loadtest.population import UNIT_S, Population
from loadtest.record import Run, recovery
from loadtest.schedule import Schedule
from service.domain import Floats
from service.policy.forecast import optimum

TOLERANCE = 0.01  # how near the optimum counts as recovered
EXACT, OURS = "exact arg max", "freshet"


@dataclass(frozen=True, slots=True)
class Result:
    """Both runs on one web."""

    population: Population
    schedule: Schedule
    warm_up: float
    runs: dict[str, Run]

    def stages(self) -> list[tuple[float, float, float]]:
        """(begin, end, bandwidth) between the steps, the warm-up left out."""
        begins = [self.warm_up, *(at for at, _ in self.schedule.steps[1:])]
        ends = [*begins[1:], self.schedule.end]
        rates = [rate for _, rate in self.schedule.steps]
        return list(zip(begins, ends, rates, strict=True))

    def optimum(self, rate: float) -> float:
        return optimum(self.population.model, rate / UNIT_S).freshness


def freshness_table(results: list[Result]) -> Table:
    table = Table(title="Freshness: chance that a request finds a fresh copy")
    for name in ("stage", "policy", "freshness", "optimum", "ratio", "±"):
        table.add_column(name, justify="right" if name not in ("stage", "policy") else "left")
    for name in ("pick median", "pick 1%", "crawls/s"):
        table.add_column(name, justify="right")
    for number, (begin, end, rate) in enumerate(results[0].stages()):
        for policy in (OURS, EXACT):
            stage = f"{begin:g}–{end:g} at {rate:g}"
            table.add_row(stage, policy, *_figures(results, policy, number))
    return table


def _figures(results: list[Result], policy: str, stage: int) -> list[str]:
    """Means over the webs; the error is from the webs if there are several, else from batches."""
    begin, end, rate = results[0].stages()[stage]
    best = np.array([result.optimum(rate) for result in results])
    runs = [result.runs[policy] for result in results]
    fresh = np.array([run.freshness(begin, end) for run in runs])
    sample = fresh / best if len(runs) > 1 else runs[0].batches(begin, end) / best[0]
    error = float(np.std(sample, ddof=1) / np.sqrt(len(sample)))
    picks = np.concatenate([run.qualities(begin, end) for run in runs])
    quality = ["", ""]
    if policy == OURS and len(picks):
        quality = [f"{q:.4f}" for q in np.percentile(picks, [50, 1])]
    speed = sum(len(run.at) for run in runs) / sum(run.wall_s for run in runs)
    figures = [f"{fresh.mean():.4f}", f"{best.mean():.4f}", f"{(fresh / best).mean():.4f}"]
    return [*figures, f"{error:.4f}", *quality, f"{speed:.0f}"]


def step_table(results: list[Result], window: float) -> Table:
    title = f"After a step: units until freshness (mean of {window:g} units) is within 1% of the optimum"
    table = Table("step", OURS, EXACT, title=title)
    for number, (begin, end, rate) in enumerate(results[0].stages()[1:], 1):
        before = results[0].stages()[number - 1][2]
        cells = [_recovered(results, policy, begin, end, rate, window) for policy in (OURS, EXACT)]
        table.add_row(f"{before:g} → {rate:g} at {begin:g}", *cells)
    return table


def _recovered(
    results: list[Result], policy: str, begin: float, end: float, rate: float, window: float
) -> str:
    """Falling freshness counts as recovered once it is no longer above either."""
    at = np.arange(begin + window / 2, end - window / 2, 0.25)
    ratio = relative_freshness(results, policy, at, rate, window)
    taken = recovery(1.0 - np.abs(ratio - 1.0), at, begin, TOLERANCE)
    return "not within the stage" if np.isnan(taken) else f"{taken:.1f}"


def relative_freshness(results: list[Result], policy: str, at: Floats, rate: float, window: float) -> Floats:
    """Moving freshness ÷ optimum at a bandwidth, averaged over the webs."""
    parts = [r.runs[policy].moving(at, window) / r.optimum(rate) for r in results]
    return np.asarray(np.mean(parts, axis=0))


def write_runs(results: list[Result], folder: Path, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, result in enumerate(results):
        for policy, run in result.runs.items():
            run.write_csv(folder / f"{policy.replace(' ', '-')}-seed-{seed + number}.csv")
    _plot(results, folder / "freshness.png")


def _plot(results: list[Result], path: Path) -> None:
    from matplotlib.figure import Figure  # slow to import, and only needed here

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    at = np.arange(2.5, results[0].schedule.end - 2.5, 0.25)
    for policy in (OURS, EXACT):
        curves = [result.runs[policy].moving(at, 5.0) for result in results]
        axes.plot(at, np.mean(curves, axis=0), label=policy)
    for begin, end, rate in results[0].stages():
        best = float(np.mean([result.optimum(rate) for result in results]))
        axes.hlines(best, begin, end, colors="black", linestyles="dashed")
    axes.plot([], [], "k--", label="optimum")
    axes.axvspan(0, results[0].warm_up, alpha=0.1, color="grey", label="warm-up")
    axes.set(xlabel="time (units)", ylabel="freshness (mean of 5 units)")
    axes.legend()
    figure.savefig(path, dpi=120)
