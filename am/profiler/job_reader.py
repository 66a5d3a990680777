"""All that a job writes and the profiler reads: its log first, its event files where the log tells no steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from am.profiler.event_folder import EventFolder
from am.profiler.follower import LogFollower
from am.profiler.parser import LogReader
from am.profiler.records import Record, StepLoss, believable

SEARCH_EVERY_S = 5.0
"""New event files are searched for at most once in so many seconds."""

SEARCH_MOST_S = 0.2
"""Then for so long, in seconds: the app master's loop waits. The next search goes on where this one ended."""


class JobReader:
    """Reads on in a job's files.

    A log that tells steps is believed, and event files are left alone from then on: they would tell the same steps
    again, or epochs in their place. Lines and events of more iterations than any job does are left out.

    Args:
        log: The log of the job's chief.
        folders: Where its event files may lie.
        since_s: When the job's app was submitted, in seconds since the epoch: older event files are of another run.
    """

    def __init__(self, log: LogFollower, folders: Iterable[Path], *, since_s: float = 0.0) -> None:
        self._log = log
        self._lines = LogReader()
        self._events = EventFolder(folders, since_s)
        self._log_tells_steps = False
        self._searched_at_s = -math.inf

    def read(self, now_s: float) -> list[Record]:
        """What was added, in order; `now_s` is the time by any clock."""
        records = self._read_log()
        if self._log_tells_steps:
            self._events.close()
            return records
        if not 0.0 <= now_s - self._searched_at_s < SEARCH_EVERY_S:
            self._searched_at_s = now_s
            self._events.search_for(SEARCH_MOST_S)
        return records + believable(self._events.read())

    def catch_up(self, now_s: float, *, ended_well: bool = False) -> Iterator[Record]:
        """Everything that is there, once its writers are gone: the log first.

        Files that came into being a moment ago are read as well. What is written meanwhile may be left, lest a writer
        that nobody has ended keeps the reader for good. What is read from then on begins a line.

        Args:
            now_s: The time by any clock.
            ended_well: Whether the writer ended by itself, so that a last line without an end is whole. That of a
                writer that was killed may break off within a number: it is dropped.
        """
        yield from self._read_log()
        while self._log.behind:
            yield from self._read_log()
        last_line = self._log.finish()
        if ended_well:
            yield from self._told(last_line)
        if self._log_tells_steps:
            self._events.close()
            return
        self._searched_at_s = now_s
        self._events.search()
        yield from believable(self._events.read())
        while self._events.behind:
            yield from believable(self._events.read())

    def _read_log(self) -> list[Record]:
        return self._told(self._log.read())

    def _told(self, lines: bytes) -> list[Record]:
        records = believable(self._lines.read(lines))
        self._log_tells_steps = self._log_tells_steps or any(isinstance(record, StepLoss) for record in records)
        return records
