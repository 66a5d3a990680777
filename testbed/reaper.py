"""Ends what a driver leaves behind when it dies: `python -m testbed.reaper RUN_ID`, started by the driver.

It reads its standard input, a pipe whose other end only the driver holds. However the driver ends, even by SIGKILL, the
kernel closes that end; then every process that carries the run's mark is killed. After a run that ended well there is
none left.
"""

from __future__ import annotations

import signal
import sys

RUN_MARK = "THEMIS_RUN_ID"


def main(arguments: list[str]) -> int:
    """Wait for the end of the input, then kill the run's processes; returns how many would not die."""
    (run_id,) = arguments
    # Ctrl-C and a closed terminal are meant for the driver, which may need this process after them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    # Only now: while it waits it should cost next to nothing.
    from themis.processes import kill_marked

    return len(kill_marked({RUN_MARK: run_id}, wait_s=10.0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
