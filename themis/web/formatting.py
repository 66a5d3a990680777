"""Format numbers and times for pages and for JSON. Pure, except that `moment` uses the local time zone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

MISSING = "-"


def finite(value: float | None) -> float | None:
    """Return the number, or None if it is None, NaN or infinite: JSON has neither NaN nor infinities."""
    return None if value is None or not math.isfinite(value) else value


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with `digits` significant digits; a dash stands for an unknown number (None or NaN)."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def percent(share: float | None) -> str:
    """Format a share of 1 in whole percent, rounded down: 0.999 is `99 %`; a dash stands for no finite percentage."""
    return MISSING if share is None or not math.isfinite(100.0 * share) else f"{int(share * 100 + 1e-9)} %"


def duration(seconds: float | None) -> str:
    """Format a duration: milliseconds below 1 s, seconds below 2 min, else hours, minutes and seconds."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if 0 < seconds < 1:
        return f"{1e3 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds else "0 s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"


def from_now(time_s: float, now_s: float) -> str:
    """Format a time relative to `now_s`: `in 5.0 s`, `5.0 s ago`."""
    away_s = time_s - now_s
    return f"in {duration(away_s)}" if away_s > 0 else f"{duration(-away_s)} ago"


def moment(time_s: float | None) -> str:
    """Format a time in the local time zone; a dash stands for no time (None or 0)."""
    if not time_s:
        return MISSING
    return datetime.fromtimestamp(time_s).astimezone().isoformat(sep=" ", timespec="seconds")


def assignments(values: Mapping[str, object]) -> str:
    """Format pairs as `name=value`, separated by spaces; a dash if there are none."""
    return " ".join(f"{name}={value}" for name, value in values.items()) or MISSING


def counted(count: int, what: str) -> str:
    """Format a count with its noun, in the plural unless it is 1: `1 GPU`, `2 GPUs`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
