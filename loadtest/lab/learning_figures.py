"""Figures 2 and 3 of "Learning to crawl": phased ε-greedy, and how exact its estimates are."""

from __future__ import annotations

import numpy as np

from loadtest.findings import Cell, Findings
from loadtest.lab.averages import means_and_errors
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.learning_accuracy import run_accuracy
from loadtest.lab.learning_explore import Web, bing_like
from loadtest.lab.learning_horizon import CRAWLS_PER_PAGE, LOST, Rounds, explore, shares, some_rounds
from loadtest.lab.learning_phased import phase_length, phased_losses
from service.domain import Floats

PAGES = 500
EXPLORING = (0.02, 0.1)  # ε
COMMITTED = "best explore-then-commit"


def run_phases(effort: Effort) -> Findings:
    findings = Findings("learning2", "Phased ε-greedy against explore-then-commit", ("phases", LOST))
    findings.scales = ("log", "log")
    phases, repetitions = (8, 2) if effort.short else (400, effort.repetitions)
    told = np.unique(np.round(np.geomspace(1, phases, 4 if effort.short else 12))).astype(np.int64)
    for index, per_page in enumerate(CRAWLS_PER_PAGE):
        web = bing_like(effort.rng(1), PAGES, per_page * PAGES)
        contestants = {COMMITTED: _committed(effort, web, told, repetitions)}
        for place, share in enumerate(EXPLORING):
            contestants[f"ε = {share}"] = _phased(effort, web, told, share, repetitions)
            effort.report((index + (place + 1) / len(EXPLORING)) / len(CRAWLS_PER_PAGE))
        for name, lost in contestants.items():
            mean, error = means_and_errors(lost)
            title = f"{name}, R/m = {per_page}"
            findings.curves[title], findings.bars[title] = (told.astype(np.float64), mean), error
            relative = mean / np.mean(contestants[COMMITTED], axis=0)
            findings.rows += _rows(web, told, name, mean, error, relative)
    never = "Crawling all pages alike for ever loses what one phase does."
    findings.notes.append(
        f"A phase lasts {phase_length(web):.0f} units (Lemma 1, 1% of all requests). {never}"
    )
    return findings


def _phased(effort: Effort, web: Web, told: Rounds, share: float, repetitions: int) -> Floats:
    """Share of requests lost up to each number of phases, a row per repetition."""
    runs = [
        phased_losses(
            web,
            phases=int(told[-1]),
            length=phase_length(web),
            explore=share,
            rng=effort.rng(3, each),
        )
        for each in range(repetitions)
    ]
    average = np.cumsum(runs, axis=1) / np.arange(1, told[-1] + 1)
    return np.asarray(average[:, told - 1] / np.sum(web.importance))


def _committed(effort: Effort, web: Web, told: Rounds, repetitions: int) -> Floats:
    """The same for explore-then-commit, with the τ that is best on average at each horizon."""
    rounds = some_rounds(20_000, 50)
    losses = explore(effort, web, rounds, max(repetitions, 10))
    lost = [shares(web, rounds, losses, phases * phase_length(web)) for phases in told.tolist()]
    return np.array([each[:, np.argmin(np.mean(each, axis=0))] for each in lost]).T


def _rows(
    web: Web, told: Rounds, name: str, mean: Floats, error: Floats, relative: Floats
) -> list[dict[str, Cell]]:
    return [
        {
            "crawls per page and unit": web.bandwidth / web.size,
            "policy": name,
            "phases": int(told[at]),
            LOST: float(mean[at]),
            "±": float(error[at]),
            "÷ explore-then-commit": float(relative[at]),
        }
        for at in (0, len(told) // 3, len(told) - 1)
    ]


EXPERIMENTS = (
    Experiment(
        "learning2",
        "Learning to crawl, figure 2",
        "Phased ε-greedy loses more than explore-then-commit over short horizons, less with enough phases.",
        run_phases,
        repetitions=6,
        differs="500 synthetic pages with the paper's R/m; the length of phases, ε and the horizons of the "
        "paper's panels are not in its text. With a constant ε regret cannot fall below what ε costs.",
    ),
    Experiment(
        "learning3",
        "Learning to crawl, figures 3 and 4",
        "Moment matching and maximum likelihood err alike (at equal intervals they are the same), and stay "
        "within the bound of Lemma 3, which is tight up to constants, more so at Poisson times, with more "
        "crawls, and with Δ nearer to its upper bound.",
        run_accuracy,
        repetitions=2_000,
        differs="2,000 records instead of 50, and Δ of 0.25, 0.5 and 0.75 as the paper's text names none; "
        "the scheduler's own penalised likelihood stands beside them. The bound is wider at Poisson times "
        "than at equal intervals for a crawl rate of 0.75, narrower for 0.25.",
    ),
)
