"""Files in one compressed archive, as bytes: how app masters keep logs and the ResourceManager brings them back."""

from __future__ import annotations

import gzip
import io
import math
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from themis.capped_files import first_kept
from themis.errors import ThemisError

_MAX_READ_BYTES = 1024 * 1024
"""Headers are smaller, and contents are read in smaller parts."""


class ArchiveError(ThemisError):
    """An archive that cannot be unpacked."""


def pack_files(folder: Path, files: Iterable[Path]) -> bytes:
    """Return an archive of these files, by their names within the folder. Capped files are in it without their hole."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in files:
            with path.open("rb") as file:
                member = archive.gettarinfo(arcname=path.relative_to(folder).as_posix(), fileobj=file)
                file.seek(first_kept(file.fileno(), 0))
                member.size -= file.tell()
                archive.addfile(member, file)
    return buffer.getvalue()


def unpack_files(content: bytes, folder: Path, *, max_bytes: float = math.inf) -> None:
    """Write an archive's files below the folder, in place of any that are there. Programs stay executable.

    Links, devices and names that lead out of the folder are skipped. (Extraction filters would do, but not every
    Python 3.11 has them.)

    Args:
        content: The archive.
        folder: The folder, which is created if it is missing.
        max_bytes: The most bytes that it may have unpacked, with its headers: at least one kilobyte a file.

    Raises:
        ArchiveError: It is damaged or too large, or cannot be written; what came before that is written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        root = folder.resolve()
        with tarfile.open(fileobj=_Unpacked(content, max_bytes), mode="r:") as archive:
            for member in archive:
                target = (root / member.name).resolve()
                is_plain = member.isfile() and not member.issparse()
                file = archive.extractfile(member) if is_plain else None
                if file is not None and root in target.parents:
                    _write(target, file, executable=bool(member.mode & stat.S_IXUSR))
    # A name that no file can have is a ValueError.
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise ArchiveError("an archive cannot be unpacked", value=str(folder), remedy=str(error)) from error


class _Unpacked(io.RawIOBase):
    """The bytes of a compressed archive, forwards and up to a limit: a user may have made it.

    `tarfile` reads a header of any size into memory, skips any number of bytes, and goes back for a negative size.
    """

    def __init__(self, content: bytes, max_bytes: float) -> None:
        self._file = gzip.GzipFile(fileobj=io.BytesIO(content), mode="rb")
        self._max_bytes = max_bytes
        self._at = 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _MAX_READ_BYTES:
            raise ArchiveError("an archive has a header that is too large", value=size)
        self._check(self._at + size)
        part = self._file.read(size)
        self._at += len(part)
        return part

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        assert whence == io.SEEK_SET
        if offset < self._at:
            raise ArchiveError("an archive has a file of negative size")
        self._check(offset)
        while self._at < offset and self.read(min(_MAX_READ_BYTES, offset - self._at)):
            pass
        return self._at

    def _check(self, end: int) -> None:
        if end > self._max_bytes:
            raise ArchiveError("an archive is too large", value=f"more than {self._max_bytes} bytes")


def _write(target: Path, content: IO[bytes], *, executable: bool) -> None:
    # Replace by renaming: a process may be reading the present file.
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("wb") as file:
        shutil.copyfileobj(content, file)
    if executable:
        partial.chmod(0o700)
    partial.replace(target)
