"""The lines of a view as text, Markdown and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from themis_lab.paper.live.findings import Line
from themis_lab.paper.output import number_text

HEADINGS = ("what", "paper", "testbed", "simulator", "testbed / paper", "simulator / testbed")


def cells(line: Line) -> tuple[str, ...]:
    """A line as text, under HEADINGS."""
    return (
        line.what,
        line.paper,
        _text(line.testbed),
        _text(line.simulator),
        _text(line.over_paper),
        _text(line.predicted),
    )


def markdown(title: str, figure: str, lines: Sequence[Line]) -> str:
    """A section: heading, figure where there is one, table, and the remarks."""
    head = [f"### {title}", "", *([f"![{title}]({figure})", ""] if figure else [])]
    table = [
        f"| {' | '.join(HEADINGS)} |",
        f"|{'|'.join(['---', *['---:'] * (len(HEADINGS) - 1)])}|",
        *(f"| {' | '.join(cells(line))} |" for line in lines),
    ]
    notes = [f"- {line.what}: {line.remark}" for line in lines if line.remark]
    return "\n".join([*head, *table, *(["", *notes] if notes else [])]) + "\n"


def document(line: Line) -> dict[str, Any]:
    """A line for programs; what is not finite becomes null."""
    values = asdict(line) | {"testbed_over_paper": line.over_paper, "simulator_over_testbed": line.predicted}
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }


def _text(value: float | None) -> str:
    return "" if value is None else number_text(value)
