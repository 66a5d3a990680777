"""One incarnation of an emulated training job: iterations, logs and checkpoints by the clock.

It sleeps until the next log line, checkpoint or end, so hundreds of such jobs fit on one machine. Stop signals are
blocked from the start and handled only during a sleep, so they never interrupt a write.
"""

from __future__ import annotations

import json
import time
from math import ceil
from pathlib import Path
from zlib import crc32

from am.checkpoints.store import Meta
from tf_jobs.context import TaskContext
from tf_jobs.exit_codes import EXIT_CHECKPOINTED, EXIT_DONE
from tf_jobs.flags import Values
from tf_jobs.pace import Pace
from tf_jobs.recorder import FULL_STORE_RETRY_S, Recorder, SaveEvent
from tf_jobs.tables_reader import Curve
from tf_jobs.waiting import StopAsked, Waiting

MIN_SLEEP_S = 0.25
LOSS_NOISE_SHARE = 0.05
STATE_NAME = "state.json"
PADDING_NAME = "padding.bin"


class Emulation:
    """One incarnation's emulated iterations.

    Args:
        values: The run's flags.
        context: The chief's context.
        recorder: Writes checkpoints, log lines and history.
        pace: The time at which each iteration is done.
        curve: The loss curve.
        waiting: How to sleep.
        meta: Written into every checkpoint.
    """

    def __init__(
        self,
        values: Values,
        context: TaskContext,
        recorder: Recorder,
        pace: Pace,
        curve: Curve,
        waiting: Waiting,
        meta: Meta,
    ) -> None:
        self._values = values
        self._last = values.whole("iterations")
        self._time_scale = context.time_scale
        self._recorder = recorder
        self._pace = pace
        self._log_every = self._iterations_a_line()
        self._curve = curve
        self._waiting = waiting
        self._meta = meta
        self._scratch: Path = context.job_dir / "scratch"
        self._origin_s = 0.0

    def go(self, start: int) -> int:
        """Emulate the iterations after `start` until the last one or a stop request. Returns the exit code."""
        done = start
        try:
            self._waiting.until(time.monotonic() + self._values.number("startup_s") / self._time_scale)
            self._origin_s = time.monotonic()
            while done < self._last:
                point = self._next_point(start, done)
                self._waiting.until(self._origin_s + self._pace.seconds_at(point))
                done = point
                self._log(done, first=done == start + 1)
                due = done % self._values.whole("checkpoint_every") == 0 and not self._recorder.backs_off
                if done < self._last and due:
                    self._save(done, "checkpoint")
                    self._pause(self._values.number("checkpoint_s"))
        except StopAsked:
            done = max(done, min(self._done_by_now(start), self._last))
            if done < self._last:
                return self._stopped(start, done)
        return self._ended(start, done)

    def _next_point(self, start: int, done: int) -> int:
        """Return the next iteration to wake up for: the end, or a log line or checkpoint in MIN_SLEEP_S or more."""
        if done == start:
            return start + 1
        step_s = self._pace.seconds_at(done + 1) - self._pace.seconds_at(done)
        least = done + max(ceil(MIN_SLEEP_S / step_s), 1)
        every = (self._log_every, self._values.whole("checkpoint_every"))
        return min(*(-(-least // n) * n for n in every), self._last)

    def _iterations_a_line(self) -> int:
        """Return the iterations between log lines: fewer than `log_every` if these take longer than `log_every_s`.

        A job on few GPUs is slow, and its app master learns of its progress only from the log.
        """
        every, longest_s = self._values.whole("log_every"), self._values.number("log_every_s")
        return min(every, max(1, self._pace.iterations_in(longest_s))) if longest_s > 0.0 else every

    def _done_by_now(self, start: int) -> int:
        """Return the number of finished iterations; 0 before training begins."""
        elapsed_s = time.monotonic() - self._origin_s
        return self._pace.iterations_at(elapsed_s) if self._origin_s else start

    def _log(self, iteration: int, *, first: bool) -> None:
        """Log the loss with the emulated time, not the time of waking up."""
        if first or iteration % self._log_every == 0:
            unit = crc32(f"{self._values.whole('seed')}:loss:{iteration}".encode()) / 2**32
            noise = 1.0 + LOSS_NOISE_SHARE * (2.0 * unit - 1.0)
            loss = self._curve.loss(iteration / self._values.whole("curve_iterations")) * noise
            self._recorder.log.loss(iteration, loss, self._origin_s + self._pace.seconds_at(iteration))

    def _save(self, iteration: int, event: SaveEvent) -> bool:
        """Save a small state file and padding up to the size of the checkpoint. Returns False if the store is full."""
        return self._recorder.try_save(iteration, event, lambda: self._files(iteration), self._meta)

    def _files(self, iteration: int) -> dict[str, Path]:
        self._scratch.mkdir(parents=True, exist_ok=True)
        state = self._scratch / STATE_NAME
        padding = self._scratch / PADDING_NAME
        content = json.dumps({"iteration": iteration, **self._meta}).encode()
        state.write_bytes(content)
        files = {STATE_NAME: state}
        padding_bytes = self._values.whole("checkpoint_bytes") - len(content)
        if padding_bytes > 0:
            with padding.open("wb") as stream:
                stream.truncate(padding_bytes)
            files[PADDING_NAME] = padding
        return files

    def _pause(self, seconds: float) -> None:
        """Stop training for `seconds` of unscaled time."""
        if seconds > 0.0:
            self._origin_s += seconds / self._time_scale

    def _stopped(self, start: int, done: int) -> int:
        self._pause_awake()
        if done > start:
            self._save(done, "stop")
        else:
            self._recorder.note(done, "stop")
        return EXIT_CHECKPOINTED

    def _ended(self, start: int, done: int) -> int:
        if done > start or done == 0:
            while not self._save(done, "end"):
                # The store is full. The work is done, so there is time to wait for room.
                try:
                    self._waiting.until(time.monotonic() + FULL_STORE_RETRY_S)
                except StopAsked:
                    return EXIT_CHECKPOINTED
        else:
            self._recorder.note(done, "end")
        loss, accuracy = self._curve.validation(done / self._values.whole("curve_iterations"))
        self._recorder.validated(done, loss, accuracy)
        return EXIT_DONE

    def _pause_awake(self) -> None:
        """Save the checkpoint of a stop, which takes its emulated time too. Further stop requests have no effect."""
        time.sleep(self._values.number("checkpoint_s") / self._time_scale)
