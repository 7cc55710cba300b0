"""What an experiment found: one set of rows as a table and a CSV file, and curves as a plot."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from service.domain import Floats

Cell = str | float | int


@dataclass(slots=True)
class Findings:
    """Rows with the same names; curves over one axis."""

    name: str
    title: str
    axes: tuple[str, str]  # names of the plot's axes
    rows: list[dict[str, Cell]] = field(default_factory=list)
    curves: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    marks: list[float] = field(default_factory=list)  # where something happens on the first axis
    bars: dict[str, Floats] = field(default_factory=dict)  # standard errors of curves
    scales: tuple[str, str] = ("linear", "linear")  # of the axes; or "log"
    notes: list[str] = field(default_factory=list)  # sentences that belong under the table

    def table(self) -> Table:
        table = Table(title=self.title)
        for name, cell in self.rows[0].items():
            table.add_column(name, justify="left" if isinstance(cell, str) else "right")
        for row in self.rows:
            table.add_row(*(_text(cell) for cell in row.values()))
        return table

    def markdown(self) -> str:
        """The table as Markdown."""
        names = list(self.rows[0])
        lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
        lines += ["| " + " | ".join(_text(row[name]) for name in names) + " |" for row in self.rows]
        return "\n".join(lines)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self.name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
        if self.curves:
            self._write_curves(folder / f"{self.name}-curves.csv")
            self._plot(folder / f"{self.name}.png")

    def _write_curves(self, path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("curve", *self.axes))
            for name, (across, up) in self.curves.items():
                writer.writerows((name, f"{x:.6g}", f"{y:.6g}") for x, y in zip(across, up, strict=True))

    def _plot(self, path: Path) -> None:
        from matplotlib.figure import Figure  # slow to import, and only needed here

        figure = Figure(figsize=(9, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for name, (across, up) in self.curves.items():
            marker = "o" if len(across) < 12 else None
            axes.errorbar(across, up, yerr=self.bars.get(name), label=name, marker=marker, capsize=2)
        for mark in self.marks:
            axes.axvline(mark, color="grey", linestyle="dotted")
        axes.set(xlabel=self.axes[0], ylabel=self.axes[1], title=self.title)
        axes.set(xscale=self.scales[0], yscale=self.scales[1])
        axes.legend()
        figure.savefig(path, dpi=120)


def _text(cell: Cell) -> str:
    if not isinstance(cell, float):
        return str(cell)
    if math.isnan(cell):
        return "–"
    return f"{cell:.4f}" if cell == 0 or 1e-3 <= abs(cell) < 1e4 else f"{cell:.4g}"
