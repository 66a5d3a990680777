"""Parse the bytes of a log into records. To add a format, add a module and an entry in FORMATS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from am.profiler.backlog_limits import BACKLOG_BYTES, DENSE_BYTES_PER_RECORD, KEPT_FIRST_BYTES, KEPT_LAST_BYTES
from am.profiler.cnn_benchmarks_format import CnnBenchmarksFormat
from am.profiler.declared_metric import DeclaredMetric
from am.profiler.estimator_format import (
    ESTIMATOR_COUNTED,
    ESTIMATOR_KEEP_LAST,
    ESTIMATOR_ORDINARY,
    ESTIMATOR_STARTS,
    parse_estimator,
)
from am.profiler.keras_format import KerasFormat
from am.profiler.log_format import LineFormat, LogFormat
from am.profiler.records import Begun, LossOnly, Metric, Record, Skipped, StepLoss, Validation
from am.profiler.report_format import ReportFormat
from am.profiler.run_format import RUN_STARTS, parse_run
from am.profiler.text_format import TextFormat
from am.profiler.themis_format import THEMIS_STARTS, parse_themis
from themis.apps import MetricSpec

FORMATS: tuple[Callable[[], LogFormat], ...] = (
    lambda: LineFormat(ESTIMATOR_STARTS, parse_estimator, ESTIMATOR_ORDINARY, ESTIMATOR_KEEP_LAST, ESTIMATOR_COUNTED),
    # Before the other lines of Themis, which begin in the same way.
    ReportFormat,
    lambda: LineFormat(RUN_STARTS, parse_run),
    lambda: LineFormat(THEMIS_STARTS, parse_themis),
    KerasFormat,
    CnnBenchmarksFormat,
)

MAX_RECORD_BYTES = 4096
"""Maximum length of a line with a record. For a redrawn progress bar, the limit holds for each drawing."""

SILENCE_RECORDS = 100
"""If the accepted worker is silent for this number of other workers' records, the reader accepts another worker."""

# Prefixes of lines. Launchers tag each worker's lines: `[1,0]<stdout>:`, `(worker pid=7) `, `worker-0: `. Tools such as
# `kubectl logs --timestamps` add times: `2026-01-01T00:00:00.123456789Z `. A tag may follow a time. No alternative
# begins with an optional part, so that `re` decides by the first byte whether to try it.
_WORKER = (
    rb"\[[\w,.:/ =-]{1,40}\](?:<std(?:out|err)>:?)?:? ?|\([\w,.:/ =-]{1,60}\) ?"
    rb"|(?:chief|worker|task|rank|replica)[\w.-]{0,20}(?: [0-9]{1,6})?(?: ?\|[0-9]{0,6})?:? "
    rb"|(?:chief|worker|task|rank|replica)[\w.-]{0,20}(?:\|[0-9]{1,6})?:"
)
_TIME = rb"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,20}+(?:Z|[+-][0-9]{2}:?[0-9]{2})? "
_TAG = _WORKER + b"|" + _TIME + b"(?:" + _WORKER + b")?"
_TIMED = re.compile(_TIME)
_TAGGED = re.compile(_TAG)
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,20}[mKJ]")
_BEHIND_BAR = re.compile(rb"(it/s|s/it)([^\]\r\n]{0,400}\])(?=[^\s\]])")
"""The end of a progress bar, with a line right behind it: the program printed the line between two redraws."""

# Tags of workers before lines that only `TextFormat` reads. There a bracket may also hold an epoch and a step.
_TEXT_TAG = re.compile(
    rb"(?:" + _TIME + rb")?(?P<worker>\[(?:rank|default|trainer|worker|gpu|node|local_rank)[ _:=-]?[\w.]{0,20}\]:? ?"
    rb"|\[[0-9]+,[0-9]+\]<std(?:out|err)>:? ?|\([^()\n]{0,40}(?:pid|rank|worker)[^()\n]{0,40}\) ?"
    rb"|(?:chief|worker|replica|rank|task)[-_ ]?[0-9]{1,6}(?::| ?\|) ?)?"
)
_SHOWN = re.compile(rb"\n(?!INFO:themis:|(?:Terminated|Killed)\n)[ \t]*[^\s][^\n]*")
_MAX_SHOWN = 200
_EPOCH = b"\nEpoch "
_CLOCK = re.compile(rb"[0-9]:[0-9]{2}")


