"""One synthetic web on which several services are tried in turn, each facing the same happenings."""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from loadtest.drive import Plan, simulate
from loadtest.poison import Poison
from loadtest.population import Population
from loadtest.progress import show_progress
from loadtest.record import Run
from loadtest.reference import replay
from loadtest.schedule import Schedule
from loadtest.web import SyntheticWeb
from service.embedded import EmbeddedServer

TOLD: dict[str, Any] = {"knowledge": "known", "learning": "none"}
LEARNING: dict[str, Any] = {"knowledge": "nothing", "learning": "pooled"}
LEARNING_ALONE: dict[str, Any] = {"knowledge": "nothing", "learning": "pages"}
BELIEVING_DEFAULTS: dict[str, Any] = {"knowledge": "nothing", "learning": "none"}


@dataclass(frozen=True)
class Scene:
    """What every service tried here has in common."""

    population: Population
    schedule: Schedule
    seed: int
    console: Console | None  # None: no progress is shown
    learn_every: float = 0.5
    signal_delay: float = 0.0
    poison_at: float = 0.0

    def web(self, only: NDArray[np.bool_] | None = None) -> SyntheticWeb:
        """The web anew; with `only`, one on which no other page matters."""
        population = self.population
        if only is not None:
            population = replace(population, importance=np.where(only, population.importance, 0.0))
        return SyntheticWeb(population, np.random.default_rng([self.seed, 1]), signal_delay=self.signal_delay)

    def poison(self) -> Poison:
        return Poison(self.population, np.random.default_rng([self.seed, 2]), begin=self.poison_at)

    def run(self, name: str, *, poisoned: bool = False, **plan: Any) -> Run:
        """Try a service on this web: the arguments are the plan's."""
        full = Plan(self.schedule, judge_every=0, sweep_every=0.5, learn_every=self.learn_every, **plan)
        label = f"seed {self.seed}: {name}"
        with (
            tempfile.TemporaryDirectory() as folder,
            EmbeddedServer(Path(folder)) as server,
            show_progress(self.schedule.crawls, label, self.console) as report,
        ):
            poison = self.poison() if poisoned else None
            return asyncio.run(simulate(server.url, self.web(), full, report, poison=poison))

    def only(self, run: Run, pages: NDArray[np.bool_]) -> Run:
        """The same run as it was for some pages."""
        return replay(self.web(pages), run)


K = TypeVar("K")
Attempt = tuple[Scene, str, dict[str, Any]]  # where, under which name, and the arguments of `Scene.run`


def try_all(scenes: list[Scene], plans: dict[K, dict[str, Any]], jobs: int) -> dict[K, list[Run]]:
    """Every plan tried on every web."""
    attempts = [(scene, str(key), plan) for key, plan in plans.items() for scene in scenes]
    runs = iter(run_all(attempts, jobs))
    return {key: [next(runs) for _ in scenes] for key in plans}


def run_all(attempts: list[Attempt], jobs: int) -> list[Run]:
    """Every attempt's run, in their order; `jobs` at a time, each in a process of its own."""
    if jobs == 1:
        return [_attempt(attempt) for attempt in attempts]
    console = attempts[0][0].console
    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        show_progress(len(attempts), "runs", console) as report,
    ):
        quiet = [(replace(scene, console=None), name, plan) for scene, name, plan in attempts]
        futures = [pool.submit(_attempt, attempt) for attempt in quiet]
        for done, _ in enumerate(as_completed(futures), 1):
            report(done)
        return [future.result() for future in futures]


def _attempt(attempt: Attempt) -> Run:
    scene, name, plan = attempt
    return scene.run(name, **plan)
