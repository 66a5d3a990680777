"""Read a job's output for the profiler: its log, and its TensorBoard event files if the log has no steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from am.profiler.event_folder import EventFolder
from am.profiler.follower import LogFollower
from am.profiler.parser import LogReader
from am.profiler.records import Begun, ExamplesPerSecond, Record, StepLoss, StepsPerSecond, believable
from themis.apps import MetricSpec

SEARCH_EVERY_S = 5.0
"""Seconds between two searches for new event files."""

MAX_SEARCH_S = 0.2
"""Seconds that one search may take, because the app master's loop waits for it. The next search continues there."""


MIN_RATE_S = 1.0
"""Shortest time between two reads from which a rate is measured, for logs without times."""


class JobReader:
    """Reads what a job adds to its log and event files.

    Once the log has a step, the reader ignores event files: they would repeat the same steps, or count epochs. It drops
    records with more than `MAX_ITERATIONS` iterations.

    *Rates:* lines of most programs have no times. Until one has, the time of reading counts: `MIN_RATE_S` or more pass
    between the two steps of a rate. Data of earlier attempts give none.

    Attributes:
        lines: The reader of the log's lines.

    Args:
        log: The log of the job's chief.
        folders: Folders that may hold its event files.
        since_s: When the job's app was submitted, in seconds since the epoch. Older event files are of another run.
    """

    def __init__(
        self,
        log: LogFollower,
        folders: Iterable[Path],
        *,
        since_s: float = 0.0,
        metric: MetricSpec | None = None,
    ) -> None:
        self._log = log
        self.lines = LogReader(metric=metric)
        self._rate_from: tuple[float, int] | None = None
        self._has_times = False
        self._events = EventFolder(folders, since_s)
        self._log_has_steps = False
        self._searched_at_s = -math.inf

    def read(self, now_s: float) -> list[Record]:
        """Return the records added since the last call, in order. `now_s` is the time by any clock."""
        records = self._with_rates(self._read_log(), now_s)
        if self._log_has_steps:
            self._events.close()
            return records
        if not 0.0 <= now_s - self._searched_at_s < SEARCH_EVERY_S:
            self._searched_at_s = now_s
            self._events.search_for(MAX_SEARCH_S)
        return records + believable(self._events.read())

    def catch_up(self, now_s: float, *, ended_well: bool = False) -> Iterator[Record]:
        """Read the rest of the files after their writers have ended: the log first.

        This includes files created a moment ago. Data that a process still writes meanwhile may be left unread, so that
        such a process cannot keep the reader busy forever. The next read starts a new line.

        Args:
            now_s: The time by any clock.
            ended_well: Whether the writer ended by itself. Then a last line without a line end is complete. The last
                line of a killed writer may end within a number, so it is dropped.
        """
        yield from self._read_log()
        while self._log.behind:
            yield from self._read_log()
        last_line = self._log.finish()
        if ended_well:
            yield from self._parse(last_line)
        if self._log_has_steps:
            self._events.close()
            return
        self._searched_at_s = now_s
        self._events.search()
        yield from believable(self._events.read())
        while self._events.behind:
            yield from believable(self._events.read())

    def _with_rates(self, records: list[Record], now_s: float) -> list[Record]:
        """Add a rate before the last step, if the log has no times."""
        self._has_times = self._has_times or any(map(_is_timed, records))
        if self._has_times:
            return records
        places = [place for place, record in enumerate(records) if isinstance(record, StepLoss)]
        if any(isinstance(record, Begun) for record in records):
            self._rate_from = None
        if not places:
            return records
        last = records[places[-1]]
        assert isinstance(last, StepLoss)
        if self._rate_from is None or last.step < self._rate_from[1]:
            self._rate_from = (now_s, last.step)
            return records
        since_s, steps = now_s - self._rate_from[0], last.step - self._rate_from[1]
        if since_s < MIN_RATE_S or not steps:
            return records
        self._rate_from = (now_s, last.step)
        rate = StepsPerSecond(rate=steps / since_s)
        return [*records[: places[-1]], rate, *records[places[-1] :]]

    def _read_log(self) -> list[Record]:
        return self._parse(self._log.read())

    def _parse(self, lines: bytes) -> list[Record]:
        records = believable(self.lines.read(lines))
        self._log_has_steps = self._log_has_steps or any(isinstance(record, StepLoss) for record in records)
        return records


def _is_timed(record: Record) -> bool:
    """Whether a record says how long steps take."""
    return isinstance(record, StepsPerSecond | ExamplesPerSecond) or (
        isinstance(record, StepLoss) and record.seconds is not None
    )