class LogReader:
    """Reads one log, in any mixture of formats, as it grows.

    The reader tolerates bytes that are not UTF-8. It ignores zero bytes, which occur in UTF-16 and in a log that was
    truncated while its writer continued. Of a line that was drawn several times, the last drawing in the data counts.

    *Backlogs:* of many ordinary lines in a row that arrive at once, the reader uses only the first and the last ones.
    Progress comes from the last line, and the iteration time from the newest lines. The last line with a loss is always
    among them. A step count that goes back, as after a restart, ends a row of lines.

    *Workers:* if lines carry workers' tags, the reader accepts only the first worker that logs a step, because all
    workers of a synchronous job log the same steps. It chooses again for each incarnation of the job, because tags may
    contain process ids and hosts.

    *Other programs:* `TextFormat` reads lines that no other format reads, until another format has read a step.

    Attributes:
        lines_seen: Lines with text.
        lines_read: Those of them with a loss or with the declared metric.
        first_line: The first line with text, shortened.

    Args:
        formats: Formats with lines of their own.
        metric: The metric that the user declared. By default all losses with a usual name count.

    Example: `worker-0: Epoch 1/2`, `worker-1: Epoch 1/2` and so on. The reader uses the lines of the worker whose first
    step comes first, and drops the other's.
    """

    def __init__(self, formats: Sequence[Callable[[], LogFormat]] = FORMATS, metric: MetricSpec | None = None) -> None:
        self._formats = [make() for make in formats]
        self._text = TextFormat()
        self._declared = DeclaredMetric(metric) if metric is not None and metric.declared else None
        self.lines_seen = self.lines_read = 0
        self.first_line = ""
        # In a format with lines of its own.
        self._has_steps = False
        self._candidates, self._ways = _patterns(tuple(each.starts for each in self._formats))
        self._ordinary = _ordinary(tuple(each.ordinary for each in self._formats))
        self._keep_last = tuple(mark for each in self._formats for mark in each.keep_last)
        self._counted = _counted(tuple(each.counted for each in self._formats))
        self._accepted_tag: bytes | None = None
        self._silent = 0

    def read(self, data: bytes) -> list[Record]:
        """Return the records of complete lines, in order."""
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        if b"\x1b[" in data:
            data = _COLOURS.sub(b"", data)
        if b"it/s" in data or b"s/it" in data:
            data = _BEHIND_BAR.sub(rb"\1\2\n", data)
        data = b"\n" + (_last_drawings(data) if b"\r" in data else data)
        self._count(data)
        return self._records(data)

    def expect(self, *iterations: int) -> None:
        """Set the last iteration of the job and, if it reads lines of earlier phases, the last ones of these."""
        self._text.expect(*iterations)

    def _count(self, data: bytes) -> None:
        """Count the lines with text, without those of the app master, and what a shell prints of its stops."""
        ours = data.count(b"\nINFO:themis:") - data.count(b"\nINFO:themis:report ")
        ours += data.count(b"\nTerminated\n") + data.count(b"\nKilled\n")
        self.lines_seen += data.count(b"\n") - 1 - data.count(b"\n\n") - ours
        if not self.first_line and (first := _SHOWN.search(data)):
            self.first_line = first[0].decode("utf-8", "replace").strip()[:_MAX_SHOWN]

    def _count_read(self, found: Sequence[Record]) -> None:
        """Count a line with these records if it has a loss or the declared metric."""
        kinds = (Metric,) if self._declared is not None else (StepLoss, LossOnly, Validation)
        self.lines_read += any(isinstance(record, kinds) and _has_value(record) for record in found)

    def _records(self, data: bytes) -> list[Record]:
        if self._declared is not None:
            # It may be in any line.
            return self._all(data)
        first = max(0, data.rfind(b"\n", 0, BACKLOG_BYTES)) if len(data) > BACKLOG_BYTES else 0
        records = self._all(data[:first])
        if len(records) * DENSE_BYTES_PER_RECORD <= first:
            return records + self._all(data[first:])
        for place, part in enumerate(self._thinned(data[first:])):
            if place:
                records.append(Skipped())
            records += self._all(part)
        return records

    def _thinned(self, data: bytes) -> Iterator[bytes]:
        """Yield the data without skipped ordinary lines, in parts. Keeps the last line of each `keep_last` mark."""
        at = 0
        for run in self._ordinary.finditer(data):
            if run.end() - run.start() <= 2 * (KEPT_FIRST_BYTES + KEPT_LAST_BYTES):
                continue
            # Keras' ordinary lines come in pairs: cut before the head of an epoch.
            head = b"\n" if data.rfind(_EPOCH, *run.span()) < 0 else _EPOCH
            for begin, end in _rising(data, *run.span(), self._counted):
                needed = [place for mark in self._keep_last if (place := data.rfind(mark, begin, end)) >= 0]
                left = data.find(head, begin + KEPT_FIRST_BYTES)
                resumed = data.rfind(head, 0, min([end - KEPT_LAST_BYTES, *needed]))
                if 0 <= left < resumed:
                    yield data[at:left]
                    at = resumed
        yield data[at:]

    def _all(self, data: bytes) -> list[Record]:
        """Return the records of lines. Each line must follow a line end."""
        records: list[Record] = []
        at = 0
        for match in self._candidates.finditer(data):
            tag = match[1]
            found = self._line(match[0][1:] if tag is None else match[0][1 + len(tag) :])
            if not found:
                continue
            if self._reads_others:
                records += self._other_lines(data[at : match.start()])
                at = match.end()
            if tag is None or self._accepts(tag, found):
                if type(found[0]) is Begun:
                    self._begin()
                self._has_steps = self._has_steps or any(type(record) is StepLoss for record in found)
                if self._declared is not None and (metric := self._declared.read(match[0].decode("utf-8", "replace"))):
                    found = (*found, metric)
                self._count_read(found)
                records += found
        if self._reads_others:
            records += self._other_lines(data[at:])
        return records

    @property
    def _reads_others(self) -> bool:
        return not self._has_steps or self._declared is not None

    def _other_lines(self, data: bytes) -> list[Record]:
        """Return the records of lines that no other format reads."""
        records: list[Record] = []
        for line in data.split(b"\n"):
            if not line or len(line) > MAX_RECORD_BYTES:
                continue
            tag = _TEXT_TAG.match(line)
            assert tag is not None
            found: Sequence[Record] = ()
            row = ""
            text = line[tag.end() :].decode("utf-8", "replace").rstrip()
            if not self._has_steps:
                found, row = self._text.read(text), self._text.row
            if self._declared is not None and (metric := self._declared.read(text) or self._declared.read(row)):
                found = (*(found or self._progress(text, metric)), metric)
            if found and (tag["worker"] is None or self._accepts(tag["worker"], found)):
                self._count_read(found)
                records += found
        return records

    def _progress(self, text: str, metric: Metric) -> Sequence[Record]:
        """Return the step of a line that has the declared metric and no loss: its step or its epoch is progress too."""
        at = metric.step if metric.step is not None or self._has_steps else self._text.epoch_of(text)
        return () if at is None else (StepLoss(step=at, loss=None),)

    def _begin(self) -> None:
        self._text.begin()
        for each in self._formats:
            each.begin()
        self._accepted_tag, self._silent = None, 0

    def _line(self, line: bytes) -> Sequence[Record]:
        """Return the records of a line, as a terminal shows it, in the format that matches its start."""
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

    def _accepts(self, tag: bytes, found: Sequence[Record]) -> bool:
        if (timed := _TIMED.match(tag)) is not None:
            tag = tag[timed.end() :]
        # A time does not identify a worker.
        if not tag or _CLOCK.search(tag):
            return True
        vacant = self._accepted_tag is None or self._silent >= SILENCE_RECORDS
        if vacant and any(isinstance(record, StepLoss) for record in found):
            self._accepted_tag = tag
        if self._accepted_tag in (None, tag):
            self._silent = 0
            return True
        self._silent += 1
        return False


