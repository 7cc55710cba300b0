"""Figure 1 of "Learning to crawl": how long to explore before committing, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loadtest.findings import Cell, Findings
from loadtest.lab.averages import means_and_errors
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.learning_explore import (
    FAST,
    SLOW,
    Web,
    bing_like,
    commit_losses,
    regret,
    theorem_bound,
    theorem_exploration,
)
from service.domain import Floats

PAPER = "Learning to crawl, figure 1"
CRAWLS_PER_PAGE = (0.02, 0.2)  # R/m: R = 100 and 1000 for 5,000 pages
LOST = "share of requests lost"
Rounds = NDArray[np.int64]


def some_rounds(most: int, count: int) -> Rounds:
    """Numbers of rounds to stop exploring after, denser where they are few."""
    return np.unique(np.round(np.geomspace(1, most, count))).astype(np.int64)


def explore(effort: Effort, web: Web, rounds: Rounds, repetitions: int) -> Floats:
    """Losses of committing after each number of rounds, a row per repetition."""
    return np.array([commit_losses(web, rounds, effort.rng(2, each)) for each in range(repetitions)])


def shares(web: Web, rounds: Rounds, losses: Floats, horizon: float) -> Floats:
    """Regret as a share of all requests: R(T)/(T × mean importance)."""
    return regret(web, rounds, losses, horizon) / (horizon * np.mean(web.importance))


def _scale(effort: Effort) -> tuple[int, int]:
    """(pages, repetitions)"""
    return (500, 4) if effort.short else (5_000, effort.repetitions)


def run_lengths(effort: Effort) -> Findings:
    findings = Findings("learning1", "Regret by length of exploration, T = 10⁴", ("exploration τ", LOST))
    findings.scales = ("log", "log")
    pages, repetitions = _scale(effort)
    horizon = 1e4
    for index, per_page in enumerate(CRAWLS_PER_PAGE):
        web = bing_like(effort.rng(1), pages, per_page * pages)
        rounds = some_rounds(int(horizon / web.round_time), 12 if effort.short else 40)
        lost = shares(web, rounds, explore(effort, web, rounds, repetitions), horizon)
        mean, error = means_and_errors(lost)
        best, tau = int(np.argmin(mean)), np.asarray(rounds * web.round_time, dtype=np.float64)
        for name, at in (("shortest", 0), ("best", best), ("whole horizon", len(rounds) - 1)):
            row: dict[str, Cell] = {"crawls per page and unit": per_page, "exploration": name}
            findings.rows.append(row | {"τ": float(tau[at]), LOST: float(mean[at]), "±": float(error[at])})
        findings.curves[f"R/m = {per_page}"], findings.bars[f"R/m = {per_page}"] = (tau, mean), error
        magnitude = theorem_exploration(web, horizon) / np.log(10)
        findings.notes.append(
            f"R/m = {per_page}: Theorem 1 with the paper's bounds asks for 10^{magnitude:.0f}."
        )
        effort.report((index + 1) / len(CRAWLS_PER_PAGE))
    return findings


def run_horizons(effort: Effort) -> Findings:
    findings = Findings("learning1-horizon", "Regret and best exploration by horizon", ("horizon T", LOST))
    findings.scales = ("log", "log")
    pages, repetitions = _scale(effort)
    horizons = np.geomspace(1e2, 1e6, 5 if effort.short else 9)
    cases = [(per_page, fastest) for fastest in (SLOW, FAST) for per_page in CRAWLS_PER_PAGE]
    for index, (per_page, fastest) in enumerate(cases):
        web = bing_like(effort.rng(1), pages, per_page * pages, fastest)
        rounds = some_rounds(20_000, 15 if effort.short else 50)
        losses = explore(effort, web, rounds, repetitions)
        row: dict[str, Cell] = {"crawls per page and unit": per_page, "fastest page": fastest}
        name = f"R/m = {per_page}, Δ ≤ {fastest:.1f}"
        findings.rows.append(row | _follow(findings, name, web, rounds, losses, horizons))
        effort.report((index + 1) / (len(cases) + 1))
    _add_theorem(findings, effort, pages, repetitions, horizons)
    findings.curves["∝ 1/√T"] = horizons, 3.0 / np.sqrt(horizons)
    findings.notes.append("Slopes are of logarithms over T ≥ 10³; the paper's are 0.5 (τ) and −0.5 (lost).")
    return findings


def _follow(
    findings: Findings, name: str, web: Web, rounds: Rounds, losses: Floats, horizons: Floats
) -> dict[str, Cell]:
    """The curve of one case, with the τ that is best on average at each horizon, and its slopes."""
    lost = np.array([shares(web, rounds, losses, horizon) for horizon in horizons])
    best = np.argmin(np.mean(lost, axis=1), axis=1)
    reached = lost[np.arange(len(horizons)), :, best]
    findings.curves[name], findings.bars[name] = _curve(horizons, reached)
    slope, error = means_and_errors([slope_of(horizons, each) for each in reached.T])
    exploration = slope_of(horizons, rounds[best] * web.round_time)
    middle = means_and_errors(reached[len(horizons) // 2])
    return {
        "best τ at T = 10⁴": float(rounds[best[len(horizons) // 2]] * web.round_time),
        "lost at T = 10⁴": float(middle[0]),
        "± of lost": float(middle[1]),
        "slope of τ": exploration,
        "slope of lost": float(slope),
        "±": float(error),
    }


def _add_theorem(findings: Findings, effort: Effort, pages: int, repetitions: int, horizons: Floats) -> None:
    """The τ of Theorem 1 where it can be used: rates known to lie in [0.05, 0.1], R/m = 0.2."""
    web = known_bounds_web(effort.rng(1), pages)
    lost = theorem_shares(effort, web, horizons, repetitions)
    name = "τ of Theorem 1, 0.05 ≤ Δ ≤ 0.1"
    findings.curves[name], findings.bars[name] = _curve(horizons, lost)
    slope = slope_of(horizons, np.mean(lost, axis=1))
    bound = np.exp(theorem_bound(web, 1e4)) / 1e4 / np.mean(web.importance)
    found = np.mean(lost[len(horizons) // 2])
    findings.notes.append(
        "Theorem 1 with bounds [0.05, 0.1], R/m = 0.2, T = 10⁴: "
        f"τ = {np.exp(theorem_exploration(web, 1e4)):.0f}, "
        f"lost {found:.4f} against a bound of {bound:.2f}; slope of lost {slope:.3f}."
    )
    effort.report(1.0)


def known_bounds_web(rng: np.random.Generator, pages: int) -> Web:
    """Pages whose rates are known within a factor of two before any is crawled."""
    web = bing_like(rng, pages, 0.2 * pages)
    return replace(web, change_rate=rng.uniform(0.05, 0.1, pages), lowest=0.05, highest=0.1)


def theorem_shares(effort: Effort, web: Web, horizons: Floats, repetitions: int) -> Floats:
    """Shares lost with the exploration of Theorem 1, at most T: horizons by repetitions."""
    wanted = np.minimum(np.exp([theorem_exploration(web, horizon) for horizon in horizons]), horizons)
    rounds = np.maximum((wanted / web.round_time).astype(np.int64), 1)
    losses = explore(effort, web, rounds, repetitions)
    each = [shares(web, rounds, losses, horizon)[:, at] for at, horizon in enumerate(horizons)]
    return np.array(each)


def _curve(across: Floats, samples: Floats) -> tuple[tuple[Floats, Floats], Floats]:
    mean, error = means_and_errors(samples, axis=1)
    return (across, mean), error


def slope_of(horizons: Floats, values: Floats, since: float = 1e3) -> float:
    """Exponent of the power of T that fits best from `since` on."""
    late = horizons >= since
    return float(np.polyfit(np.log(horizons[late]), np.log(values[late]), 1)[0])


EXPERIMENTS = (
    Experiment(
        "learning1",
        PAPER + " (a)",
        "Regret has a minimum in the length of exploration; both depend on the bandwidth, and more bandwidth "
        "means less regret.",
        run_lengths,
        repetitions=50,
        differs="Synthetic pages instead of 5,000 of a production crawl, whose rates and importances are not "
        "published with the paper; regret is a share of all requests instead of a count. The exploration "
        "length of Theorem 1 is beyond any horizon with the bounds the paper uses (1e-9 and 25).",
    ),
    Experiment(
        "learning1-horizon",
        PAPER + " (b, c)",
        "The best exploration grows like √T and regret per unit of time falls like 1/√T.",
        run_horizons,
        repetitions=50,
        differs="Holds where crawls in turn sometimes find every page unchanged (Δ ≤ 0.1). With rates up to "
        "4.6 changes of fast pages cannot be told apart and regret falls much more slowly; if importances "
        "were nearly equal, crawling in turn would even beat the best Poisson rates, and regret be negative.",
    ),
)
