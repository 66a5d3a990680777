"""How much memory a process and its descendants hold, from /proc. Linux only.

Why the runtime looks instead of setting a limit of the kernel's: RLIMIT_AS counts address space, of which TensorFlow
reserves gigabytes that it never touches; RLIMIT_DATA counts every thread's stack whole, 8 MB each, so that what is
enough on a small machine is too little on one with many cores; control groups need rights that a user does not have.
Engines with containers of their own enforce the limit there.
"""

from __future__ import annotations

from pathlib import Path

_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


def tree_memory_mb(pid: int) -> float:
    """Memory of a process and its descendants, in MB: what they wrote, in RAM or swapped out.

    Pages that several of them share are counted for each. Mapped files, program code among them, are left out, as the
    system can drop them at will. A process that has ended holds nothing.
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
            # It ended meanwhile, or the kernel was built without lists of children.
            continue
    return total_kb / 1024


def _counted_kb(status: str) -> int:
    fields = (line.split() for line in status.splitlines() if line.startswith(_COUNTED))
    return sum(int(field[1]) for field in fields)
