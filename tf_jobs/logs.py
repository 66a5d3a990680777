"""Write the chief's log lines in the format of TensorFlow's Estimator, which profilers already read."""

from __future__ import annotations

import threading
from typing import TextIO

from am.checkpoints.store import FULL_ERRNOS


class TrainingLog:
    """Writes whole lines and flushes each, so that a reader of the file gets them at once. Thread-safe.

    Args:
        stream: The output; stderr in our programs.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._turn = threading.Lock()
        self._previous: tuple[int, float] | None = None

    def loss(self, step: int, loss: float, at_s: float) -> None:
        """Log the loss of iteration `step`, finished at `at_s` seconds on a monotonic clock.

        From the second line on, also log the seconds since the previous line and the speed.
        """
        if self._previous is None:
            self._line(f"INFO:tensorflow:loss = {loss:.7g}, step = {step}")
        else:
            previous_step, previous_s = self._previous
            seconds = max(at_s - previous_s, 1e-9)
            self._line(f"INFO:tensorflow:global_step/sec: {(step - previous_step) / seconds:.6g}")
            self._line(f"INFO:tensorflow:loss = {loss:.7g}, step = {step} ({seconds:.3f} sec)")
        self._previous = (step, at_s)

    def checkpoint(self, iteration: int, name: str, seconds: float, size_bytes: int) -> None:
        """Log that a checkpoint was saved as `name` in `seconds`."""
        self._line(f"INFO:tensorflow:Saving checkpoints for {iteration} into {name}.")
        self._line(f"INFO:themis:checkpoint iteration = {iteration}, seconds = {seconds:.3f}, bytes = {size_bytes}")

    def unsaved(self, iteration: int, reason: str) -> None:
        """Log that the state at `iteration` could not be saved, because the store is full."""
        self._line(f"INFO:themis:unsaved iteration = {iteration}, reason = {' '.join(reason.split())}")

    def copied(self, iteration: int, seconds: float) -> None:
        """Log that training paused for `seconds` to copy the state at `iteration`, which is not saved yet.

        The time does not include the copy that the next step makes of the variables that it changes.
        """
        self._line(f"INFO:themis:copied iteration = {iteration}, stalled = {seconds:.6f}")

    def imported(self, seconds: float, after_s: float) -> None:
        """Log that libraries were loaded in `seconds`, beginning `after_s` seconds after the start of the process."""
        self._line(f"INFO:themis:imported seconds = {seconds:.3f}, after = {after_s:.3f}")

    def restored(self, iteration: int, seconds: float) -> None:
        """Log that training resumes from a checkpoint, which took `seconds` to find and read."""
        self._line(f"INFO:themis:restored iteration = {iteration}, seconds = {seconds:.3f}")

    def validation(self, step: int, loss: float, accuracy: float | None) -> None:
        """Log the held-out loss after iteration `step`, and the accuracy if known."""
        last = "" if accuracy is None else f", accuracy = {accuracy:.7g}"
        self._line(f"INFO:tensorflow:Validation (step {step}): loss = {loss:.7g}, global_step = {step}{last}")

    def replay(self, model: str, time_scale: float) -> None:
        """Log that this is a replay job, as its first line, so that no reader mistakes it for training."""
        self._line(f"INFO:themis:replay model = {model}, emulated, time_scale = {time_scale:g}")

    def _line(self, text: str) -> None:
        with self._turn:
            try:
                self._stream.write(text + "\n")
                self._stream.flush()
            except OSError as error:
                # A full disk takes no line of a log. That is no reason to stop training.
                if error.errno not in FULL_ERRNOS:
                    raise
