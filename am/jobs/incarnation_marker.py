"""A line in a job's log that separates the output of two incarnations."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from am.profiler.themis_format import begun_line
from themis.files import open_regular

LOG = logging.getLogger("themis.am.log")


def mark_incarnation(log: Path, incarnation: int) -> None:
    """Append a line that an incarnation begins. An empty log needs none.

    The log keeps the marker for later readers, such as the app master's next attempt, which reads all of it at once. A
    last line without a newline (its writer was killed) gets one. One append writes all: text that another process adds
    meanwhile, for example a task that outlived its incarnation, is kept.
    """
    try:
        with os.fdopen(open_regular(log, os.O_RDONLY), "rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return
            file.seek(-1, os.SEEK_END)
            end = b"" if file.read(1) == b"\n" else b"\n"
        # Do not create a log that was removed since then.
        appending = open_regular(log, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(appending, end + begun_line(incarnation).encode() + b"\n")
        finally:
            os.close(appending)
    except FileNotFoundError:
        return
    except OSError as error:
        # For example a full disk: no reason to fail the start.
        LOG.warning("%s: the start of incarnation %d is not marked: %s", log, incarnation, error)
