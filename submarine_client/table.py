"""Format tables, numbers and times for the command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from submarine_client.terminal import harmless
from themis.apps import HyperParameter

MISSING = "-"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table. Columns are two spaces apart and as wide as their widest cell; numbers are right-aligned.

    Characters that could take over a terminal are made visible.
    """
    rows = [[harmless(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    last = len(columns) - 1
    right = [bool(rows) and at < last and all(map(_numeric, column[1:])) for at, column in enumerate(columns)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (header, *rows)
    )


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
