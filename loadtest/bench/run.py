"""`freshet bench`: starts everything itself, measures in turns, and says what was reached."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from loadtest.bench import report
from loadtest.bench.client import Load
from loadtest.bench.cluster import cluster
from loadtest.bench.figures import Findings
from loadtest.bench.growth import growth
from loadtest.bench.intake import batches_round
from loadtest.bench.peers.race import peers_round
from loadtest.bench.plan import PARTS, Bench, Plan
from loadtest.bench.reprice import reprice
from loadtest.bench.serving import next_round, noop_round, script_round
from loadtest.bench.shared import Part, run_rounds
from loadtest.bench.state import Step
from loadtest.bench.targets import judge

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
ROUNDS: dict[str, Part] = {
    "noop": noop_round,
    "script": script_round,
    "next": next_round,
    "batches": batches_round,
    "peers": peers_round,
}
ALONE = {"growth": growth, "reprice": reprice, "cluster": cluster}
RESULTS = Path(__file__).parents[1] / "RESULTS.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    plan = plan_of(options)
    out = options.out or (None if options.short or options.only else RESULTS)
    if out is not None:  # now: it would be late to find that there is no such folder
        out.parent.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell had them ignored
        signal.signal(number, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else 120)
    findings = Findings()
    try:
        with Load() as load, _progress(console) as step:
            bench = Bench(plan, load, findings, step)
            run_rounds(bench, ROUNDS)
            for name, part in ALONE.items():
                if name in plan.parts:
                    part(bench)
    except KeyboardInterrupt:
        console.print("Stopped; nothing was written.")
        return 130
    verdicts = judge(findings, plan)
    console.print(report.figures_table(findings))
    console.print(report.verdicts_table(verdicts))
    if out is not None:
        command = shlex.join(["freshet", "bench", *arguments])
        report.write_results(out, findings, verdicts, plan, command)
        console.print(f"Written to {out}")
    return 0


def plan_of(options: argparse.Namespace) -> Plan:
    """What the options ask for."""
    parts = options.only or ([name for name in PARTS if name != "peers"] if options.short else PARTS)
    plan = Plan(parts=frozenset(parts), env_dir=options.env_dir)
    if options.short:
        plan = _shortened(plan)
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    if options.pages:
        sizes = tuple(size for size in SIZES if size < options.pages)
        sweep_pages = min(plan.sweep_pages, options.pages)
        plan = replace(plan, sizes=(*sizes, options.pages), sweep_pages=sweep_pages)
    return plan


def _shortened(plan: Plan) -> Plan:
    """Everything once, as small as it can be."""
    return replace(
        plan,
        rounds=1,
        window_s=0.1,
        pages=2000,
        counts=(1, 50),
        connections=(32,),
        processes=(1,),
        batches=3,
        sizes=(500, 1000),
        sweep_pages=1000,
        cluster_pages=1000,
        peer_pages=500,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="freshet bench",
        description="Measures how near the service comes to what this machine can do: beside endpoints that "
        "do nothing, beside the store's functions without HTTP, beside other frontiers, and as the number of "
        "pages grows. Starts everything itself, on this machine only, and stops it.",
        epilog="Parts: " + "; ".join(f"{name}: {text}" for name, text in PARTS.items()) + ".",
    )
    add = parser.add_argument
    add(
        "--short",
        action="store_true",
        help="all but the peers, tiny, in about half a minute: no figures to quote",
    )
    add(
        "--only",
        action="append",
        choices=tuple(PARTS),
        metavar="PART",
        help="measure only this part; may be given several times (ratios need both of their parts)",
    )
    add("--rounds", type=_positive, help="rounds of each part (default 5)")
    add(
        "--pages",
        type=_positive,
        help="the most pages `growth` goes up to (default 1000000; 10000000 takes a while); below 1000000 "
        "`reprice` sweeps so many too",
    )
    add(
        "--env-dir",
        type=Path,
        default=Path("~/.cache/freshet-bench"),
        help="folder of the peers' environments (default %(default)s)",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the report there, and a plot beside it (default loadtest/RESULTS.md, with --short and "
        "--only nowhere)",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


@contextmanager
def _progress(console: Console) -> Iterator[Step]:
    """Says what is going on: in place on a terminal, line by line elsewhere."""
    if not console.is_terminal:
        yield lambda text: console.print(text, highlight=False)
        return
    with console.status("starting") as status:
        yield status.update


if __name__ == "__main__":
    sys.exit(main())
