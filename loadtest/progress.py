"""A bar that shows how far a run has come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loadtest.drive import Report


@contextmanager
def show_progress(total: int, name: str, console: Console | None) -> Iterator[Report]:
    """Gives what to call with the number of crawls done."""
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=console is None) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done: progress.update(task, completed=done)
