"""The replay job: emulates a training job's pace, logs and checkpoints by the clock; standard library only.

It sleeps from one point of interest to the next (a log line, a checkpoint, the end), so hundreds of them fit on one
machine. Stop signals are blocked from the start and only taken while it sleeps, so nothing is ever cut in half.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import NoReturn
from zlib import crc32

from am.checkpoints.store import Meta
from am.checkpoints.uri import open_store
from tf_jobs.catalog import program
from tf_jobs.context import TaskContext, read_context
from tf_jobs.exit_codes import EXIT_CHECKPOINTED, EXIT_DONE
from tf_jobs.flags import HelpRequested, Values, parse
from tf_jobs.pace import Pace
from tf_jobs.peers import Peers
from tf_jobs.recorder import Recorder, SaveEvent, restore, stderr_log
from tf_jobs.signals import STOP_SIGNALS
from tf_jobs.tables_reader import Curve, Speed, model_speed, nearest_curve, parse_slowdown
from themis.errors import ThemisError

LEAST_SLEEP_S = 0.25
PEER_POLL_S = 0.5
START_POLL_S = 0.05
START_LIMIT_S = 60.0
LOSS_NOISE_SHARE = 0.05

STATE_NAME = "state.json"
PADDING_NAME = "padding.bin"

FAMILIES = {
    "resnet18_cifar10": "digits_cnn",
    "resnet50": "digits_cnn",
    "yolov3": "digits_cnn",
    "neumf": "digits_dense",
    "transformer": "digits_dense",
}
"""Which recorded curves stand in for a model's; models that read sequences take the LSTM's."""
OTHER_FAMILY = "digits_lstm"


class StopAsked(Exception):  # noqa: N818 - a request, not an error
    """This task, or one of its peers, has been asked to stop."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the replay job to its end and leave with its exit code."""
    try:
        values = parse(program("replay"), sys.argv[1:] if arguments is None else arguments)
        context = read_context("replay", os.environ, values.text("checkpoint_uri"))
        code = run_chief(values, context) if context.chief else follow_chief(context)
    except HelpRequested as help_requested:
        sys.stdout.write(str(help_requested))
        code = EXIT_DONE
    except ThemisError as error:
        sys.stderr.write(f"ERROR:themis:replay: {error}\n")
        code = error.exit_code
    sys.exit(code)


def speed_of(values: Values) -> Speed:
    """The measured speed of the model, or what the flags put in its place."""
    speed = model_speed(values.text("model"))
    if values.number("serial_iteration_s") > 0.0:
        speed = replace(speed, serial_iteration_time_s=values.number("serial_iteration_s"))
    if values.text("slowdown"):
        speed = replace(speed, slowdown=parse_slowdown(values.text("slowdown")))
    return speed


def curve_of(values: Values) -> Curve:
    """The recorded loss curve that stands in for the run."""
    family = values.text("curve") or FAMILIES.get(values.text("model"), OTHER_FAMILY)
    return nearest_curve(family, values.number("learning_rate"))


def run_chief(values: Values, context: TaskContext) -> int:
    """Emulate the job as its chief; returns the exit code."""
    speed, curve = speed_of(values), curve_of(values)
    log = stderr_log()
    log.replay(values.text("model"), context.time_scale)
    waiting = Waiting(context)
    try:
        waiting.for_peers()
    except StopAsked:
        return waiting.ended(EXIT_CHECKPOINTED)
    meta: Meta = {"program": "replay", "model": values.text("model"), "seed": values.whole("seed")}
    begun_s = time.monotonic()
    scratch = context.job_dir / "scratch"
    found = restore(open_store(context.checkpoint_uri), context.job_id, scratch, meta)
    recorder = Recorder(context, values.whole("keep_checkpoints"), log)
    recorder.started(found.iteration if found else 0, time.monotonic() - begun_s if found else None)
    pace = Pace(
        iteration_s=speed.iteration_time_s(context.gpus, context.level) / context.time_scale,
        seed=values.whole("seed"),
        start=found.iteration if found else 0,
    )
    emulation = Emulation(values, context, recorder, pace, curve, waiting, meta, scratch)
    return waiting.ended(emulation.go(found.iteration if found else 0))


def follow_chief(context: TaskContext) -> int:
    """Sleep until the chief ends, pass a stop request on to it, and end with its exit code.

    Raises:
        ThemisError: The chief is gone without an end, or does not come up.
    """
    waiting = Waiting(context)
    asked = False
    while (code := waiting.peers.end_code()) is None:
        try:
            waiting.for_end()
        except StopAsked:
            if not asked:
                waiting.peers.ask_stop()
            asked = True
    return code


