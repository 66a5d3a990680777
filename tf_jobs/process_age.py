"""The age of this process. Linux only."""

from __future__ import annotations

import os
import time
from pathlib import Path

_START_FIELD = 22 - 3
"""Index of the start time in `/proc/PID/stat`, after the second field, the name in parentheses (proc_pid_stat(5))."""


def process_age_s() -> float:
    """Return the seconds since this process was forked, to a hundredth. Time before an exec counts too."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    started_s = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
