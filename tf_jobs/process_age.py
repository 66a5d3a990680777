"""How long this process has been there. Linux only."""

from __future__ import annotations

import os
import time
from pathlib import Path

_START_FIELD = 22 - 3
"""Of `/proc/PID/stat`, counted after the name in parentheses, which is its second field (proc_pid_stat(5))."""


def process_age_s() -> float:
    """Seconds since this process was forked, to a hundredth; what it was before it became this program counts."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    started_s = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
