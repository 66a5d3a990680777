"""Lines of Themis's own programs, for example `INFO:themis:checkpoint iteration = 120, seconds = 0.012, bytes = 12345`.

The app master adds one line at the start of each incarnation of a job: `INFO:themis:begun incarnation = 2`.
"""

from __future__ import annotations

import re

from am.profiler.numbers import INTEGER, NUMBER
from am.profiler.records import Begun, CheckpointFailed, CheckpointSaved, Imported, Record, Replay, Restored

THEMIS_STARTS = rb"INFO:themis:"

_PREFIX = "INFO:themis:"
_BEGUN = re.compile(rf"begun incarnation = ({INTEGER})")
_CHECKPOINT = re.compile(rf"checkpoint iteration = ({INTEGER}), seconds = ({NUMBER}), bytes = ({INTEGER})")
_UNSAVED = re.compile(rf"unsaved iteration = ({INTEGER}), reason = (.{{1,2000}})")
_IMPORTED = re.compile(rf"imported seconds = ({NUMBER}), after = ({NUMBER})")
_RESTORED = re.compile(rf"restored iteration = ({INTEGER}), seconds = ({NUMBER})")
_REPLAY = re.compile(rf"replay model = ([^,]{{1,100}}), emulated, time_scale = ({NUMBER})")


def begun_line(incarnation: int) -> str:
    """Return the line, without a line end, that starts an incarnation's part of a log."""
    return f"{_PREFIX}begun incarnation = {incarnation}"


def parse_themis(line: str) -> Record | None:
    """Return the record of a Themis line. Returns None for any other line."""
    if not line.startswith(_PREFIX):
        return None
    message = line[len(_PREFIX) :].rstrip()
    if match := _CHECKPOINT.fullmatch(message):
        return CheckpointSaved(iteration=int(match[1]), seconds=float(match[2]), bytes=int(match[3]))
    if match := _UNSAVED.fullmatch(message):
        return CheckpointFailed(iteration=int(match[1]), reason=match[2])
    if match := _IMPORTED.fullmatch(message):
        return Imported(seconds=float(match[1]), after_s=float(match[2]))
    if match := _RESTORED.fullmatch(message):
        return Restored(iteration=int(match[1]), seconds=float(match[2]))
    if match := _BEGUN.fullmatch(message):
        return Begun(incarnation=int(match[1]))
    if match := _REPLAY.fullmatch(message):
        return Replay(model=match[1], time_scale=float(match[2]))
    return None
