"""Start a detached command: run as `python -I -S spawn.py LOG COMMAND..`, prints its process id.

A daemon whose starter lives on (a test session) would stay a zombie after its end until that starter asks for it. This
process starts it and ends at once, so that init is the one to ask. Standard library only: each daemon waits for it.
"""

from __future__ import annotations

import os
import subprocess
import sys


def main(arguments: list[str]) -> int:
    """Start the command in a session of its own; its output goes to the end of the log."""
    log, command = arguments[0], arguments[1:]
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    except OSError as error:
        sys.stderr.write(str(error))
        return 1
    sys.stdout.write(str(started.pid))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
