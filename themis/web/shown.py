"""Numbers and times as pages show them to people, and as JSON can hold them. Pure but for the local time zone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

MISSING = "-"


def finite(value: float | None) -> float | None:
    """A number for JSON, which has neither NaN nor infinities: None stands for what is not known."""
    return None if value is None or not math.isfinite(value) else value


def number(value: float | None, digits: int = 3) -> str:
    """A number to so many significant digits, a dash for one that is not known."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def percent(share: float | None) -> str:
    """A share of 1 in whole percent, never 100 before the end."""
    return MISSING if share is None or math.isnan(share) else f"{int(share * 100 + 1e-9)} %"


def duration(seconds: float | None) -> str:
    """A duration: milliseconds below a second, seconds below two minutes, else hours, minutes and seconds."""
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
    """A time as seen from now: `in 5.0 s`, `5.0 s ago`."""
    away_s = time_s - now_s
    return f"in {duration(away_s)}" if away_s > 0 else f"{duration(-away_s)} ago"


def moment(time_s: float | None) -> str:
    """A time in the local zone, a dash for none."""
    if not time_s:
        return MISSING
    return datetime.fromtimestamp(time_s).astimezone().isoformat(sep=" ", timespec="seconds")


def assignments(values: Mapping[str, object]) -> str:
    """`name=value` of each."""
    return " ".join(f"{name}={value}" for name, value in values.items()) or MISSING


def counted(count: int, what: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
