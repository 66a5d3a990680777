"""Runs that an interrupted `themis reproduce` had made: kept in its folder until all is done, and not made again."""

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
"""Within the folder of the results."""

_CODE = ("am", "rm_plugin", "themis", "themis_lab/simulator")
"""Packages that a run's numbers come from."""

_SOURCES = (".py", ".c", ".h", ".so", ".csv", ".json")
_LIBRARIES = ("numpy", "highspy", "msgspec")
_DIGEST_BYTES = 32


class KeptRuns:
    """Records of the runs of one command, by what they run and by the code that ran it: another version finds none.

    Args:
        folder: Of the results; other commands may keep their runs there too.
        keys: What the runs of this command run.

    Attributes:
        before: The records that were there already, by key.
    """

    def __init__(self, folder: Path, keys: Iterable[str]) -> None:
        self._folder = folder / FOLDER
        self._paths = {key: self._folder / _name(key) for key in keys}
        found = {key: _read(path) for key, path in self._paths.items()}
        self.before: Mapping[str, RunRecord] = {key: record for key, record in found.items() if record is not None}
        self._there = len(self.before)

    def keep(self, key: str, record: RunRecord) -> None:
        """Write a record down; InputError where there is no room."""
        content = msgspec.msgpack.encode(record)
        whole = hashlib.sha256(content).digest() + content
        try:
            write_whole(self._paths[key], whole)
        except InputError:
            # It is the first, or another command has just dropped the last of its own.
            make_folder(self._folder)
            write_whole(self._paths[key], whole)
        self._there += 1

    def told(self) -> str:
        """A line for whoever sees the command end early; nothing where no run is kept."""
        if not self._there:
            return ""
        runs = "1 run is" if self._there == 1 else f"{self._there} runs are"
        return f"{runs} kept in {self._folder}: the same command goes on from there\n"

    def drop(self) -> str:
        """All is done: the runs of this command go, and the folder with the last that is in it.

        Returns:
            A line on what stays, which nobody else would tell of; nothing where the folder is gone.
        """
        mine = {path.name for path in self._paths.values()}
        for path in [*self._folder.glob("*")]:
            # What a kill left half written bears the name of its run, too.
            if path.name.partition(".")[0] in mine:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        left = sum(1 for _ in self._folder.glob("*"))
        if not left:
            return ""
        files = "1 file stays" if left == 1 else f"{left} files stay"
        return f"{files} in {self._folder}, of another command or of other code: remove what nobody goes on with\n"


def _read(path: Path) -> RunRecord | None:
    """A record that is there, and whole."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    digest, content = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    return msgspec.msgpack.decode(content, type=RunRecord)


def _name(key: str) -> str:
    return hashlib.sha256(f"{_code()} {key}".encode()).hexdigest()[:32]


@cache
def _code() -> str:
    """A digest of all that a run's numbers come from: the project's sources and data, Python, and libraries."""
    versions = [sys.version, *map(_version, _LIBRARIES)]
    return digest_of(Path(themis.__file__).parents[1], _CODE, versions)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def digest_of(root: Path, packages: Iterable[str], versions: Collection[str]) -> str:
    """A digest of what packages below a folder consist of, compiled parts among it, and of versions."""
    digest = hashlib.sha256("\n".join(versions).encode())
    for package in packages:
        for path in sorted((root / package).rglob("*")):
            # Editors leave links to nowhere beside what they have open.
            if path.suffix in _SOURCES and path.is_file():
                digest.update(f"{path.relative_to(root)} {path.stat().st_size} ".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
