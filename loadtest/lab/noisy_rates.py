"""Noisy change signals: how often policies crawl which pages, figures 7 and 12 to 14."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.findings import Findings
from loadtest.lab.contest import settled, steady
from loadtest.lab.events import truth
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.noisy_figures import PAPER, Cast, R, deaf_cast, noisy_cast, true_cast, true_signals
from loadtest.lab.tally import Tally
from loadtest.population import Population, noisy_population, silent_population
from service.domain import Floats
from service.policy.forecast import optimum
from service.policy.variants import greedy

Groups = Callable[[Population], dict[str, NDArray[np.bool_]]]
BINS = 8  # points of a curve of empirical against optimal rates


def everything(population: Population) -> dict[str, NDArray[np.bool_]]:
    return {"all": np.ones(population.size, dtype=bool)}


def by_recall(population: Population) -> dict[str, NDArray[np.bool_]]:
    low, high = population.recall < 0.1, population.recall > 0.9
    return {"λ < 0.1": low, "λ between": ~low & ~high, "λ > 0.9": high}


def by_change(population: Population) -> dict[str, NDArray[np.bool_]]:
    """Of the well signalled pages only, as these are what signals move."""
    heard, rate = population.recall > 0.9, population.change_rate
    thirds = {"Δ < ⅓": rate < 1 / 3, "Δ between": (rate >= 1 / 3) & (rate < 2 / 3), "Δ > ⅔": rate >= 2 / 3}
    return {f"λ > 0.9, {name}": heard & mask for name, mask in thirds.items()}


@dataclass(frozen=True, slots=True)
class Rates:
    """One figure: crawls per unit of each policy beside the rates of BASELINE."""

    name: str
    title: str
    draw: Callable[[np.random.Generator, int, int], Population]
    cast: Cast
    sizes: tuple[int, ...]
    groups: Groups

    def run(self, effort: Effort) -> Findings:
        findings = Findings(self.name, self.title, ("rate of BASELINE", "empirical rate"))
        warm, end = (10.0, 40.0) if effort.short else (50.0, 450.0)
        sizes = self.sizes[:1] if effort.short else self.sizes
        for at, pages in enumerate(sizes):
            pairs: dict[str, list[Floats]] = {}
            ratios, spread = Tally(), Tally()
            for repetition in range(effort.repetitions):
                rng = effort.rng(pages, repetition)
                population = self.draw(rng, pages, 1)
                best = optimum(greedy(truth(population)), R).frequency
                start = settled(population, R, rng)
                crawlers = self.cast(population, start, rng)
                runs = steady(R, warm=warm, end=end).run(population, start, crawlers, rng)
                for policy, run in runs.items():
                    rate = run.crawls / (end - warm)
                    pairs.setdefault(policy, []).append(np.stack([best, rate]))
                    for n, (_, mask) in enumerate(self.groups(population).items()):
                        if best[mask].sum() > 0:
                            ratios.add(n, {policy: float(rate[mask].sum() / best[mask].sum())})
                            spread.add(n, {policy: float(np.sqrt(np.mean((rate - best)[mask] ** 2)))})
                effort.report((at + (repetition + 1) / effort.repetitions) / len(sizes))
            self._write(findings, pages, ratios, spread, list(self.groups(population)))
            for policy, each in pairs.items():
                findings.curves[f"{policy}, {pages} pages"] = binned(np.concatenate(each, axis=1))
        return findings

    @staticmethod
    def _write(findings: Findings, pages: int, ratios: Tally, spread: Tally, names: list[str]) -> None:
        off = {(n, policy): mean for n, policy, mean, _ in spread.cells()}
        for n, policy, mean, error in ratios.cells():
            findings.rows.append(
                {
                    "pages": pages,
                    "policy": policy,
                    "group": names[int(n)],
                    "crawls ÷ BASELINE": mean,
                    "±": error,
                    "rms difference of rates": off[n, policy],
                }
            )


def binned(pairs: Floats) -> tuple[Floats, Floats]:
    """Means of (optimal, empirical) over groups of pages of similar optimal rate."""
    order = np.argsort(pairs[0], kind="stable")
    parts = [pairs[:, part] for part in np.array_split(order, BINS)]
    return np.array([p[0].mean() for p in parts]), np.array([p[1].mean() for p in parts])


FIG7 = Rates("fig7", "Rates without signals", silent_population, deaf_cast, (100, 500), everything)
FIG12 = Rates("fig12", "Rates with true signals, by recall", true_signals, true_cast, (100, 300), by_recall)
FIG13 = Rates(
    "fig13", "Rates with true signals, by change rate", true_signals, true_cast, (100, 300), by_change
)
FIG14 = Rates(
    "fig14", "Rates with noisy signals, by recall", noisy_population, noisy_cast, (100, 300), by_recall
)

DIFFERS = "Groups of pages in rows and binned means as curves, instead of a dot per page."
EXPERIMENTS = (
    Experiment(
        "fig7",
        f"{PAPER}, figure 7",
        "LDS reproduces the optimal rates almost exactly; GREEDY, as fresh, strays further from them.",
        FIG7.run,
        repetitions=10,
        differs=DIFFERS,
    ),
    Experiment(
        "fig12",
        f"{PAPER}, figure 12",
        "At 100 pages GREEDY-CIS crawls well signalled pages less than BASELINE and the others more; "
        "at 300 some well signalled pages are crawled more.",
        FIG12.run,
        repetitions=5,
        differs=DIFFERS,
    ),
    Experiment(
        "fig13",
        f"{PAPER}, figure 13",
        "Of the well signalled pages it is those that change often that GREEDY-CIS crawls more, at 300.",
        FIG13.run,
        repetitions=5,
        differs=DIFFERS,
    ),
    Experiment(
        "fig14",
        f"{PAPER}, figure 14",
        "With false signals GREEDY-CIS crawls pages of high recall far too often; GREEDY-NCIS does not.",
        FIG14.run,
        repetitions=3,
        differs=DIFFERS + " The paper does not say how many pages; we take those of figure 12.",
    ),
)
