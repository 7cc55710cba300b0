"""The policies against each other, each driving the real service on the same web."""

from __future__ import annotations

import argparse

import numpy as np

from loadtest.findings import Cell, Findings
from loadtest.population import UNIT_S
from loadtest.record import Run
from loadtest.scene import TOLD, Scene, try_all
from service.policy.forecast import optimum

BATCHES = 20
CHOICES = (
    ("ncis", "freshness"),
    ("approx-2", "freshness"),
    ("approx-1", "freshness"),
    ("cis", "freshness"),
    ("cis+", "freshness"),
    ("greedy", "freshness"),
    ("lds", "freshness"),
    ("importance", "freshness"),
    ("uniform", "freshness"),
    ("change-rate", "freshness"),
    ("lambdacrawl", "freshness"),
    ("ncis", "harmonic"),
    ("ncis", "delay"),
)


def policies(scenes: list[Scene], options: argparse.Namespace) -> Findings:
    """Freshness of every policy the service can follow, with the true parameters, relative to the optimum."""
    findings = Findings(
        "policies", "Policies on the running service", ("time (units)", "freshness ÷ optimum")
    )
    plans = {
        (policy, objective): {"policy": policy, "objective": objective, "explore": 0.0, **TOLD}
        for policy, objective in CHOICES
    }
    best = [optimum(s.population.model, s.schedule.steps[0][1] / UNIT_S).freshness for s in scenes]
    window = (options.time / 3, options.time)
    at = np.arange(options.window, options.time - options.window / 2, options.window / 4)
    for (policy, objective), runs in try_all(scenes, plans, options.jobs).items():
        row = {**_figures(runs, best, window), "pages crawled": _crawled(runs, scenes, window[0])}
        findings.rows.append({"policy": policy, "objective": objective, **row})
        curves = [run.moving(at, options.window) / b for run, b in zip(runs, best, strict=True)]
        findings.curves[policy if objective == "freshness" else objective] = at, np.mean(curves, axis=0)
    return findings


def _figures(runs: list[Run], best: list[float], window: tuple[float, float]) -> dict[str, Cell]:
    """Means over the webs; the error is from the webs if there are several, else from batches."""
    ratios = [run.expected_freshness(*window) / b for run, b in zip(runs, best, strict=True)]
    sample = np.array(ratios) if len(runs) > 1 else runs[0].batches(*window, BATCHES) / best[0]
    return {
        "freshness ÷ optimum": float(np.mean(ratios)),
        "±": float(np.std(sample, ddof=1) / np.sqrt(len(sample))),
    }


def _crawled(runs: list[Run], scenes: list[Scene], begin: float) -> float:
    """Share of the pages crawled at least once from then on."""
    seen = [len(np.unique(run.page[run.at >= begin])) for run in runs]
    return float(np.mean([count / s.population.size for count, s in zip(seen, scenes, strict=True)]))
