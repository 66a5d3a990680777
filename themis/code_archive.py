"""The code that travels with an app: packed where it is submitted, unpacked where its tasks run."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from themis.apps import CodeArchive
from themis.archives import unpack_files
from themis.errors import InputError

CODE_FOLDER = "code"
"""The folder within a job's folder that the code is unpacked to, and in which the command starts."""

CODE_ARCHIVE = "code.tar.gz"
"""The archive in the folder of an app."""

MAX_PACKED_BYTES = 8 * 1024 * 1024
MAX_FILES = 10_000
MAX_UNPACKED_BYTES = 64 * 1024 * 1024
_HEADER_BYTES = 4096
"""The most that a file takes in the archive besides its content, also one with a long name."""
SKIPPED = frozenset(
    (".git", ".hg", ".svn", ".venv", "__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache")
)
"""Folders that do not travel, by name."""

_EVENT_FILE_MARK = ".tfevents."
"""Part of the names of TensorBoard's event files. They stay too: the profiler would take old ones for the job's own."""

_REMEDY = "leave data out: keep it where tasks can read it, and pass its path"


def pack_code(sources: Mapping[str, Path], source: str) -> CodeArchive:
    """Pack files and folders. The same files give the same bytes, so the hash names the content.

    Args:
        sources: Each file or folder by its name in the archive, such as `data/words.txt`. A folder called `.` is packed
            without its own name.
        source: Where they were named, for errors.

    Raises:
        InputError: One does not exist, cannot be read, is a link to a folder or a special file, or they are too large.
    """
    files: dict[str, Path] = {}
    for name, path in sources.items():
        for file_name, file in _files_of(name, path, source):
            if files.setdefault(file_name, file) != file:
                raise InputError(f"{source}: two files have one name", value=file_name, remedy="rename one of them")
    if not files:
        raise InputError(f"{source}: there is no file in it", value=", ".join(map(str, sources.values())))
    _check_size(files, source)
    packed = _packed(files, source)
    if len(packed) > MAX_PACKED_BYTES:
        what = f"{source}: the packed code has more than {MAX_PACKED_BYTES // 2**20} MB"
        raise InputError(what, value=f"{len(packed) / 2**20:.1f} MB", remedy=_REMEDY)
    return CodeArchive.of(packed)


def unpack_code(archive: bytes, folder: Path) -> None:
    """Write the files below a folder. Files that are not in the archive stay, so a job may keep its own there.

    Raises:
        ArchiveError: The archive is damaged or too large.
    """
    unpack_files(archive, folder, max_bytes=MAX_UNPACKED_BYTES + MAX_FILES * _HEADER_BYTES)


def files_in(code: CodeArchive) -> dict[str, bool]:
    """Return the files of an archive by name, and whether each can be executed."""
    with tarfile.open(fileobj=io.BytesIO(code.content), mode="r:gz") as archive:
        return {member.name: bool(member.mode & stat.S_IXUSR) for member in archive}


def _files_of(name: str, path: Path, source: str) -> Iterator[tuple[str, Path]]:
    # Not `Path.is_file`, which fails for a name that is too long.
    if os.path.isfile(path):  # noqa: PTH113
        yield (path.name if name == "." else name), path
        return
    if not os.path.isdir(path):  # noqa: PTH112
        raise InputError(f"{source}: there is no such file or folder", value=str(path), remedy="check its spelling")
    prefix = "" if name == "." else f"{name}/"
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(each for each in folders if each not in SKIPPED)
        for each in folders:
            if (Path(folder) / each).is_symlink():
                remedy = "copy it, or leave it out"
                raise InputError(f"{source}: a link to a folder", value=str(Path(folder) / each), remedy=remedy)
        for each in sorted(name for name in names if _EVENT_FILE_MARK not in name):
            file = Path(folder) / each
            if not file.is_file():
                raise InputError(f"{source}: neither a file nor a folder", value=str(file), remedy="leave it out")
            yield prefix + file.relative_to(path).as_posix(), file


def _check_size(files: Mapping[str, Path], source: str) -> None:
    if len(files) > MAX_FILES:
        raise InputError(f"{source}: too many files", value=len(files), remedy=f"at most {MAX_FILES}; {_REMEDY}")
    sizes = {name: path.stat().st_size for name, path in files.items()}
    total = sum(sizes.values())
    if total > MAX_UNPACKED_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        what = f"{source}: the code has {total / 2**20:.0f} MB, more than {MAX_UNPACKED_BYTES // 2**20}"
        raise InputError(what, value=f"{largest}: {sizes[largest] / 2**20:.0f} MB", remedy=_REMEDY)


def _packed(files: Mapping[str, Path], source: str) -> bytes:
    buffer = io.BytesIO()
    # No times and owners: they would change the hash.
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, path in sorted(files.items()):
            member = tarfile.TarInfo(name)
            try:
                content = path.read_bytes()
                member.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
            except OSError as error:
                raise InputError(f"{source}: a file cannot be read", value=str(path), remedy=str(error)) from None
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
