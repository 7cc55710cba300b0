"""What a bench is to do, and what all its parts share while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtest.bench.client import Job, Load, Tally
from loadtest.bench.figures import Findings

PARTS = {
    "noop": "endpoints that do nothing: what HTTP costs",
    "script": "functions called without HTTP: what one core of the store can do",
    "next": "GET /next by pages asked for, connections and processes",
    "batches": "POST /outcomes and POST /signals in batches of 100",
    "growth": "loading, memory and GET /next as the number of pages grows",
    "reprice": "a sweep of all pages by one worker while serving",
    "cluster": "GET /next on three primaries beside one server",
    "peers": "other frontiers, each in an environment of its own",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and times."""

    parts: frozenset[str]
    env_dir: Path  # of the peers' environments
    rounds: int = 5
    window_s: float = 1.0
    pages: int = 200_000  # registered where serving is measured
    counts: tuple[int, ...] = (1, 10, 50)
    connections: tuple[int, ...] = (1, 32, 128)
    processes: tuple[int, ...] = (1, 2)
    batches: int = 300  # of 100 items, per measurement
    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    modest_rate: float = 200.0  # requests per second at which growth is watched
    sweep_pages: int = 1_000_000
    cluster_pages: int = 100_000
    peer_pages: int = 2000

    @property
    def warm_up_s(self) -> float:
        return self.window_s / 4


@dataclass(frozen=True, slots=True)
class Bench:
    """A bench under way."""

    plan: Plan
    load: Load
    findings: Findings
    step: Callable[[str], None]  # says what is going on

    def press(self, port: int, request: bytes, connections: int, *, rate: float = 0.0) -> Tally:
        """One request again and again for a window, as fast as it goes or at a rate; keeps the answers."""
        seconds = self.plan.window_s * (2 if rate else 1)
        job = Job(port, [request], connections, seconds, self.plan.warm_up_s, rate, keep=True)
        return self.load.run(job)
