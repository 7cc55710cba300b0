"""`freshet simulate learn | poison | floors | policies | skew`: runs an experiment, shows what it found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from loadtest.findings import Findings
from loadtest.learning import floors, learn, poison
from loadtest.policies import policies
from loadtest.population import POPULATIONS
from loadtest.scene import Scene
from loadtest.schedule import Schedule
from loadtest.skew import skew

EXPERIMENTS: dict[str, Callable[[list[Scene], argparse.Namespace], Findings]] = {
    "learn": learn,
    "poison": poison,
    "floors": floors,
    "policies": policies,
    "skew": skew,
}


def main(argv: Sequence[str]) -> int:
    """Run an experiment; the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.quick:
        options.pages, options.bandwidth = min(options.pages, 200), min(options.bandwidth, 40.0)
        options.hosts, options.time = min(options.hosts, 10), min(options.time, 60.0)
    poison_at = getattr(options, "poison_at", None)
    options.poison_at = options.time / 2 if poison_at is None else poison_at
    if not 0 <= options.poison_at < options.time:
        parser.error("the lies must begin before the time ends")
    console = Console(width=None if sys.stdout.isatty() else 120)
    scenes = [_scene(options, options.seed + number, console) for number in range(options.runs)]
    findings = EXPERIMENTS[options.experiment](scenes, options)
    console.print(findings.table())
    if options.out is not None:
        findings.write(options.out)
        console.print(f"Written to {options.out}")
    return 0


def _scene(options: argparse.Namespace, seed: int, console: Console) -> Scene:
    draw = POPULATIONS[options.population]
    return Scene(
        population=draw(np.random.default_rng(seed), options.pages, options.hosts),
        schedule=Schedule(((0.0, options.bandwidth),), options.time),
        seed=seed,
        console=console,
        learn_every=options.learn_every,
        signal_delay=options.signal_delay,
        poison_at=options.poison_at,
    )


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="freshet simulate",
        description=__doc__,
    )
    experiments = parser.add_subparsers(dest="experiment", required=True, metavar="experiment")
    for name, experiment in EXPERIMENTS.items():
        text = (experiment.__doc__ or "").strip()
        command = experiments.add_parser(name, help=text.splitlines()[0], description=text)
        _add_common(command, population="skewed" if name == "skew" else "shared")
        if name == "learn":
            _add_explore(command)
        elif name == "poison":
            _add_explore(command)
            command.add_argument(
                "--poison-at", type=float, metavar="T", help="when the lies begin (default half-time)"
            )
        elif name == "floors":
            _add_floors(command)
    return parser


def _add_common(command: argparse.ArgumentParser, population: str) -> None:
    add = command.add_argument
    add("--pages", type=int, default=1000, help="pages on the web (default %(default)s)")
    add("--hosts", type=int, default=25, help="hosts they are spread over (default %(default)s)")
    add("--bandwidth", type=float, default=100.0, help="crawls per unit of time (default 100)")
    add("--time", type=float, default=600.0, help="units of time to simulate (default 600)")
    add("--seed", type=int, default=1, help="seed of the first web (default %(default)s)")
    add("--runs", type=int, default=1, help="webs to simulate, one seed each (default 1)")
    add(
        "--population",
        choices=sorted(POPULATIONS),
        default=population,
        help="shared: hosts share precision and recall; mixed: recall and the rate of false signals; "
        "noisy: every page has its own; silent: no signals; skewed: noisy, with hosts of Zipf sizes and "
        "rates (default %(default)s)",
    )
    add("--signal-delay", type=float, default=0.0, help="mean delay of signals, units (default 0)")
    add("--learn-every", type=float, default=0.5, help="units between passes of the learner (default 0.5)")
    add("--jobs", type=int, default=1, help="runs at a time, each in a process of its own (default 1)")
    add("--window", type=float, default=10.0, help="width of the plot's moving average (default 10 units)")
    add("--quick", action="store_true", help="at most 200 pages, 40 crawls per unit and 60 units")
    add("--out", type=Path, metavar="DIR", help="write CSV files and a plot there")


def _add_explore(command: argparse.ArgumentParser) -> None:
    text = "share of crawls spent on exploration while learning (default: the service's)"
    command.add_argument("--explore", type=float, help=text)


def _add_floors(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--explores", type=_numbers, default=[0.01, 0.02, 0.05, 0.1], metavar="E,...", help="values to try")
    add("--minimums", type=_numbers, default=[0.01, 0.02, 0.05], metavar="M,...", help="values to try")
