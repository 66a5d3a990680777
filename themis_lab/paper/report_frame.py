"""The report frame of the simulated reproduction and of the live experiment: sections, figures, CSV.

A section compares the paper's numbers with ours: a title, a figure, a table and remarks. Both experiments build
sections from their own lines. This module writes them as text and Markdown.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from themis.values import Value
from themis_lab.paper.statistics import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ReportSection(Value, frozen=True, kw_only=True):
    """One figure or table of the paper, compared with our results.

    Attributes:
        name: The experiment's or view's name, for example `fig9`.
        title: What it shows.
        figure: File name of the figure; empty for a table without a figure.
        headings: Column headings of the table.
        rows: Cells of the table as text. The first column is text, the others are numbers.
        remarks: Sentences below the table.
    """

    name: str
    title: str
    figure: str = ""
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Name and title."""
        return f"{self.name}: {self.title}"

    def text(self) -> str:
        """The section for a terminal, without the figure."""
        lines = [self.headings, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        table = ["  ".join(_aligned(line, widths)).rstrip() for line in lines]
        remarks = [f"* {remark}" for remark in self.remarks]
        return "\n".join([self.heading, "", *table, *(["", *remarks] if remarks else [])]) + "\n"

    def markdown(self, mark: str) -> str:
        """The section for a page. `mark` starts its heading, for example `##`."""
        figure = [f"![{self.title}]({self.figure})", ""] if self.figure else []
        table = [
            f"| {' | '.join(self.headings)} |",
            f"|{'|'.join(['---', *['---:'] * (len(self.headings) - 1)])}|",
            *(f"| {' | '.join(row)} |" for row in self.rows),
        ]
        remarks = [f"- {remark}" for remark in self.remarks]
        return "\n".join([f"{mark} {self.heading}", "", *figure, *table, *(["", *remarks] if remarks else [])]) + "\n"


def figure_png(draw: Callable[[], Figure | None], note: str = "") -> bytes | None:
    """Draw a figure in the house style and return it as PNG.

    Drawing needs no display, and equal input gives equal bytes.

    Args:
        draw: Returns the figure, or None if there is none.
        note: A line above the figure.

    Returns:
        The PNG, or None if there is no figure.
    """
    # Imported late: commands that draw nothing start faster.
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from themis_lab.paper.plotting import house_style

    stream = io.BytesIO()
    with house_style():
        figure = draw()
        if figure is None:
            return None
        FigureCanvasAgg(figure)
        if note:
            # Above the panels, because legends are below them.
            figure.suptitle(note, fontsize=6.5, x=0.01, ha="left")
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def csv_text(rows: Sequence[Row]) -> str:
    """Format rows as CSV. Reading the text back gives the same numbers."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def number_text(value: float | None) -> str:
    """Format a number with three significant digits, without an exponent where that is readable.

    Returns an empty text for None, and `none` for infinity and nan.
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return "none"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def finite(value: float | None) -> float | None:
    """Return the number for a JSON document: None instead of infinity and nan."""
    return value if value is not None and math.isfinite(value) else None


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The first column to the left, numbers to the right."""
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
