"""`freshet simulate --experiment NAME`: runs experiments of the papers, shows and writes what they found."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtest.drive import Report
from loadtest.findings import Findings
from loadtest.lab.catalogue import catalogue
from loadtest.lab.experiment import Effort, Experiment
from loadtest.lab.results import Result, write_results
from loadtest.progress import show_progress

STEPS = 1000  # of a progress bar
ALL, LIST = "all", "list"


@dataclass(frozen=True, slots=True)
class Order:
    """One experiment to run, and how much of it."""

    name: str
    seed: int
    repetitions: int
    short: bool


def main(argv: Sequence[str]) -> int:
    """Run what is asked for; the exit status."""
    known = catalogue()
    parser = _parser(known)
    options = parser.parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 140)
    if options.experiment == LIST:
        console.print(_listing(known))
        return 0
    names = list(known) if options.experiment == ALL else [options.experiment]
    orders = [_order(known[name], options) for name in names]
    results = []
    for result in _run_all(orders, options.jobs, console):
        console.print(result.findings.table())
        for note in result.findings.notes:
            console.print(note)
        if options.out is not None:
            result.findings.write(options.out)
        results.append(result)
    if options.results is not None:
        write_results(results, known, options.results, options.out)
    return 0


def _order(experiment: Experiment, options: argparse.Namespace) -> Order:
    repetitions = options.repetitions or (min(2, experiment.repetitions) if options.short else 0)
    return Order(experiment.name, options.seed, repetitions or experiment.repetitions, options.short)


def run_one(order: Order, report: Callable[[float], None] = lambda _: None) -> Result:
    """Run an experiment in this process."""
    effort = Effort(order.seed, order.repetitions, order.short, report)
    wall, cpu = time.perf_counter(), time.process_time()
    findings: Findings = catalogue()[order.name].run(effort)
    return Result(
        findings=findings,
        name=order.name,
        command=_command(order),
        repetitions=order.repetitions,
        cpu_s=time.process_time() - cpu,
        wall_s=time.perf_counter() - wall,
    )


def _run_all(orders: list[Order], jobs: int, console: Console) -> Iterator[Result]:
    """Results in the orders' order."""
    if jobs == 1 or len(orders) == 1:
        for order in orders:
            with show_progress(STEPS, order.name, console) as report:
                result = run_one(order, partial(_report_share, report))
            yield result
        return
    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        show_progress(len(orders), "experiments", console) as report,
    ):
        futures = [pool.submit(run_one, order) for order in orders]
        for done, _ in enumerate(as_completed(futures), 1):
            report(done)
        yield from [future.result() for future in futures]


def _report_share(report: Report, share: float) -> None:
    report(round(STEPS * share))


def _command(order: Order) -> str:
    words = ["freshet simulate --experiment", order.name, "--seed", str(order.seed)]
    words += ["--repetitions", str(order.repetitions)]
    return " ".join(words + ["--short"] * order.short)


def _listing(known: dict[str, Experiment]) -> Table:
    table = Table("experiment", "paper", "claim", title="Experiments")
    for experiment in known.values():
        table.add_row(experiment.name, experiment.paper, experiment.claim)
    return table


def _parser(known: dict[str, Experiment]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="freshet simulate --experiment",
        description="Runs an experiment of the papers on synthetic webs, without a store: a table, and with "
        "--out a CSV file and a plot. `--experiment list` says what each shows.",
    )
    add = parser.add_argument
    names = [*known, ALL, LIST]
    add("--experiment", required=True, choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    add("--seed", type=int, default=1, help="of the random numbers (default 1)")
    add(
        "--repetitions", type=int, default=0, help="instances to average over (default: the experiment's own)"
    )
    add("--short", action="store_true", help="smaller instances, a few seconds each")
    add("--jobs", type=int, default=1, help="experiments at a time, each in a process of its own (default 1)")
    add("--out", type=Path, metavar="DIR", help="write CSV files and plots there")
    add("--results", type=Path, metavar="FILE", help="write all tables as one Markdown file")
    return parser
