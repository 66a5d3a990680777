"""Standard output and error of a command: either may be closed or full, and its reader may have gone away."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

EXIT_UNREAD = 128 + signal.SIGPIPE
"""As a shell has it of any command whose reader went away."""


class _Forgiving(io.FileIO):
    """A file where what finds no room is lost. That its reader went away is told."""

    def write(self, data: Any, /) -> int:
        """Write it, or act as if it were written."""
        size = memoryview(data).nbytes
        try:
            written = super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return size
        # None where a pipe that blocks nobody is full.
        return size if written is None else written


def usable_streams(command: str) -> bool:
    """Whether there is a standard output. From here on nothing fails for want of a standard error.

    One that is closed leads nowhere, and what one that is full cannot take is lost: results go to standard output.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    elif (former := sys.__stderr__) is not None and sys.stderr is former:
        raw = io.BufferedWriter(_Forgiving(former.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, former.encoding, "backslashreplace", line_buffering=True)
    if sys.stdout is None:
        tell(f"{command}: standard output is closed; send it to /dev/null where nobody wants it")
        return False
    return True


def tell(line: str) -> None:
    """Write a line to standard error; what cannot be written there is lost."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        _lead_nowhere(sys.stderr)


def unread() -> bool:
    """Whether the reader of standard output or error went away; a pipe that broke may also lead elsewhere."""
    return any(_reader_gone(stream) for stream in (sys.stdout, sys.stderr))


def drop_unwritten() -> None:
    """Python would complain once more, at its exit, of what cannot be written."""
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
        # A stream of a test, which is no file.
        return False
    return bool(poll.poll(0))


def _lead_nowhere(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
