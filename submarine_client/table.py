"""Format tables, numbers and times for the command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from submarine_client.terminal import UNLIMITED, harmless, wrapped
from themis.apps import HyperParameter

MISSING = "-"
_GAP = "  "
_INDENT = "    "
_NARROWEST = 30
"""Columns that a text needs at least if it is to be broken into lines."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = UNLIMITED) -> str:
    """Format a table. Columns are two spaces apart and as wide as their widest cell; numbers are right-aligned.

    A column that does not fit `width` is broken into lines if at least `_NARROWEST` columns are left for it. Otherwise
    it stands on a further line of each row, indented, with those that follow.

    Characters that could take over a terminal are made visible.
    """
    rows = [[harmless(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    last = len(columns) - 1
    right = [bool(rows) and at < last and all(map(_numeric, column[1:])) for at, column in enumerate(columns)]
    lines = _lines_of_row([max(map(len, column)) for column in columns], width)
    return "\n".join(
        _line(
            _INDENT if place else "",
            [row[at].rjust(fitting) if right[at] else row[at].ljust(fitting) for at, fitting in line],
            width,
        )
        for row in (header, *rows)
        for place, line in enumerate(lines)
    )


def _lines_of_row(widths: Sequence[int], width: int) -> list[list[tuple[int, int]]]:
    """Distribute a row's columns over lines: the index and the width of each column."""
    lines: list[list[tuple[int, int]]] = [[]]
    left = width
    for at, column in enumerate(widths):
        if lines[-1] and min(column, _NARROWEST) > left:
            lines.append([])
            left = width - len(_INDENT)
        lines[-1].append((at, min(column, left)))
        left -= column + len(_GAP)
    return lines


def _line(start: str, cells: Sequence[str], width: int) -> str:
    *before, last = cells
    return wrapped(start + "".join(cell + _GAP for cell in before), last.rstrip(), width).rstrip()


def number(value: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits, or `-` for NaN."""
    return MISSING if math.isnan(value) else f"{value:.{digits}g}"


def percent(share: float) -> str:
    """Format a share of 1 in whole percent, rounded down: 0.999 is 99 %."""
    return MISSING if math.isnan(share) else f"{int(share * 100 + 1e-9)} %"


def seconds(duration_s: float) -> str:
    """Format a duration: seconds below two minutes, else hours, minutes and seconds."""
    if duration_s < 120:
        return f"{duration_s:.1f} s"
    minutes, rest = divmod(int(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"


def age(duration_s: float) -> str:
    """Format how long ago something was, in its largest unit: `42s`, `7m`, `3h`, `12d`; for times to come `0s`."""
    for unit, unit_s in (("d", 86400), ("h", 3600), ("m", 60)):
        if duration_s >= 2 * unit_s:
            return f"{int(duration_s / unit_s)}{unit}"
    return f"{max(0, int(duration_s))}s"


def shortened(text: str, width: int) -> str:
    """Cut a text to `width` characters, the last of them `…` if something is missing."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def moment(time_s: float) -> str:
    """Format a time in the local time zone, or `-` for no time."""
    if time_s <= 0:
        return MISSING
    return datetime.fromtimestamp(time_s).astimezone().isoformat(sep=" ", timespec="seconds")


def assignments(values: Mapping[str, HyperParameter]) -> str:
    """Format pairs as `name=value`, numbers in the shortest form that reads back the same."""
    return " ".join(f"{name}={value}" for name, value in values.items()) or MISSING


def _numeric(cell: str) -> bool:
    text = cell.removesuffix(" %")
    return text == MISSING or text.replace(".", "", 1).replace("e-", "").replace("e+", "").isdigit()
