"""The files that results are left in: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from themis.errors import InputError

_UNFINISHED = ".part"


def make_folder(folder: Path) -> None:
    """Make a folder, and see that files can be made in it.

    Raises:
        InputError: They cannot.
    """
    with _told(f"cannot make the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with _told(f"cannot write in the folder {folder}"), tempfile.TemporaryFile(dir=folder):
        pass


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or leave what was there.

    Raises:
        InputError: It cannot be written.
    """
    # Of this process alone: another one may be writing the same file.
    part = path.with_name(f"{path.name}.{os.getpid()}{_UNFINISHED}")
    with _told(f"cannot write {path}", "make room, or name another folder by --out"):
        try:
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _told(what: str, remedy: str = "name another by --out") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(what, value=error.strerror, remedy=remedy) from None