def _has_value(record: Record) -> bool:
    match record:
        case StepLoss() | Validation():
            return record.loss is not None
        case _:
            return True


def _last_drawings(data: bytes) -> bytes:
    """Reduce each redrawn line to its tag, if it has one, and its last drawing.

    If that is no bar, the bar before it is kept as a line of its own: it has the step of what was printed over it.
    """
    kept, at = [], 0
    data = data.replace(b"\r\n", b"\n")
    while (redrawn := data.find(b"\r", at)) >= 0:
        begin = max(at, data.rfind(b"\n", at, redrawn) + 1)
        end = data.find(b"\n", redrawn)
        line = data[begin:end] if end >= 0 else data[begin:]
        drawing = _last_drawing(line)
        kept += [data[at:begin], _bar_before(line, drawing)]
        # Most redrawn lines begin with the carriage return, so they have no tag before it.
        if redrawn > begin and (tag := _TAGGED.match(line)) and not _TAGGED.match(drawing):
            kept.append(tag[0])
        kept.append(drawing)
        at = begin + len(line)
    kept.append(data[at:])
    return b"".join(kept)


def _bar_before(line: bytes, drawing: bytes) -> bytes:
    """Return the last progress bar of a line and a line end. Empty if the line has none, or ends with a bar."""
    if (at := line.rfind(b"%|")) < 0 or b"%|" in drawing:
        return b""
    return line[line.rfind(b"\r", 0, at) + 1 : line.find(b"\r", at)] + b"\n"


