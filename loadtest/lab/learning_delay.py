"""The accumulated delay: each missed change counts for as long as it is missed.

Source: "Learning to crawl", Appendix F.
"""

from __future__ import annotations

import numpy as np

from loadtest.findings import Findings
from loadtest.lab.averages import means_and_errors
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.learning_explore import Web, bing_like, exploring_estimates
from loadtest.lab.learning_horizon import Rounds, some_rounds
from loadtest.lab.poisson_rates import delay_cost, delay_optimal_rates, optimal_rates
from service.domain import Floats


def simulate_delay(web: Web, rates: Floats, crawls: int, rng: np.random.Generator) -> float:
    """Σ μ × (delay of all changes ÷ time), from as many Poisson crawls of each page."""
    elapsed = rng.exponential(1.0 / rates, (crawls, web.size))
    changes = rng.poisson(web.change_rate * elapsed)
    cycle = np.repeat(np.arange(elapsed.size), changes.ravel())
    missed = rng.random(len(cycle)) * elapsed.ravel()[cycle]  # from the change to the next crawl
    delay = np.bincount(cycle % web.size, missed, web.size)
    return float(np.sum(web.importance * delay / np.sum(elapsed, axis=0)))


def excess_delays(web: Web, rounds: Rounds, rng: np.random.Generator) -> Floats:
    """Delay of the rates committed to after each number of rounds ÷ the least possible, less 1."""
    least = _cost(web, delay_optimal_rates(web.change_rate, web.importance, web.bandwidth))
    found = [
        _cost(web, delay_optimal_rates(estimate, web.importance, web.bandwidth))
        for estimate in exploring_estimates(web, rounds, rng)
    ]
    return np.array(found) / least - 1.0


def _cost(web: Web, rates: Floats) -> float:
    return float(delay_cost(rates, web.change_rate, web.importance))


def run_delay(effort: Effort) -> Findings:
    findings = Findings("learning-delay", "Accumulated delay", ("rounds of exploration", "excess delay"))
    findings.scales = ("log", "log")
    pages, repetitions, crawls = (200, 4, 200) if effort.short else (2_000, effort.repetitions, 1_000)
    web = bing_like(effort.rng(1), pages, 0.2 * pages)
    known = web.change_rate, web.importance, web.bandwidth
    least = _cost(web, delay_optimal_rates(*known))
    policies = {
        "optimal for delay": delay_optimal_rates(*known),
        "uniform": np.full(pages, web.bandwidth / pages),
        "as often as it changes": web.bandwidth * web.change_rate / np.sum(web.change_rate),
    }
    for name, rates in policies.items():
        seen = [
            simulate_delay(web, rates, crawls, effort.rng(2, each)) / least for each in range(repetitions)
        ]
        mean, error = means_and_errors(seen)
        closed = _cost(web, rates) / least
        findings.rows.append(
            {"rates": name, "closed form": closed, "simulated": float(mean), "±": float(error)}
        )
    starved = int(np.sum(optimal_rates(*known) == 0))
    findings.rows.append(
        {"rates": "optimal for freshness", "closed form": float("inf"), "simulated": "", "±": ""}
    )
    findings.notes.append(f"Optimal for freshness never crawls {starved} of {pages} pages: infinite delay.")
    effort.report(0.5)
    _explore(findings, effort, web, repetitions)
    effort.report(1.0)
    return findings


def _explore(findings: Findings, effort: Effort, web: Web, repetitions: int) -> None:
    rounds = some_rounds(300 if effort.short else 10_000, 8 if effort.short else 12)
    excess = np.array([excess_delays(web, rounds, effort.rng(3, each)) for each in range(repetitions)])
    mean, error = means_and_errors(excess)
    findings.curves["explore, then commit"] = rounds.astype(np.float64), mean
    findings.bars["explore, then commit"] = error
    late = slice(len(rounds) // 2, None)
    slope = np.polyfit(np.log(rounds[late]), np.log(mean[late]), 1)[0]
    findings.notes.append(
        f"Excess of the rates committed to falls like rounds^{slope:.2f} from {rounds[late][0]} rounds on "
        "(−1 where errors are small: the loss is quadratic in them)."
    )


EXPERIMENTS = (
    Experiment(
        "learning-delay",
        "Learning to crawl, Appendix F",
        "Rates in proportion to √(μΔ) minimise the accumulated delay, which is then (Σ√(μΔ))²/R, and the "
        "loss from estimated rates is quadratic in their errors.",
        run_delay,
        repetitions=20,
        differs="No figure there; ours checks its closed forms by simulation and its bound by exploring.",
    ),
)
