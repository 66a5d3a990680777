"""Writes recordings of runs: whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from themis.errors import InputError
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.runs import Run

_UNFINISHED = ".part"
_DEVICES = Path("/dev")

Write = Callable[[Run, RunRecord], None]


@contextmanager
def opened_recording(path: Path | None) -> Iterator[Write]:
    """A function that writes a recording to `path`, or does nothing without one.

    The file is made at once, so that a run is not made in vain; it takes its name when it is whole. Of two runs that
    write the same file the last one counts, whole. A link stays, and what it leads to is written.

    Raises:
        InputError: There can be no such file, or no room for it.
    """
    if path is None:
        yield lambda *_: None
        return
    from themis_lab.simulator.recording import recording_lines

    with _told(path):
        target = _plain_file(path)
        part = target.with_name(f"{target.name}.{secrets.token_hex(4)}{_UNFINISHED}")
        stream = part.open("x", encoding="utf-8")

    def write(run: Run, record: RunRecord) -> None:
        with _told(path):
            stream.writelines(recording_lines(run, record))
            stream.close()
            part.replace(target)

    try:
        yield write
    finally:
        with suppress(OSError):
            # What could not be written is tried once more.
            stream.close()
        part.unlink(missing_ok=True)


def _plain_file(path: Path) -> Path:
    """Where a path leads; anything but a plain file, there or to be made, raises OSError."""
    target = Path(os.path.realpath(path))
    if not path.name or target.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    if path.parent == _DEVICES or (target.exists() and not target.is_file()):
        raise OSError(0, "it is no plain file")
    return target


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Errors of the file are told with its name."""
    try:
        yield
    except OSError as error:
        raise InputError("cannot write the recording", value=str(path), remedy=str(error.strerror)) from None
