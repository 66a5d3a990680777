"""The lines of a view as a section of the report, and as JSON."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from themis_lab.paper.live.findings import Line, Shown
from themis_lab.paper.report_frame import ReportSection, finite, number_text

HEADINGS = ("what", "paper", "testbed", "simulator", "testbed / paper", "simulator / testbed")


def cells(line: Line) -> tuple[str, ...]:
    """A line as text, under HEADINGS."""
    numbers = (line.testbed, line.simulator, line.over_paper, line.predicted)
    return line.what, line.paper, *(number_text(number) for number in numbers)


def section(shown: Shown) -> ReportSection:
    """The comparison of a view with the paper and with the simulator."""
    return ReportSection(
        name=shown.view.name,
        title=shown.view.title,
        figure=shown.figure.name if shown.figure else "",
        headings=HEADINGS,
        rows=tuple(cells(line) for line in shown.lines),
        remarks=tuple(f"{line.what}: {line.remark}" for line in shown.lines if line.remark),
    )


def document(line: Line) -> dict[str, Any]:
    """A line for programs. Numbers that are not finite become null."""
    values = to_builtins(line) | {"testbed_over_paper": line.over_paper, "simulator_over_testbed": line.predicted}
    return {key: finite(value) if isinstance(value, float) else value for key, value in values.items()}
