"""From the bytes of a log to records. A new format is a new module and one more entry in FORMATS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from am.profiler.backlog import DENSE_BYTES, FIRST_BYTES, LAST_BYTES, MUCH_BYTES
from am.profiler.cnn_benchmarks_format import CnnBenchmarksFormat
from am.profiler.estimator_format import (
    ESTIMATOR_COUNTED,
    ESTIMATOR_ORDINARY,
    ESTIMATOR_STARTS,
    ESTIMATOR_TELLING,
    parse_estimator,
)
from am.profiler.keras_format import KerasFormat
from am.profiler.log_format import LineFormat, LogFormat
from am.profiler.records import Begun, Record, Skipped, StepLoss
from am.profiler.themis_format import THEMIS_STARTS, parse_themis

FORMATS: tuple[Callable[[], LogFormat], ...] = (
    lambda: LineFormat(ESTIMATOR_STARTS, parse_estimator, ESTIMATOR_ORDINARY, ESTIMATOR_TELLING, ESTIMATOR_COUNTED),
    lambda: LineFormat(THEMIS_STARTS, parse_themis),
    KerasFormat,
    CnnBenchmarksFormat,
)

MAX_RECORD_BYTES = 4096
"""No line that tells anything is longer; of a bar that is drawn anew, no drawing."""

SILENCE_RECORDS = 100
"""So many records of other workers without one of the worker believed, and another is believed from then on."""

# What launchers put before every line of a worker: `[1,0]<stdout>:`, `(worker pid=7) `, `worker-0: `; or of a log, as
# `kubectl logs --timestamps` does: `2026-01-01T00:00:00.123456789Z `; or a tag behind a time. No alternative begins
# with something optional: `re` tells by its first byte whether to try it.
_WORKER = (
    rb"\[[\w,.:/ =-]{1,40}\](?:<std(?:out|err)>:?)?:? ?|\([\w,.:/ =-]{1,60}\) ?"
    rb"|(?:chief|worker|task|rank|replica)[\w.-]{0,20}(?:\|[0-9]{1,6})?: ?"
)
_TIME = rb"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,20}+(?:Z|[+-][0-9]{2}:?[0-9]{2})? "
_TAG = _WORKER + b"|" + _TIME + b"(?:" + _WORKER + b")?"
_TIMED = re.compile(_TIME)
_TAGGED = re.compile(_TAG)
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,10}m")
_EPOCH = b"\nEpoch "
_CLOCK = re.compile(rb"[0-9]:[0-9]{2}")


class LogReader:
    """Reads one log, in any mixture of formats, as it comes.

    Bytes that are not UTF-8 are tolerated, and zero bytes passed over: UTF-16 has them, and so has a log that was cut
    short under its writer. Of a line that was drawn several times the last drawing in the data counts.

    Of many lines in a row that tell an ordinary loss or rate each, and that come at once, only the first and the last
    are read: a job's progress is what the last one says, and its pace goes by the newest. The last begin no later than
    the last line with a loss. Where steps go back, as at a restart, lines are in a row no longer.

    Where lines carry workers' tags, the first worker to tell a step is believed, and no other: all workers of a
    synchronous job tell the same. Each incarnation of the job has its own: tags may hold process ids and hosts.
    """

    def __init__(self, formats: Sequence[Callable[[], LogFormat]] = FORMATS) -> None:
        self._formats = [make() for make in formats]
        self._candidates, self._ways = _patterns(tuple(each.starts for each in self._formats))
        self._ordinary = _ordinary(tuple(each.ordinary for each in self._formats))
        self._telling = tuple(mark for each in self._formats for mark in each.telling)
        self._counted = _counted(tuple(each.counted for each in self._formats))
        self._believed: bytes | None = None
        self._silent = 0

    def read(self, data: bytes) -> list[Record]:
        """The records of whole lines, in order."""
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        data = b"\n" + (_last_drawings(data) if b"\r" in data else data)
        first = max(0, data.rfind(b"\n", 0, MUCH_BYTES)) if len(data) > MUCH_BYTES else 0
        records = self._all(data[:first])
        if len(records) * DENSE_BYTES <= first:
            return records + self._all(data[first:])
        for place, part in enumerate(self._thinned(data[first:])):
            if place:
                records.append(Skipped())
            records += self._all(part)
        return records

    def _thinned(self, data: bytes) -> Iterator[bytes]:
        """The data in parts, between which ordinary lines are left out, but never the last ones that tell something."""
        at = 0
        for run in self._ordinary.finditer(data):
            if run.end() - run.start() <= 2 * (FIRST_BYTES + LAST_BYTES):
                continue
            # Keras' lines go in pairs.
            head = b"\n" if data.rfind(_EPOCH, *run.span()) < 0 else _EPOCH
            for begin, end in _rising(data, *run.span(), self._counted):
                told = [place for mark in self._telling if (place := data.rfind(mark, begin, end)) >= 0]
                left = data.find(head, begin + FIRST_BYTES)
                resumed = data.rfind(head, 0, min([end - LAST_BYTES, *told]))
                if 0 <= left < resumed:
                    yield data[at:left]
                    at = resumed
        yield data[at:]

    def _all(self, data: bytes) -> list[Record]:
        """The records of lines, each behind a line's end."""
        records: list[Record] = []
        for match in self._candidates.finditer(data):
            tag = match[1]
            found = self._line(match[0][1:] if tag is None else match[0][1 + len(tag) :])
            if found and (tag is None or self._believes(tag, found)):
                if type(found[0]) is Begun:
                    self._begin()
                records += found
        return records

    def _begin(self) -> None:
        for each in self._formats:
            each.begin()
        self._believed, self._silent = None, 0

    def _line(self, line: bytes) -> Sequence[Record]:
        """The records of a line in the format that it starts like, as a terminal shows it."""
        if b"\b" in line:
            line = _last_drawing(line)
        if len(line) > MAX_RECORD_BYTES:
            return ()
        if b"\x1b" in line:
            line = _COLOURS.sub(b"", line)
        way = self._ways.match(line)
        if way is None or way.lastindex is None:
            return ()
        return self._formats[way.lastindex - 1].read(line.decode("utf-8", "replace").rstrip())

    def _believes(self, tag: bytes, found: Sequence[Record]) -> bool:
        if (timed := _TIMED.match(tag)) is not None:
            tag = tag[timed.end() :]
        # Times tell no worker from another.
        if not tag or _CLOCK.search(tag):
            return True
        vacant = self._believed is None or self._silent >= SILENCE_RECORDS
        if vacant and any(isinstance(record, StepLoss) for record in found):
            self._believed = tag
        if self._believed in (None, tag):
            self._silent = 0
            return True
        self._silent += 1
        return False


