"""The main function of all real programs: from a command line to a trained, saved and logged network."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from am.checkpoints.store import Meta
from tf_jobs.catalog import program
from tf_jobs.context import read_context
from tf_jobs.dealing import check_batch_size, check_parts
from tf_jobs.exit_codes import EXIT_DONE, EXIT_FAILED
from tf_jobs.flags import HelpRequested, Values, parse
from tf_jobs.process_age import process_age_s
from tf_jobs.recorder import stderr_log
from tf_jobs.signals import StopRequest
from tf_jobs.watchdog import begin_watch
from themis.errors import ThemisError


def run_program(name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a real program and end the process with its exit code."""
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
    # Not sys.exit: TensorFlow's servers take seconds to stop, and may wait for dead peers.
    os._exit(code)


def _run(name: str, arguments: Sequence[str], stop: StopRequest) -> int:
    """Read the command line and the environment, then train. Returns the exit code."""
    values = parse(program(name), arguments)
    context = read_context(name, os.environ, values.text("checkpoint_uri"))
    check_batch_size(values.whole("batch_size"), context.tasks)
    check_parts(values.whole("ordered_parts"), values.whole("batch_size"), context.tasks)
    watchdog = begin_watch(context.tasks)
    from tf_jobs.tensorflow_setup import load_tensorflow

    age_s = process_age_s()
    tf = load_tensorflow()
    if values.whole("ordered_parts"):
        # Sums whose order a GPU's kernels may choose must have a fixed order.
        tf.config.experimental.enable_op_determinism()
    if context.chief:
        stderr_log().imported(process_age_s() - age_s, age_s)
    from tf_jobs.assembly import build_model, load_data
    from tf_jobs.incarnation import Incarnation
    from tf_jobs.learner import Learner
    from tf_jobs.workers import join_workers

    workers = join_workers(tf, context)
    learner = Learner(tf, build_model(name, values), values, load_data(name), context, workers)
    incarnation = Incarnation(context=context, values=values, meta=_meta(name, values), stop=stop, watchdog=watchdog)
    return incarnation.train(tf, learner, workers)


def _meta(name: str, values: Values) -> Meta:
    """Return the values that a checkpoint and the run that resumes it must share."""
    fixed = ("seed", "batch_size", "optimizer", "hidden", "filters", "layers", "heads")
    return {"program": name, **{flag: values.by_name[flag] for flag in fixed if flag in values.by_name}}
