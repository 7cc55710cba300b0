"""What an experiment is: a claim of a paper, and the run that checks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from loadtest.findings import Findings


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of an experiment to run."""

    seed: int = 1
    repetitions: int = 1  # instances averaged over
    short: bool = False  # a few seconds, on smaller instances: what the tests run
    report: Callable[[float], None] = field(default=lambda _: None)  # told the share that is done

    def rng(self, *path: int) -> np.random.Generator:
        """A generator of its own for each path (a repetition, a size …): runs do not disturb each other."""
        return np.random.default_rng([self.seed, *path])


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure or table, ours beside the paper's."""

    name: str  # as in `freshet simulate --experiment NAME`
    paper: str  # which paper, which figure
    claim: str  # what the paper says
    run: Callable[[Effort], Findings]
    repetitions: int = 1  # in full
    differs: str = ""  # where ours differs from the paper's, and why
