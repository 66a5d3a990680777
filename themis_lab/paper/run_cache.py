"""A cache of finished runs, so that an interrupted `themis reproduce` continues without repeating them."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

import themis
from themis.errors import InputError
from themis_lab.paper.result_files import make_folder, write_whole
from themis_lab.simulator.record import RunRecord

FOLDER = "unfinished"
"""The cache's folder within the folder of results."""

_CODE = ("am", "rm_plugin", "themis", "themis_lab/simulator")
"""Packages that determine a run's results."""

_SOURCES = (".py", ".c", ".h", ".so", ".csv", ".json")
_LIBRARIES = ("numpy", "highspy", "msgspec")
_DIGEST_BYTES = 32


class RunCache:
    """Run records of one command, by what they run and by a digest of the code. Other code finds no records.

    Args:
        folder: Folder of the results. Other commands may cache their runs there too.
        keys: Keys of this command's runs.

    Attributes:
        found: The records found at the start, by key.
    """

    def __init__(self, folder: Path, keys: Iterable[str]) -> None:
        self._folder = folder / FOLDER
        self._paths = {key: self._folder / hashlib.sha256(f"{_code()} {key}".encode()).hexdigest()[:32] for key in keys}
        records = {key: _read(path) for key, path in self._paths.items()}
        self.found: Mapping[str, RunRecord] = {key: record for key, record in records.items() if record is not None}
        self._count = len(self.found)

    def store(self, key: str, record: RunRecord) -> None:
        """Store a record. Raises InputError if it cannot be written."""
        content = msgspec.msgpack.encode(record)
        whole = hashlib.sha256(content).digest() + content
        try:
            write_whole(self._paths[key], whole)
        except InputError:
            # This is the first record, or another command has just removed the folder with its last record.
            make_folder(self._folder)
            write_whole(self._paths[key], whole)
        self._count += 1

    def resume_hint(self) -> str:
        """A line for an interrupted command; empty if no run is cached."""
        if not self._count:
            return ""
        runs = "1 run is" if self._count == 1 else f"{self._count} runs are"
        return f"{runs} kept in {self._folder}: the same command goes on from there\n"

    def clear(self) -> str:
        """Remove this command's records, and the folder if it is then empty.

        Returns:
            A line on the files that remain; empty if the folder is gone.
        """
        mine = {path.name for path in self._paths.values()}
        for path in [*self._folder.glob("*")]:
            # An interrupted write leaves a file that starts with the name of its run.
            if path.name.partition(".")[0] in mine:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        left = sum(1 for _ in self._folder.glob("*"))
        if not left:
            return ""
        files = "1 file stays" if left == 1 else f"{left} files stay"
        return f"{files} in {self._folder}, of another command or of other code: remove those you do not need\n"


def _read(path: Path) -> RunRecord | None:
    """Returns None if the file is missing or damaged."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    digest, content = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    return msgspec.msgpack.decode(content, type=RunRecord)


@cache
def _code() -> str:
    """A digest of everything that determines a run's results: the project's sources and data, Python, and libraries."""
    versions = [sys.version, *map(_version, _LIBRARIES)]
    return digest_of(Path(themis.__file__).parents[1], _CODE, versions)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def digest_of(root: Path, packages: Iterable[str], versions: Collection[str]) -> str:
    """A digest of the packages' files below a folder, including compiled ones, and of versions."""
    digest = hashlib.sha256("\n".join(versions).encode())
    for package in packages:
        for path in sorted((root / package).rglob("*")):
            # Editors leave dangling links next to open files.
            if path.suffix in _SOURCES and path.is_file():
                digest.update(f"{path.relative_to(root)} {path.stat().st_size} ".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
