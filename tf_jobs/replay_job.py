"""The tasks of a replay job: the chief emulates training by measured speeds and recorded curves, the others wait."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import NoReturn

from msgspec.structs import replace

from am.checkpoints.store import Meta
from am.checkpoints.uri import open_store
from tf_jobs.catalog import program
from tf_jobs.context import TaskContext, read_context
from tf_jobs.emulation import Emulation
from tf_jobs.exit_codes import EXIT_CHECKPOINTED, EXIT_DONE
from tf_jobs.flags import HelpRequested, Values, parse
from tf_jobs.pace import Pace
from tf_jobs.peers import Follower
from tf_jobs.recorder import Recorder, restore, stderr_log
from tf_jobs.tables_reader import Curve, Speed, family_of, model_speed, nearest_curve, parse_slowdown, parse_speeds
from tf_jobs.waiting import PEER_POLL_S, START_LIMIT_S, START_POLL_S, StopAsked, Waiting, nap, peer_died
from themis.errors import ThemisError

LEAVE_LIMIT_S = 2.0
"""Seconds for which a task that is asked to stop still tries to reach its chief, to forward the request."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the replay job and end the process with its exit code."""
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
    """Return the measured speed of the model, or the speed that the flags give."""
    speed = model_speed(values.text("model"))
    if values.number("serial_iteration_s") > 0.0:
        speed = replace(speed, serial_iteration_time_s=values.number("serial_iteration_s"))
    if values.text("slowdown"):
        speed = replace(speed, slowdown=parse_slowdown(values.text("slowdown")))
    return speed


def curve_of(values: Values) -> Curve:
    """Return the recorded loss curve that represents the run."""
    family = values.text("curve") or family_of(values.text("model"))
    return nearest_curve(family, values.number("learning_rate"))


def run_chief(values: Values, context: TaskContext) -> int:
    """Emulate the job as its chief. Returns the exit code."""
    speed, curve = speed_of(values), curve_of(values)
    store = open_store(context.checkpoint_uri)
    log = stderr_log()
    log.replay(values.text("model"), context.time_scale)
    with closing(Waiting(context)) as waiting:
        try:
            waiting.for_peers()
        except StopAsked:
            return waiting.ended(EXIT_CHECKPOINTED)
        meta: Meta = {"program": "replay", "model": values.text("model"), "seed": values.whole("seed")}
        begun_s = time.monotonic()
        found = restore(store, context.job_id, context.job_dir / "scratch", meta)
        start = found.iteration if found else 0
        recorder = Recorder(context, values.whole("keep_checkpoints"), log)
        recorder.started(start, time.monotonic() - begun_s if found else None)
        on_device = parse_speeds(values.text("speeds")).get(context.device, context.speed)
        pace = Pace(
            iteration_s=speed.iteration_time_s(context.gpus, context.level) / (context.time_scale * on_device),
            seed=values.whole("seed"),
            start=start,
        )
        emulation = Emulation(values, context, recorder, pace, curve, waiting, meta)
        return waiting.ended(emulation.go(start))


def follow_chief(context: TaskContext) -> int:
    """Sleep until the chief ends, and return its exit code. Forwards a stop request to the chief.

    Raises:
        ThemisError: A task died before the end, or the chief did not accept this one within START_LIMIT_S seconds.
    """
    limit_s = time.monotonic() + START_LIMIT_S
    asked = False
    with closing(Follower(context)) as chief:
        while chief.end_code is None:
            try:
                nap(PEER_POLL_S if chief.joined else START_POLL_S)
            except StopAsked:
                chief.ask_stop()
                limit_s, asked = min(limit_s, time.monotonic() + LEAVE_LIMIT_S), True
            chief.poll()
            if chief.end_code is None and chief.dead is not None:
                raise peer_died(chief.dead)
            if not chief.joined and time.monotonic() > limit_s:
                if asked:
                    return EXIT_CHECKPOINTED
                raise not_taken_in(context, chief.trouble)
        return chief.end_code


def not_taken_in(context: TaskContext, trouble: str) -> ThemisError:
    """Return the error of a task that could not reach its chief."""
    return ThemisError(
        f"the chief did not take this task in within {START_LIMIT_S:g} s",
        value=str(context.addresses[0]),
        remedy=f"start all tasks with the same THEMIS_INCARNATION and TF_CONFIG ({trouble})",
    )
