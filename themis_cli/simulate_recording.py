"""Writes recordings of runs: whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.record import RunRecord
from simulator.runs import Run
from themis.errors import InputError

_UNFINISHED = ".part"

Write = Callable[[Run, RunRecord], None]


@contextmanager
def opened_recording(path: Path | None) -> Iterator[Write]:
    """A function that writes a recording to `path`, or does nothing without one.

    The file is made at once, so that a run is not made in vain; it takes its name when it is whole.

    Raises:
        InputError: There can be no such file.
    """
    if path is None:
        yield lambda *_: None
        return
    from simulator.recording import recording_lines

    part = path.with_name(path.name + _UNFINISHED)
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        stream = part.open("w", encoding="utf-8")
    except OSError as error:
        raise InputError("cannot write the recording", value=str(path), remedy=str(error.strerror)) from None

    def write(run: Run, record: RunRecord) -> None:
        stream.writelines(recording_lines(run, record))
        stream.close()
        part.replace(path)

    try:
        with stream:
            yield write
    finally:
        part.unlink(missing_ok=True)
