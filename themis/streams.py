"""Standard output and error of a command, robust against closed streams, full disks and closed pipes."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

EXIT_READER_CLOSED = 128 + signal.SIGPIPE
"""The exit code if the reader closed the pipe: the one that a shell reports for a command ended by SIGPIPE."""


class _LossyFile(io.FileIO):
    """A file that drops data it cannot write, as on a full disk. A closed pipe still raises BrokenPipeError."""

    def write(self, data: Any, /) -> int:
        """Write the data, or drop it. Returns its full size in both cases."""
        size = memoryview(data).nbytes
        try:
            written = super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return size
        # FileIO.write returns None if a non-blocking pipe is full.
        return size if written is None else written


def usable_streams(command: str) -> bool:
    """Make standard error safe to write to. Returns whether standard output is open, and writes a message if not.

    From then on a closed standard error leads to /dev/null, and a full one drops what it cannot take. No command fails
    because of it: results go to standard output.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    elif (former := sys.__stderr__) is not None and sys.stderr is former:
        raw = io.BufferedWriter(_LossyFile(former.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, former.encoding, "backslashreplace", line_buffering=True)
    if sys.stdout is None:
        write_stderr(f"{command}: standard output is closed; redirect it to /dev/null to discard it")
        return False
    return True


def write_stderr(line: str) -> None:
    """Write a line to standard error, or drop it if that fails."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        _lead_nowhere(sys.stderr)


def reader_closed() -> bool:
    """Whether the reader of standard output or standard error closed the pipe.

    A BrokenPipeError alone does not say so: it may come from a network connection.
    """
    return any(_reader_gone(stream) for stream in (sys.stdout, sys.stderr))


def drop_unwritten() -> None:
    """Flush both streams and drop what cannot be written: Python would report the same error again at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _lead_nowhere(stream)


def _reader_gone(stream: TextIO) -> bool:
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except OSError:
        # A stream without a file descriptor, as in tests.
        return False
    return bool(poll.poll(0))


def _lead_nowhere(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
