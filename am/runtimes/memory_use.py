"""Measure the memory of a process and its descendants from /proc. Linux only.

The process that starts a task measures it: the app master, or the task host in a container. So all engines measure
alike. It polls, because no limit of the kernel fits:

* RLIMIT_AS counts address space. TensorFlow reserves gigabytes of it that it never touches.
* RLIMIT_DATA counts 8 MB for every thread's stack. So the right limit would depend on the number of cores.
* Control groups need rights that a user does not have. Where the service has them, they limit the task too.

Engines with containers enforce the limit in the container instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CHECK_S = 5.0
"""Seconds between two checks of a task that has run for a while. A shorter peak may be missed."""

_FIRST_CHECK_S = 0.25

_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


def check_pauses_s(max_s: float = CHECK_S) -> Iterator[float]:
    """Yield the pauses after the checks of a task: short at first, so that short runs are measured too.

    Each is twice the one before, up to `max_s`: 0.25, 0.5, 1, 2, 4, 5, 5 s.
    """
    pause_s = _FIRST_CHECK_S
    while True:
        yield min(pause_s, max_s)
        pause_s = min(2.0 * pause_s, max_s)


def tree_memory_mb(pid: int) -> float:
    """Return the memory that a process and its descendants have written, in RAM or swapped out, in MB.

    Shared pages count once per process. Mapped files, including program code, do not count, because the system can drop
    them at any time. A process that has ended has no memory.
    """
    total_kb = 0
    waiting = [pid]
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        try:
            total_kb += _counted_kb((process / "status").read_text(encoding="utf-8", errors="replace"))
            for thread in (process / "task").iterdir():
                waiting += [int(child) for child in (thread / "children").read_text(encoding="ascii").split()]
        except OSError:
            # The process ended meanwhile, or the kernel was built without lists of children.
            continue
    return total_kb / 1024


def _counted_kb(status: str) -> int:
    fields = (line.split() for line in status.splitlines() if line.startswith(_COUNTED))
    return sum(int(field[1]) for field in fields)
