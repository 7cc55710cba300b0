"""Every experiment by name, paper by paper."""

from __future__ import annotations

from importlib import import_module

from loadtest.lab.experiment import Experiment

MODULES = (
    "noisy_figures",
    "noisy_quality",
    "noisy_rates",
    "noisy_scale",
    "politeness",
    "lambdacrawl",
    "lambdacrawl_learning",
    "lambdacrawl_speed",
    "starvation",
    "signalled_objectives",
    "learning_horizon",
    "learning_figures",
    "learning_delay",
    "deep_figures",
)


def catalogue() -> dict[str, Experiment]:
    """The experiments in the order of the papers; imported only when asked for."""
    found: dict[str, Experiment] = {}
    for module in MODULES:
        for experiment in import_module(f"loadtest.lab.{module}").EXPERIMENTS:
            assert experiment.name not in found, f"two experiments are called {experiment.name}"
            found[experiment.name] = experiment
    return found
