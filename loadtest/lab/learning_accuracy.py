"""How exact estimates of a change rate are, and how often the interval of Lemma 3 holds.

Source: "Learning to crawl", Appendix J.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadtest.findings import Cell, Findings
from loadtest.lab.averages import means_and_errors
from loadtest.lab.experiment import Effort
from loadtest.lab.learning_estimators import maximum_likelihood
from service.domain import Floats
from service.policy.classical import moment_matching, moment_matching_error
from service.policy.estimate import Prior, fit
from service.policy.evidence import fold, no_evidence

LOWEST, HIGHEST, MISS = 0.1, 1.0, 0.1
CHANGE_RATES = (0.25, 0.5, 0.75)
CRAWL_RATES = (0.25, 0.75)
CRAWLS = (10, 20, 50, 100, 200)


def observe(
    rng: np.random.Generator,
    records: int,
    crawls: int,
    *,
    change_rate: float,
    crawl_rate: float,
    regular: bool,
) -> tuple[Floats, NDArray[np.bool_]]:
    """(elapsed, changed) of crawls at Poisson times or at equal intervals, a row per record."""
    if regular:
        elapsed = np.full((records, crawls), 1.0 / crawl_rate)
    else:
        elapsed = rng.exponential(1.0 / crawl_rate, (records, crawls))
    return elapsed, rng.random((records, crawls)) < -np.expm1(-change_rate * elapsed)


def penalised_likelihood(elapsed: Floats, changed: NDArray[np.bool_]) -> Floats:
    """The scheduler's own estimate, forgetting nothing, from a vague belief in the middle of the range."""
    records = len(elapsed)
    one, none = np.ones(records), np.empty((records, 0))
    prior = Prior(np.sqrt(LOWEST * HIGHEST) * one, 0.25 * one, none, none, none, none)
    evidence = no_evidence(records, 0)
    for time, news in zip(elapsed.T, changed.T, strict=True):
        evidence = fold(evidence, time, none, news, half_life=float("inf"))
    return fit(evidence, prior).change_rate


def run_accuracy(effort: Effort) -> Findings:
    findings = Findings("learning3", "Error of estimated change rates", ("crawls", "mean absolute error"))
    findings.scales = ("log", "log")
    records, counts = (200, CRAWLS[:3]) if effort.short else (effort.repetitions, CRAWLS)
    cases = [
        (regular, crawl_rate, change_rate)
        for regular in (False, True)
        for crawl_rate in CRAWL_RATES
        for change_rate in CHANGE_RATES
    ]
    for index, (regular, crawl_rate, change_rate) in enumerate(cases):
        rng = effort.rng(1, index)
        times, news = observe(
            rng, records, counts[-1], change_rate=change_rate, crawl_rate=crawl_rate, regular=regular
        )
        rows = [_compare(times[:, :count], news[:, :count], change_rate) for count in counts]
        head: dict[str, Cell] = {
            "crawls at": "equal intervals" if regular else "Poisson times",
            "crawl rate": crawl_rate,
            "Δ": change_rate,
        }
        findings.rows += [head | rows[0], head | rows[-1]]
        if not regular and change_rate == CHANGE_RATES[1]:
            _draw(findings, f"ρ = {crawl_rate}, Δ = {change_rate}", rows)
        effort.report((index + 1) / len(cases))
    findings.notes.append(
        f"Bound: Lemma 3 with Δ ≤ {HIGHEST}, to be missed by at most {MISS:.0%} of records."
    )
    return findings


def _compare(elapsed: Floats, changed: NDArray[np.bool_], truth: float) -> dict[str, Cell]:
    """Mean absolute errors of the estimators, and how often the bound holds."""
    estimates = {
        "moments": moment_matching(elapsed, changed, lowest=LOWEST, highest=HIGHEST),
        "likelihood": maximum_likelihood(elapsed, changed, lowest=LOWEST, highest=HIGHEST),
        "penalised": np.clip(penalised_likelihood(elapsed, changed), LOWEST, HIGHEST),
    }
    bound = moment_matching_error(elapsed, highest=HIGHEST, miss=MISS)
    row: dict[str, Cell] = {"crawls": elapsed.shape[1]}
    for name, estimate in estimates.items():
        mean, error = means_and_errors(np.abs(estimate - truth))
        row |= {name: float(mean), f"± {name}": float(error)}
    covered = np.abs(estimates["moments"] - truth) <= bound
    return row | {"bound": float(np.mean(bound)), "within bound": float(np.mean(covered))}


def _draw(findings: Findings, name: str, rows: list[dict[str, Cell]]) -> None:
    across = np.array([float(row["crawls"]) for row in rows])
    for what in ("moments", "likelihood", "penalised", "bound"):
        title = f"{what}, {name}"
        findings.curves[title] = across, np.array([float(row[what]) for row in rows])
        if what != "bound":
            findings.bars[title] = np.array([float(row[f"± {what}"]) for row in rows])
