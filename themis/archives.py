"""Files in one compressed archive, as bytes: how app masters keep logs and the ResourceManager brings them back."""

from __future__ import annotations

import io
import math
import stat
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from themis.capped_files import first_kept
from themis.errors import ThemisError


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
        max_bytes: The most bytes that all files may have.

    Raises:
        ArchiveError: It is damaged or too large; what came before that is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root, left = folder.resolve(), max_bytes
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            for member in archive:
                target = (root / member.name).resolve()
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None and root in target.parents:
                    left -= member.size
                    if left < 0:
                        raise ArchiveError("an archive is too large", value=f"more than {max_bytes} bytes")
                    _write(target, file.read(), executable=bool(member.mode & stat.S_IXUSR))
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ArchiveError("an archive cannot be unpacked", value=str(folder), remedy=str(error)) from error


def _write(target: Path, content: bytes, *, executable: bool) -> None:
    # Replace by renaming: a process may be reading the present file.
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    partial.write_bytes(content)
    if executable:
        partial.chmod(0o700)
    partial.replace(target)
