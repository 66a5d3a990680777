"""Runs that an interrupted `themis reproduce` had made: kept in its folder until all is done, and not made again."""

from __future__ import annotations

import hashlib
import shutil
import sys
from functools import cache
from pathlib import Path

import msgspec

import themis
from simulator.experiments.result_files import make_folder, write_whole
from simulator.record import RunRecord

FOLDER = "unfinished"
"""Within the folder of the results."""

_CODE = ("am", "rm_plugin", "simulator", "themis")
"""Packages that a run's numbers come from."""

_SOURCES = (".py", ".c", ".h", ".csv", ".json")


class KeptRuns:
    """Records of runs by what they run and by the code that ran it: another version finds none of them.

    Args:
        folder: Of the results.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def find(self, key: str) -> RunRecord | None:
        """The record of a run; None where it is not kept, or not whole."""
        try:
            return msgspec.msgpack.decode(self._path(key).read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def has(self, key: str) -> bool:
        """True where a run is kept, whole or not."""
        return self._path(key).is_file()

    def keep(self, key: str, record: RunRecord) -> None:
        """Write a record down; InputError where there is no room."""
        make_folder(self._folder)
        write_whole(self._path(key), msgspec.msgpack.encode(record))

    def told(self) -> str:
        """A line for whoever interrupted the runs; nothing where none is kept."""
        there = sum(not path.suffix for path in self._folder.glob("*"))
        return f"{there} runs are kept in {self._folder}: the same command goes on from there\n" if there else ""

    def drop(self) -> None:
        """Nothing is unfinished any more."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(f"{_code()} {key}".encode()).hexdigest()[:32]


@cache
def _code() -> str:
    """A digest of all that a run's numbers come from: Python, and the project's sources and data."""
    digest = hashlib.sha256(sys.version.encode())
    root = Path(themis.__file__).parents[1]
    for package in _CODE:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in _SOURCES:
                digest.update(f"{path.relative_to(root)} {path.stat().st_size} ".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
