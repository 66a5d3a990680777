"""Find the event files that a job writes below its folders, and follow them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from pathlib import Path

from am.profiler.event_format import EVALUATION_FOLDERS, EventReader, Role
from am.profiler.follower import FileFollower, Start
from am.profiler.records import Record, StepLoss

EVENT_FILE_MARK = ".tfevents."
"""The name of every event file contains this."""

MAX_DEPTH = 5
MAX_ENTRIES = 2000
"""Limits of the search below one folder: levels and directory entries. A job may keep a large data set there."""


class EventFolder:
    """The event files below some folders, ordered by name. Their names begin with the time of creation.

    Args:
        folders: Where to search, in this order. They may not exist yet, and may contain one another.
        since_s: Ignore files that were last modified before this time, in seconds since the epoch.
    """

    def __init__(self, folders: Iterable[Path], since_s: float = 0.0) -> None:
        self._since_s = since_s
        self._folders = tuple(folders)
        self._files: dict[Path, tuple[Role, FileFollower, EventReader]] = {}
        self._walk = _event_files(self._folders)
        self._trained = False

    def search(self) -> None:
        """Search all folders for new files."""
        self._walk = _event_files(self._folders)
        self.search_for(inf)

    def search_for(self, seconds: float) -> None:
        """Search for new files for at most `seconds`, but list at least one folder. The next call continues there.

        The limit is for folders on a slow or unreachable file server.
        """
        until_s = time.monotonic() + seconds
        found: list[Path] = []
        for paths in self._walk:
            found += paths
            if time.monotonic() >= until_s:
                break
        else:
            self._walk = _event_files(self._folders)
        for path in sorted(found):
            if path not in self._files and _written_since(path, self._since_s):
                role = Role.EVALUATION if path.parent.name.lower() in EVALUATION_FOLDERS else Role.TRAINING
                self._files[path] = (role, FileFollower(path), EventReader(role))

    def read(self) -> list[Record]:
        """Return the records added to the known files. Evaluations count as steps if training files have none."""
        added: list[Record] = []
        for path, (role, follower, reader) in self._files.items():
            for part in follower.poll():
                if part.start is not Start.GOES_ON:
                    reader = EventReader(role)
                    self._files[path] = (role, follower, reader)
                records = reader.read(part.data)
                self._trained = self._trained or (role is Role.TRAINING and any(map(_is_step, records)))
                drops_steps = self._trained and role is Role.EVALUATION
                added += [record for record in records if not (drops_steps and _is_step(record))]
        return added

    @property
    def behind(self) -> bool:
        """Whether the last read of some file returned its maximum, so that there may be more data."""
        return any(follower.behind for _, follower, _ in self._files.values())

    def close(self) -> None:
        """Close all files. `read` reopens them at the same offsets."""
        for _, follower, _ in self._files.values():
            follower.close()


def _is_step(record: Record) -> bool:
    return isinstance(record, StepLoss)


def _written_since(path: Path, since_s: float) -> bool:
    try:
        return path.stat().st_mtime >= since_s
    except OSError:
        return False


def _event_files(folders: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield the event files below the folders, one list per directory listing."""
    for folder in folders:
        yield from _files_below(folder)


def _files_below(top: Path) -> Iterator[list[Path]]:
    """Yield the event files below a folder breadth-first, one list per directory listing. Ignores links to folders."""
    left = MAX_ENTRIES
    todo = deque([(str(top), 1)])
    while todo and left > 0:
        folder, depth = todo.popleft()
        entries = _entries(folder, left)
        left -= len(entries)
        yield [Path(entry.path) for entry in entries if EVENT_FILE_MARK in entry.name]
        if depth < MAX_DEPTH:
            todo += [(entry.path, depth + 1) for entry in entries if _is_folder(entry)]


def _entries(folder: str, most: int) -> list[os.DirEntry[str]]:
    """List a folder with the entries' types: one request to a file server, instead of one per entry."""
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, most))
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return EVENT_FILE_MARK not in entry.name and entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
