"""What the real programs share: from a command line to a trained, saved and logged network."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from am.checkpoints.store import Meta
from am.checkpoints.uri import open_store
from tf_jobs.catalog import program
from tf_jobs.context import TaskContext, read_context
from tf_jobs.exit_codes import EXIT_DONE, EXIT_FAILED
from tf_jobs.flags import HelpRequested, Values, parse
from tf_jobs.process_age import process_age_s
from tf_jobs.recorder import Recorder, restore, stderr_log
from tf_jobs.signals import StopRequest
from tf_jobs.watchdog import Watchdog
from themis.errors import InputError, ThemisError

if TYPE_CHECKING:
    from tf_jobs.learner import Learner
    from tf_jobs.workers import Workers

STARTUP_LIMIT_S = 180.0
STEP_LIMIT_S = 20.0
SAVE_LIMIT_S = 180.0
"""For an iteration after a checkpoint: the store may be away for a while, which is no death of a peer."""
LINGER_S = 0.3


def run_program(name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a real program to its end and leave the process with its exit code."""
    stop = StopRequest()
    stop.listen()
    try:
        code = _run(name, sys.argv[1:] if arguments is None else arguments, stop)
    except HelpRequested as help_requested:
        sys.stdout.write(str(help_requested))
        code = EXIT_DONE
    except ThemisError as error:
        sys.stderr.write(f"ERROR:themis:{name}: {error}\n")
        code = error.exit_code
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = EXIT_FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: tearing TensorFlow's servers down takes seconds and may wait for peers that are gone already.
    os._exit(code)


def _run(name: str, arguments: Sequence[str], stop: StopRequest) -> int:
    """Read the command line and the environment, then train; returns the exit code."""
    values = parse(program(name), arguments)
    context = read_context(name, os.environ, values.text("checkpoint_uri"))
    batch_size = values.whole("batch_size")
    if batch_size < context.tasks:
        raise InputError("--batch_size is below the number of tasks", value=batch_size, remedy="raise it")
    # Below the job's folder, not a temporary folder of its own: a killed task could not remove that.
    scratch = context.job_dir / "scratch" / str(context.task_index)
    scratch.mkdir(parents=True, exist_ok=True)
    return _train(name, values, context, stop, scratch)


def _train(name: str, values: Values, context: TaskContext, stop: StopRequest, scratch: Path) -> int:
    """Join the other tasks, restore, train, and part from them again."""
    watchdog = Watchdog(STARTUP_LIMIT_S, "starting")
    if context.tasks > 1:
        watchdog.start()
    from tf_jobs.tensorflow_setup import load_tensorflow

    age_s = process_age_s()
    tf = load_tensorflow()
    if context.chief:
        stderr_log().imported(process_age_s() - age_s, age_s)
    from tf_jobs.data import load_digits
    from tf_jobs.learner import Learner
    from tf_jobs.models import build_model
    from tf_jobs.training import TrainingRun
    from tf_jobs.workers import agree, join_workers

    workers = join_workers(tf, context)
    learner = Learner(tf, build_model(name, values), values, load_digits(), context, workers)
    meta = _meta(name, values)
    start, restore_s = _restore(learner, context, scratch, meta)
    agree(tf, workers, context, (float(start), float(values.whole("iterations")), float(learner.digest())))
    stop.training_begins()
    recorder = _recorder(context, values, start, restore_s)
    run = TrainingRun(learner, values, recorder, scratch, meta)
    watchdog.beat(STARTUP_LIMIT_S, "waiting for the first iteration")

    def beat(saves: bool) -> None:
        watchdog.beat(SAVE_LIMIT_S if saves else STEP_LIMIT_S, "waiting for the next iteration")

    code = run.go(start, stop.requested, beat)
    _part(tf, workers, context, watchdog)
    return code


def _meta(name: str, values: Values) -> Meta:
    """What a checkpoint has to agree on with the run that goes on from it."""
    fixed = ("seed", "batch_size", "optimizer", "hidden", "filters")
    return {"program": name, **{flag: values.by_name[flag] for flag in fixed if flag in values.by_name}}


def _restore(learner: Learner, context: TaskContext, scratch: Path, meta: Meta) -> tuple[int, float | None]:
    """Iterations already done, and the seconds it took to restore them; (0, None) for a fresh start."""
    begun_s = time.monotonic()
    found = restore(open_store(context.checkpoint_uri), context.job_id, scratch, meta)
    if found is None:
        return 0, None
    learner.read_state(scratch)
    return found.iteration, time.monotonic() - begun_s


def _recorder(context: TaskContext, values: Values, start: int, restore_s: float | None) -> Recorder | None:
    """The recorder, on the chief only, with the start of this incarnation noted."""
    if not context.chief:
        return None
    recorder = Recorder(context, values.whole("keep_checkpoints"), stderr_log())
    recorder.started(start, restore_s)
    return recorder


def _part(tf: Any, workers: Workers, context: TaskContext, watchdog: Watchdog) -> None:
    """Wait until the chief has saved, as its peers' collectives end with its process."""
    from tf_jobs.workers import PeerLostError, meet

    if context.tasks == 1:
        return
    watchdog.beat(SAVE_LIMIT_S, "parting")
    try:
        meet(tf, workers)
    except PeerLostError:
        return  # All that had to be saved is saved.
    if context.chief:
        time.sleep(LINGER_S)
