"""End the processes that a dead driver left behind.

The driver starts it as `python -m themis_lab.testbed.reaper VALUE [MARK]`.

It reads its standard input, a pipe whose other end only the driver holds. However the driver ends, even by SIGKILL, the
kernel closes that end; then every process is killed that was started with the environment variable MARK, by default the
run's, set to VALUE. After a run that ended well there is none left.
"""

from __future__ import annotations

import signal
import sys

RUN_MARK = "THEMIS_RUN_ID"


def main(arguments: list[str]) -> int:
    """Wait for the end of the input, then kill what carries the mark; returns how many would not die."""
    value, mark = (*arguments, RUN_MARK)[:2]
    # Ctrl-C and a closed terminal are meant for the driver, which may need this process after them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    # Only now: while it waits it should cost next to nothing.
    from themis.processes import kill_marked

    return len(kill_marked({mark: value}, wait_s=10.0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
