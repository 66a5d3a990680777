"""The chief's log lines, in the form of TensorFlow's Estimator, which profilers already read."""

from __future__ import annotations

import threading
from typing import TextIO


class TrainingLog:
    """Writes whole lines and flushes each, so that a follower of the file never waits for one; any thread may call.

    Args:
        stream: Where to; the programs give stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._turn = threading.Lock()
        self._previous: tuple[int, float] | None = None

    def loss(self, step: int, loss: float, at_s: float) -> None:
        """The loss of iteration `step`, finished at `at_s` seconds on any steady clock.

        From the second line on, the seconds since the line before and the speed are told as well.
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
        """A checkpoint was saved as `name`, which took `seconds`."""
        self._line(f"INFO:tensorflow:Saving checkpoints for {iteration} into {name}.")
        self._line(f"INFO:themis:checkpoint iteration = {iteration}, seconds = {seconds:.3f}, bytes = {size_bytes}")

    def copied(self, iteration: int, seconds: float) -> None:
        """Training stood still for `seconds` to keep the state at `iteration`; it is not saved yet.

        The copy that the next step makes of what it writes to is not in it.
        """
        self._line(f"INFO:themis:copied iteration = {iteration}, stalled = {seconds:.6f}")

    def imported(self, seconds: float, after_s: float) -> None:
        """The libraries are there, which took `seconds`; it began `after_s` seconds after the process."""
        self._line(f"INFO:themis:imported seconds = {seconds:.3f}, after = {after_s:.3f}")

    def restored(self, iteration: int, seconds: float) -> None:
        """Training goes on from a checkpoint, which took `seconds` to find and read."""
        self._line(f"INFO:themis:restored iteration = {iteration}, seconds = {seconds:.3f}")

    def validation(self, step: int, loss: float, accuracy: float | None) -> None:
        """Loss on held-out data after iteration `step`, and accuracy where there is such a thing."""
        last = "" if accuracy is None else f", accuracy = {accuracy:.7g}"
        self._line(f"INFO:tensorflow:Validation (step {step}): loss = {loss:.7g}, global_step = {step}{last}")

    def replay(self, model: str, time_scale: float) -> None:
        """First line of every replay job, so that nobody takes its lines for training."""
        self._line(f"INFO:themis:replay model = {model}, emulated, time_scale = {time_scale:g}")

    def _line(self, text: str) -> None:
        with self._turn:
            self._stream.write(text + "\n")
            self._stream.flush()
