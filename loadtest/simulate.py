"""`freshet simulate`: the scheduler on a synthetic web, beside the exact policy and the optimum."""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from loadtest.drive import Plan, simulate
from loadtest.experiments import EXPERIMENTS
from loadtest.experiments import main as run_experiment
from loadtest.lab.run import main as run_lab
from loadtest.population import POPULATIONS
from loadtest.progress import show_progress
from loadtest.reference import run_reference
from loadtest.report import EXACT, OURS, Result, freshness_table, step_table, write_runs
from loadtest.schedule import Schedule, parse_schedule
from loadtest.web import SyntheticWeb
from service.embedded import EmbeddedServer


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in EXPERIMENTS:
        return run_experiment(arguments)
    if any(argument.split("=")[0] == "--experiment" for argument in arguments):
        return run_lab(arguments)
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.quick:
        options.pages, options.time = min(options.pages, 300), min(options.time, 40.0)
    for name in ("pages", "hosts", "runs", "bandwidth", "time", "sweep_every"):
        if not 0 < getattr(options, name) < math.inf:
            parser.error(f"--{name.replace('_', '-')} must be more than 0")
    try:
        schedule = parse_schedule(options.bandwidth, options.steps, options.time)
    except ValueError as error:
        parser.error(str(error))
    warm_up = options.warm_up or max(10.0, 5 * options.pages / options.bandwidth)
    if warm_up >= (schedule.steps[1:] or ((schedule.end, 0.0),))[0][0]:
        parser.error(f"the warm-up of {warm_up:g} units leaves nothing to measure before the step")
    console = Console(width=None if sys.stdout.isatty() else 120)
    results = [
        _run(options, schedule, warm_up, options.seed + number, console) for number in range(options.runs)
    ]
    console.print(freshness_table(results))
    if len(schedule.steps) > 1:
        console.print(step_table(results, options.window))
    if options.out is not None:
        write_runs(results, options.out, options.seed)
        console.print(f"Written to {options.out}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="freshet simulate",
        description="Runs the scheduler, through its HTTP interface and on a clock of its own, on a "
        "synthetic web whose pages change at random and signal some of their changes. Reports how "
        "often a reader finds a fresh copy, beside the exact policy on the same web and the optimum "
        "of any policy. One unit of time is a simulated day.",
        epilog="Experiments with the service have options of their own: `freshet simulate learn --help`, "
        "`… poison --help`, `… floors --help`, `… policies --help`, `… skew --help`; so have those of the "
        "papers: "
        "`freshet simulate --experiment list`, `--experiment fig4 --help`.",
    )
    add = parser.add_argument
    add("--pages", type=int, default=1000, help="pages on the web (default %(default)s)")
    add("--hosts", type=int, default=50, help="hosts they are spread over (default %(default)s)")
    add("--bandwidth", type=float, default=100.0, help="crawls per unit of time (default 100)")
    add("--time", type=float, default=400.0, help="units of time to simulate (default 400)")
    add(
        "--steps",
        default="",
        metavar="T:R,...",
        help='turn the bandwidth to R at time T, for example "200:150,300:100"',
    )
    add("--seed", type=int, default=1, help="seed of the first web (default %(default)s)")
    add("--runs", type=int, default=1, help="webs to simulate, one seed each (default 1)")
    add(
        "--population",
        choices=sorted(POPULATIONS),
        default="noisy",
        help="noisy: signals of every quality; silent: no signals; shared: hosts share precision "
        "and recall; mixed: hosts share recall and the rate of false signals; skewed: noisy, with hosts of "
        "Zipf sizes and rates (default noisy)",
    )
    add("--signal-delay", type=float, default=0.0, help="mean delay of signals, units (default 0)")
    add("--min-delay", type=float, default=0.0, help="seconds between two crawls of a host (default 0)")
    add("--sweep-every", type=float, default=0.25, help="units between re-pricings (default 0.25)")
    add(
        "--warm-up",
        type=float,
        default=0.0,
        help="units left out at the start, when no page has been crawled yet "
        "(default 5 x pages/bandwidth, at least 10)",
    )
    add("--judge-every", type=int, default=1, help="judge one pick in so many, 0: none (default 1)")
    add("--window", type=float, default=5.0, help="width of the moving average (default 5 units)")
    add("--quick", action="store_true", help="at most 300 pages and 40 units: under a minute")
    add("--out", type=Path, metavar="DIR", help="write CSV files and a plot there")
    return parser


def _run(
    options: argparse.Namespace, schedule: Schedule, warm_up: float, seed: int, console: Console
) -> Result:
    population = POPULATIONS[options.population](np.random.default_rng(seed), options.pages, options.hosts)

    def web() -> SyntheticWeb:
        return SyntheticWeb(population, np.random.default_rng([seed, 1]), signal_delay=options.signal_delay)

    plan = Plan(
        schedule,
        sweep_every=options.sweep_every,
        judge_from=warm_up,
        judge_every=options.judge_every,
        min_delay_s=options.min_delay,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer(Path(folder)) as server,
        show_progress(schedule.crawls, f"seed {seed}", console) as report,
    ):
        ours = asyncio.run(simulate(server.url, web(), plan, report))
    return Result(population, schedule, warm_up, {OURS: ours, EXACT: run_reference(web(), schedule)})


if __name__ == "__main__":
    sys.exit(main())
