"""Kill the processes that a dead driver left.

The driver starts it as `python -m themis_lab.testbed.reaper VALUE [MARK]`.

It reads its standard input, a pipe whose other end only the driver holds. However the driver ends, even by SIGKILL, the
kernel closes that end. Then the reaper kills every process that was started with the environment variable MARK (by
default the run's) set to VALUE. After a successful run there is none.
"""

from __future__ import annotations

import signal
import sys

RUN_MARK = "THEMIS_RUN_ID"


def main(arguments: list[str]) -> int:
    """Wait for the end of the input, then kill the marked processes. Returns the number that did not die."""
    value, mark = (*arguments, RUN_MARK)[:2]
    # Ctrl-C and a closed terminal are for the driver, which may need this process after them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    # Imported late: while it waits the process should cost almost nothing.
    from themis.processes import kill_marked

    return len(kill_marked({mark: value}, wait_s=10.0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