def _last_drawing(line: bytes) -> bytes:
    """Return the text that a terminal shows last: after the last carriage return or backspace that text follows."""
    line = line.rstrip(b"\r\b ")
    last = line[line.rfind(b"\r") + 1 :]
    return last[last.rfind(b"\b") + 1 :]


def _rising(data: bytes, begin: int, end: int, counted: re.Pattern[bytes]) -> Iterator[tuple[int, int]]:
    """Split a run of ordinary lines where steps go back. Examines one line per KEPT_LAST_BYTES // 4 bytes.

    This may miss a restart only if the steps pass the old count again within KEPT_LAST_BYTES.
    """
    reached: dict[int | None, int] = {}
    place = begin
    while (match := counted.search(data, place, end)) is not None:
        steps = int(match[match.lastindex or 0])
        if steps < reached.get(match.lastindex, 0):
            yield begin, match.start()
            begin = match.start()
        reached[match.lastindex] = steps
        place = match.start() + KEPT_LAST_BYTES // 4
    yield begin, end


def _ordinary(lines: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Return a pattern that matches as many ordinary lines in a row as possible."""
    return re.compile(rb"(?:\n(?:" + b"|".join(lines) + rb")(?=\n))++")


def _counted(lines: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Return a pattern that matches lines with a step count. Group 1 + i is the count in format i."""
    return re.compile(rb"\n(?:" + b"|".join(lines) + rb")")


def _patterns(starts: tuple[bytes, ...]) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return two patterns: for lines that may hold a record, and for the format of a line.

    In the first, group 1 is a worker's tag. Its leading line end is a literal, so that the search runs at the speed of
    `memchr`. Its alternatives have no capturing groups, because with them `re` would not skip alternatives by their
    first byte. In the second, group 1 + i matches the start of a line in format i.
    """
    flat = b"|".join(starts)
    candidates = re.compile(rb"\n(?:" + flat + rb"|(" + _TAG + rb")(?:" + flat + rb"))[^\n]*")
    return candidates, re.compile(b"|".join(b"(" + start + b")" for start in starts))
