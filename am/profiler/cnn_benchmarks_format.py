r"""Lines of tf_cnn_benchmarks: the batch size, then `10\timages/sec: 103.6 +/- 0.0 (jitter = 0.0)\t7.594` and so on.

The program counts the steps of one run, without the warm-up. A run that resumes from a checkpoint counts from 1 again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from am.profiler.numbers import INTEGER, NUMBER, ORDINARY
from am.profiler.records import Record, StepLoss, StepsPerSecond

_BATCH = re.compile(rf"Batch size: +({INTEGER}) global")
_STEP = re.compile(
    rf"({INTEGER})\timages/sec: ({NUMBER}) \+/- {NUMBER} \(jitter = {NUMBER}\)\t({NUMBER})(?:\t{NUMBER}){{0,4}}"
)


class CnnBenchmarksFormat:
    """Reads the step and the loss, and steps per second once the global batch size is known."""

    starts = rb"[0-9]{1,12}\timages/sec: |Batch size: "
    ordinary = (
        rb"[0-9]{1,12}\timages/sec: " + ORDINARY + rb" \+/- " + ORDINARY + rb" \(jitter = " + ORDINARY + rb"\)"
        rb"(?:\t" + ORDINARY + rb"){1,5}"
    )
    counted = rb"([0-9]{1,12})\timages/sec: "
    keep_last: Sequence[bytes] = (b"\timages/sec: ",)

    def __init__(self) -> None:
        self._batch: int | None = None

    def begin(self) -> None:
        """Forget the batch size, because it may differ on other GPUs."""
        self._batch = None

    def read(self, line: str) -> Sequence[Record]:
        """Return the records of a line."""
        if match := _STEP.fullmatch(line):
            step = StepLoss(step=int(match[1]), loss=float(match[3]))
            return (step,) if not self._batch else (StepsPerSecond(rate=float(match[2]) / self._batch), step)
        if match := _BATCH.fullmatch(line):
            self._batch = int(match[1])
        return ()
