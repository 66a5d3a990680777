"""Finds the event files that a job writes below its folders, and follows them all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from am.profiler.event_format import EVALUATION_FOLDERS, EventReader, Role
from am.profiler.follower import FileFollower, Start
from am.profiler.records import Record, StepLoss

EVENT_FILE_MARK = ".tfevents."
"""Every event file has it in its name."""

MAX_DEPTH = 5
MAX_ENTRIES = 2000
"""No deeper is searched, and no more entries are looked at: a job may keep its data below its folder."""


class EventFolder:
    """The event files below some folders, in the order of their names, which begin with the time of their writing.

    Args:
        folders: Where to search; they may come into being later, and lie within one another.
        since_s: Files that nobody has written to since then, in seconds since the epoch, are left alone.
    """

    def __init__(self, folders: Iterable[Path], since_s: float = 0.0) -> None:
        self._since_s = since_s
        self._folders = tuple(folders)
        self._files: dict[Path, tuple[Role, FileFollower, EventReader]] = {}
        self._trained = False

    def search(self) -> None:
        """Look for files that are new."""
        for path in sorted(_event_files(self._folders)):
            if path not in self._files and _written_since(path, self._since_s):
                role = Role.EVALUATION if path.parent.name.lower() in EVALUATION_FOLDERS else Role.TRAINING
                self._files[path] = (role, FileFollower(path), EventReader(role))

    def read(self) -> list[Record]:
        """What was added to the files that are known. Evaluations count as steps where training tells of none."""
        told: list[Record] = []
        for path, (role, follower, reader) in self._files.items():
            for part in follower.poll():
                if part.start is not Start.GOES_ON:
                    reader = EventReader(role)
                    self._files[path] = (role, follower, reader)
                records = reader.read(part.data)
                self._trained = self._trained or (role is Role.TRAINING and any(map(_is_step, records)))
                told += [record for record in records if not (role is Role.EVALUATION and self._drops(record))]
        return told

    @property
    def behind(self) -> bool:
        """Whether the last read brought as much of a file as one may, so that there may be more."""
        return any(follower.behind for _, follower, _ in self._files.values())

    def close(self) -> None:
        """Close all files; `read` opens them again where they were."""
        for _, follower, _ in self._files.values():
            follower.close()

    def _drops(self, record: Record) -> bool:
        return self._trained and _is_step(record)


def _is_step(record: Record) -> bool:
    return isinstance(record, StepLoss)


def _written_since(path: Path, since_s: float) -> bool:
    try:
        return path.stat().st_mtime >= since_s
    except OSError:
        return False


def _event_files(folders: Iterable[Path]) -> Iterator[Path]:
    """Event files below the folders, nearest first; links to folders are not followed."""
    left = MAX_ENTRIES
    todo = deque((folder, 1) for folder in folders)
    while todo:
        folder, depth = todo.popleft()
        try:
            for entry in folder.iterdir():
                left -= 1
                if left < 0:
                    return
                if EVENT_FILE_MARK in entry.name:
                    yield entry
                elif depth < MAX_DEPTH and not entry.is_symlink() and entry.is_dir():
                    todo.append((entry, depth + 1))
        except OSError:
            continue
