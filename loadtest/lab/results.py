"""What the experiments found, as one page to read: the paper's claim, ours, the command, the time it took."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from loadtest.findings import Findings
from loadtest.lab.experiment import Experiment

HEAD = """# What the papers claim, and what we find

Written by `make lab`: every experiment in full, two at a time. Each table has the command that makes it
alone; ± is one standard error over repetitions. `freshet simulate --experiment list` says what each is
about; the plots are in `results/`.

"""


@dataclass(frozen=True, slots=True)
class Result:
    """What one experiment found, and what that took."""

    findings: Findings
    name: str
    command: str
    repetitions: int
    cpu_s: float
    wall_s: float


def write_results(
    results: Iterable[Result], known: dict[str, Experiment], path: Path, plots: Path | None
) -> None:
    """One section per experiment."""
    sections = [_section(result, known[result.name], path, plots) for result in results]
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}."
    path.write_text(HEAD + machine + "\n\n" + "\n".join(sections))


def _section(result: Result, experiment: Experiment, path: Path, plots: Path | None) -> str:
    lines = [f"## {result.name}: {result.findings.title}", ""]
    lines += [f"*{experiment.paper}.* {experiment.claim}", ""]
    lines += [f"`{result.command}`: {result.cpu_s:.0f} s of processor time, {result.wall_s:.0f} s.", ""]
    lines += [result.findings.markdown(), ""]
    lines += [f"{note}\n" for note in result.findings.notes]
    if experiment.differs:
        lines += [f"**Differs:** {experiment.differs}", ""]
    if plots is not None and result.findings.curves:
        where = os.path.relpath(plots / f"{result.findings.name}.png", path.parent)
        lines += [f"![{result.findings.title}]({where})", ""]
    return "\n".join(lines)