def parse_line(line: str) -> Record | None:
    """The first record of one line by itself, None when it tells nothing."""
    return next(iter(LogReader().read(line.encode("utf-8", "replace") + b"\n")), None)


def _last_drawings(data: bytes) -> bytes:
    """The data with the last drawing alone of each line that was drawn anew, behind the line's tag where it has one."""
    kept, at = [], 0
    data = data.replace(b"\r\n", b"\n")
    while (redrawn := data.find(b"\r", at)) >= 0:
        begin = max(at, data.rfind(b"\n", at, redrawn) + 1)
        end = data.find(b"\n", redrawn)
        line = data[begin:end] if end >= 0 else data[begin:]
        drawing = _last_drawing(line)
        kept.append(data[at:begin])
        # Most lines begin with their carriage return.
        if redrawn > begin and (tag := _TAGGED.match(line)) and not _TAGGED.match(drawing):
            kept.append(tag[0])
        kept.append(drawing)
        at = begin + len(line)
    kept.append(data[at:])
    return b"".join(kept)


def _last_drawing(line: bytes) -> bytes:
    """What a terminal shows last: behind the last carriage return, or the last backspace, that something follows."""
    line = line.rstrip(b"\r\b ")
    last = line[line.rfind(b"\r") + 1 :]
    return last[last.rfind(b"\b") + 1 :]


def _rising(data: bytes, begin: int, end: int, counted: re.Pattern[bytes]) -> Iterator[tuple[int, int]]:
    """Stretches of a run over which steps rise, by a look at a line in so many bytes.

    Steps that go back unseen are passed again within LAST_BYTES, of which several looks are made.
    """
    reached: dict[int | None, int] = {}
    place = begin
    while (told := counted.search(data, place, end)) is not None:
        steps = int(told[told.lastindex or 0])
        if steps < reached.get(told.lastindex, 0):
            yield begin, told.start()
            begin = told.start()
        reached[told.lastindex] = steps
        place = told.start() + LAST_BYTES // 4
    yield begin, end


@cache
def _ordinary(lines: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Ordinary lines in a row, as many as there are."""
    return re.compile(rb"(?:\n(?:" + b"|".join(lines) + rb")(?=\n))++")


@cache
def _counted(lines: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Lines that tell how far a job is, group 1 + i as in format i."""
    return re.compile(rb"\n(?:" + b"|".join(lines) + rb")")


@cache
def _patterns(starts: tuple[bytes, ...]) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Every line that may tell something, group 1 a worker's tag; and how lines start, group 1 + i as in format i.

    The line end in front is a literal, so that the search goes from line to line at the speed of `memchr`. Groups that
    capture stay out of the first pattern's alternatives: with them, `re` tries each in full, not by its first byte.
    """
    flat = b"|".join(starts)
    candidates = re.compile(rb"\n(?:" + flat + rb"|(" + _TAG + rb")(?:" + flat + rb"))[^\n]*")
    return candidates, re.compile(b"|".join(b"(" + start + b")" for start in starts))
