"""Write result files completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from themis.errors import InputError

_UNFINISHED = ".part"


def make_folder(folder: Path) -> None:
    """Make a folder, and check that files can be written in it.

    Raises:
        InputError: The folder cannot be made or written.
    """
    with _as_input_error(f"cannot make the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with _as_input_error(f"cannot write in the folder {folder}"), tempfile.TemporaryFile(dir=folder):
        pass


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely, or leave the previous file.

    Raises:
        InputError: It cannot be written.
    """
    # The name holds this process's id, because another process may write the same file.
    part = path.with_name(f"{path.name}.{os.getpid()}{_UNFINISHED}")
    with _as_input_error(f"cannot write {path}", "make room, or name another folder by --out"):
        try:
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _as_input_error(what: str, remedy: str = "name another by --out") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(what, value=error.strerror, remedy=remedy) from None
