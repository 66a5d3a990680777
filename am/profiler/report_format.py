"""Lines that `themis.report` writes: `INFO:themis:report {"step": 40, "loss": 0.69, "time_s": 1764.2}`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from am.profiler.records import Record, StepLoss, Validation
from themis.reporting import PREFIX


class ReportFormat:
    """Reads steps, losses, and the seconds between two reports."""

    starts = PREFIX.encode()
    ordinary = rb"(?!)"
    counted = rb"((?!))"
    keep_last: Sequence[bytes] = ()

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget the time of the last report, because the next ones are from a new incarnation of the job."""
        self._time_s: float | None = None
        self._step = 0

    def read(self, line: str) -> Sequence[Record]:
        """Return the records of a line."""
        try:
            values = json.loads(line[len(PREFIX) :])
        except ValueError:
            return ()
        if not isinstance(values, dict):
            return ()
        loss, held_out, accuracy = (_number(values.get(name)) for name in ("loss", "val_loss", "accuracy"))
        step, time_s = values.get("step"), _number(values.get("time_s"))
        self._step = step if isinstance(step, int) and step >= 0 else self._step
        seconds = None if time_s is None or self._time_s is None else max(0.0, time_s - self._time_s)
        self._time_s = time_s
        trained = StepLoss(step=self._step, loss=loss, seconds=seconds)
        if held_out is None and accuracy is None:
            return (trained,)
        return (trained, Validation(step=self._step, loss=held_out, accuracy=accuracy))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
