r"""Lines of tf_cnn_benchmarks: `10\timages/sec: 103.6 +/- 0.0 (jitter = 0.0)\t7.594`, and the batch size before them.

Steps are those of the run, without its warm-up; a run that goes on from a checkpoint counts from 1 again.
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
    """The step, the loss and, once the global batch size is known, steps a second."""

    starts = rb"[0-9]{1,12}\timages/sec: |Batch size: "
    ordinary = (
        rb"[0-9]{1,12}\timages/sec: " + ORDINARY + rb" \+/- " + ORDINARY + rb" \(jitter = " + ORDINARY + rb"\)"
        rb"(?:\t" + ORDINARY + rb"){1,5}"
    )
    counted = rb"([0-9]{1,12})\timages/sec: "
    telling: Sequence[bytes] = (b"\timages/sec: ",)

    def __init__(self) -> None:
        self._batch: int | None = None

    def begin(self) -> None:
        """Forget the batch size: on other GPUs it may be another."""
        self._batch = None

    def read(self, line: str) -> Sequence[Record]:
        """What a line tells."""
        if match := _STEP.fullmatch(line):
            step = StepLoss(step=int(match[1]), loss=float(match[3]))
            return (step,) if not self._batch else (StepsPerSecond(rate=float(match[2]) / self._batch), step)
        if match := _BATCH.fullmatch(line):
            self._batch = int(match[1])
        return ()
