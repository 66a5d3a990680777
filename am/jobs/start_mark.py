"""The line in a job's log by which its reader, and whoever reads it, tells one incarnation from the next."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from am.profiler.themis_format import begun_line
from themis.files import open_regular

LOG = logging.getLogger("themis.am.log")


def mark_start(log: Path, incarnation: int) -> None:
    """Write into a log that an incarnation begins, behind all that those before have written; an empty log needs none.

    In the log it is in its place for good: also for the app master's next attempt, which reads all of it at once. A
    line that a killed writer left without its end gets one. Written by one append: what another writer of the log adds
    meanwhile, such as a process that outlived its incarnation, stays.
    """
    try:
        with os.fdopen(open_regular(log, os.O_RDONLY), "rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return
            file.seek(-1, os.SEEK_END)
            end = b"" if file.read(1) == b"\n" else b"\n"
        # A log that was removed since then is not made anew.
        appending = open_regular(log, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(appending, end + begun_line(incarnation).encode() + b"\n")
        finally:
            os.close(appending)
    except FileNotFoundError:
        return
    except OSError as error:
        # A full disk, perhaps: nothing that a start should fail for.
        LOG.warning("%s: the start of incarnation %d is not marked: %s", log, incarnation, error)