class Waiting:
    """Sleeps that end early on a stop request and fail on a dead peer.

    Args:
        context: This task's context.
    """

    def __init__(self, context: TaskContext) -> None:
        self.peers = Peers(context)
        self._context = context
        self._alone = context.tasks == 1
        self._begun_s = time.monotonic()
        if not self._alone:
            self.peers.announce()

    def for_peers(self) -> None:
        """Wait until all tasks have come up; raises StopAsked, or ThemisError after START_LIMIT_S seconds."""
        while not self._alone and not self.peers.all_announced():
            self._nap(START_POLL_S)
            self._check_start_limit()

    def for_end(self) -> None:
        """Sleep one poll of a follower; raises StopAsked, or ThemisError where the chief is gone or never came."""
        self._nap(PEER_POLL_S)
        if not self.peers.all_announced():
            self._check_start_limit()
        dead = self.peers.dead()
        if dead is not None and self.peers.end_code() is None:
            raise ThemisError("another task of the job died", value=dead, remedy="restart the job")

    def until(self, deadline_s: float) -> None:
        """Sleep until the monotonic clock shows `deadline_s`; raises StopAsked, or ThemisError for a dead peer."""
        while (left_s := deadline_s - time.monotonic()) > 0.0:
            self._nap(left_s if self._alone else min(left_s, PEER_POLL_S))
            self._check_peers()
        # A stop that came while the last point was logged is taken here, even when the clock is behind.
        self._nap(0.0)

    def ended(self, code: int) -> int:
        """Tell the peers the job's exit code, and return it."""
        if not self._alone:
            self.peers.publish_end(code)
        return code

    def _check_start_limit(self) -> None:
        if time.monotonic() - self._begun_s > START_LIMIT_S:
            raise ThemisError(
                f"not all tasks of the job came up within {START_LIMIT_S:g} s",
                value=self._context.job_id,
                remedy="start all of them with the same THEMIS_INCARNATION and THEMIS_JOB_DIR",
            )

    def _check_peers(self) -> None:
        if self._alone:
            return
        if self.peers.stop_asked():
            raise StopAsked
        dead = self.peers.dead()
        if dead is not None:
            raise ThemisError("another task of the job died", value=dead, remedy="restart the job")

    @staticmethod
    def _nap(seconds: float) -> None:
        if signal.sigtimedwait(STOP_SIGNALS, seconds) is not None:
            raise StopAsked


class Emulation:
    """One incarnation's emulated iterations.

    Args:
        values: The run's flags.
        context: The chief's context.
        recorder: Saves, logs and notes.
        pace: When which iteration is done.
        curve: The loss curve.
        waiting: How to sleep.
        meta: Noted in every checkpoint.
        scratch: A folder of this job for the files of the next checkpoint.
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
        scratch: Path,
    ) -> None:
        self._values = values
        self._last = values.whole("iterations")
        self._time_scale = context.time_scale
        self._recorder = recorder
        self._pace = pace
        self._curve = curve
        self._waiting = waiting
        self._meta = meta
        self._scratch = scratch
        self._origin_s = 0.0

    def go(self, start: int) -> int:
        """Emulate the iterations after `start` until the last one or a stop request; returns the exit code."""
        done = start
        try:
            self._waiting.until(time.monotonic() + self._values.number("startup_s") / self._time_scale)
            self._origin_s = time.monotonic()
            while done < self._last:
                point = self._next_point(start, done)
                self._waiting.until(self._origin_s + self._pace.seconds_at(point))
                done = point
                self._log(done, first=done == start + 1)
                if done < self._last and done % self._values.whole("checkpoint_every") == 0:
                    self._save(done, "checkpoint")
                    self._pause(self._values.number("checkpoint_s"))
        except StopAsked:
            done = max(done, min(self._done_by_now(start), self._last))
            if done < self._last:
                return self._stopped(start, done)
        return self._ended(start, done)

    def _next_point(self, start: int, done: int) -> int:
        """The next iteration to wake up for: a log line or checkpoint LEAST_SLEEP_S away or more, or the end."""
        if done == start:
            return start + 1
        step_s = self._pace.seconds_at(done + 1) - self._pace.seconds_at(done)
        least = done + max(ceil(LEAST_SLEEP_S / step_s), 1)
        every = (self._values.whole("log_every"), self._values.whole("checkpoint_every"))
        return min(*(-(-least // n) * n for n in every), self._last)

    def _done_by_now(self, start: int) -> int:
        """Whole iterations done by now; none before the first could begin."""
        elapsed_s = time.monotonic() - self._origin_s
        return self._pace.iterations_at(elapsed_s) if self._origin_s else start

    def _log(self, iteration: int, *, first: bool) -> None:
        """Log the loss, at the emulated moment rather than the moment of waking up."""
        if first or iteration % self._values.whole("log_every") == 0:
            unit = crc32(f"{self._values.whole('seed')}:loss:{iteration}".encode()) / 2**32
            noise = 1.0 + LOSS_NOISE_SHARE * (2.0 * unit - 1.0)
            loss = self._curve.loss(iteration / self._values.whole("curve_iterations")) * noise
            self._recorder.log.loss(iteration, loss, self._origin_s + self._pace.seconds_at(iteration))

    def _save(self, iteration: int, event: SaveEvent) -> None:
        """Save a small state file and padding up to the size of the checkpoint."""
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
        self._recorder.save(iteration, event, files, self._meta)

    def _pause(self, seconds: float) -> None:
        """Training stands still for that many unscaled seconds."""
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
            self._save(done, "end")
        else:
            self._recorder.note(done, "end")
        loss, accuracy = self._curve.validation(done / self._values.whole("curve_iterations"))
        self._recorder.validated(done, loss, accuracy)
        return EXIT_DONE

    def _pause_awake(self) -> None:
        """The checkpoint of a stop takes its emulated time as well; further stop requests change nothing."""
        time.sleep(self._values.number("checkpoint_s") / self._time_scale)
