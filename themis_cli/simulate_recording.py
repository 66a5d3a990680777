"""Write recordings of runs completely or not at all."""

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
    """Yield a function that writes a recording to `path`. Without a path it does nothing.

    The file is created at once, so that an unusable path is refused before the run. It gets its final name when it is
    complete. If two runs write the same file, the later one replaces the other. A symbolic link stays, and its target
    is replaced.

    Raises:
        InputError: The file cannot be created, or there is no space for it.
    """
    if path is None:
        yield lambda *_: None
        return
    from themis_lab.simulator.recording import recording_lines

    with _with_file_name(path):
        target = _plain_file(path)
        part = target.with_name(f"{target.name}.{secrets.token_hex(4)}{_UNFINISHED}")
        stream = part.open("x", encoding="utf-8")

    def write(run: Run, record: RunRecord) -> None:
        with _with_file_name(path):
            stream.writelines(recording_lines(run, record))
            stream.close()
            part.replace(target)

    try:
        yield write
    finally:
        with suppress(OSError):
            # Closing the file tries to write the rest again.
            stream.close()
        part.unlink(missing_ok=True)


def _plain_file(path: Path) -> Path:
    """Return the target of a path. Raises OSError unless it is a plain file or does not exist."""
    target = Path(os.path.realpath(path))
    if not path.name or target.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    if path.parent == _DEVICES or (target.exists() and not target.is_file()):
        raise OSError(0, "it is no plain file")
    return target


@contextmanager
def _with_file_name(path: Path) -> Iterator[None]:
    """Add the file's name to its errors."""
    try:
        yield
    except OSError as error:
        raise InputError("cannot write the recording", value=str(path), remedy=str(error.strerror)) from None
