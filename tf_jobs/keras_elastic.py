"""Make a Keras script elastic: call `job = join()` before the model is built, then `job.fit(model, ..)`.

The script's model, loss, metrics and optimizer stay as they are. The training loop is ours, since Keras' `fit` supports
neither resizes nor stops (docs/decisions/0012). It draws the same batches for any number of tasks, saves in the
background, stops on SIGTERM with exit code 75, and resumes where it stopped.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tf_jobs.context import TaskContext, read_context
from tf_jobs.dealing import check_batch_size, check_parts
from tf_jobs.exit_codes import EXIT_CHECKPOINTED, EXIT_DONE
from tf_jobs.flags import Values
from tf_jobs.keras_fits import FitInJob, Fits
from tf_jobs.signals import HandledStop
from tf_jobs.watchdog import STARTUP_LIMIT_S, Watchdog, begin_watch
from themis.errors import InputError, ThemisError

if TYPE_CHECKING:
    from tf_jobs.keras_arguments import FitArguments
    from tf_jobs.keras_callbacks import CalledBack

KERAS_BATCH_SIZE = 32
"""Samples per iteration by default, as in Keras' `fit`."""


class JobStop(HandledStop):
    """A stop request, by a signal or from a peer that was asked first."""

    def requested_by_peer(self) -> None:
        """Request a stop, as the signal does."""
        self._requested = True


class ElasticJob:
    """This task's part in the job. `chief` is true on one task: let only this task write the finished model.

    A script may call `fit` several times. After a restart, finished fits return at once.
    """

    def __init__(self, tf: Any, context: TaskContext, workers: Any, stop: JobStop, watchdog: Watchdog) -> None:
        self._tf = tf
        self._context = context
        self._workers = workers
        self._stop = stop
        self._watchdog = watchdog
        self._fits = Fits(context)

    @property
    def chief(self) -> bool:
        """Whether this task logs, saves and writes for the job."""
        return self._context.chief

    def fit(
        self,
        model: Any,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: object = None,  # noqa: ARG002 - Keras' own, so that scripts need not drop it
        *,
        iterations: int | None = None,
        validation_data: tuple[Any, Any] | None = None,
        callbacks: Sequence[Any] | None = None,
        seed: int = 0,
        checkpoint_every: int = 100,
        keep_checkpoints: int = 3,
        log_every: int = 20,
        ordered_parts: int = 0,
        **others: object,
    ) -> Any:
        """Train a compiled model instead of Keras' `fit`. Returns when all its iterations are done.

        A stop ends the process with exit code 75 once the state is saved, also after the last iteration. An error ends
        it with its own exit code, an invalid argument with 2.

        Args:
            model: Compiled, with its variables built or an input shape known from `x`.
            x: Inputs: an array, or lists or dictionaries of arrays, with one row per sample.
            y: Labels, in the same form.
            batch_size: Samples per iteration, over all tasks together; None: 32, as in Keras.
            epochs: Passes over the data, over all starts of the job.
            verbose: Ignored, and accepted only because Keras has it: use `log_every`.
            iterations: Iterations of this fit, instead of `epochs`; `%iterations%` if this is the script's only fit.
            validation_data: Held-out inputs and answers, evaluated after every epoch.
            callbacks: Keras' callbacks, called on every task. Callbacks that save or end the run are refused.
            seed: The seed of the data's order.
            checkpoint_every: Iterations between checkpoints.
            keep_checkpoints: How many of the newest checkpoints to keep.
            log_every: Iterations between log lines.
            ordered_parts: Parts in which a batch is summed, so that no resize changes a bit; 0: one per task.
            others: Other arguments of Keras' `fit`: refused unless they have Keras' default.

        Returns:
            keras.callbacks.History: `loss` and `val_..` by epoch, including epochs before a restart.
        """
        numbers = {
            "batch_size": KERAS_BATCH_SIZE if batch_size is None else batch_size, "epochs": epochs,
            "iterations": iterations, "seed": seed, "checkpoint_every": checkpoint_every,
            "keep_checkpoints": keep_checkpoints, "log_every": log_every, "ordered_parts": ordered_parts,
        }  # fmt: skip
        return self._fitted(model, (x, y), validation_data, callbacks, numbers, others)

    def _fitted(
        self,
        model: Any,
        data: tuple[Any, Any],
        validation: object,
        callbacks: object,
        numbers: Mapping[str, object],
        others: Mapping[str, object],
    ) -> Any:
        """Check the arguments and train. Returns the History, or ends the process if the script may not go on."""
        from tf_jobs.keras_arguments import checked

        history: Any = None
        try:
            arguments = checked(model, data, validation, callbacks, numbers, others)
            values = arguments.values
            check_batch_size(values.whole("batch_size"), self._context.tasks)
            check_parts(values.whole("ordered_parts"), values.whole("batch_size"), self._context.tasks)
            code, history = self._train(model, arguments)
        except ThemisError as error:
            sys.stderr.write(f"ERROR:themis:{error}\n")
            code = error.exit_code
        self._leave_unless_done(code)
        return history

    def _leave_unless_done(self, code: int) -> None:
        """End the process with the exit code of a fit, unless the fit is done and no stop was requested."""
        if code != EXIT_DONE:
            _leave(code)
        self._stop.training_ended()
        if self._stop.requested():
            # The request came after the last iteration. All is saved, and after the next start the fit returns at once.
            _leave(EXIT_CHECKPOINTED)
        self._watchdog.beat(math.inf, "what comes after fit")

    def _train(self, model: Any, arguments: FitArguments) -> tuple[int, Any]:
        """Do the next fit of the script, or the rest of it. Returns the exit code and the History."""
        from tf_jobs.keras_callbacks import CalledBack, Length
        from tf_jobs.keras_learner import KerasLearner

        values = arguments.values
        self._fits.begin()
        self._watchdog.beat(STARTUP_LIMIT_S, f"coming to fit {self._fits.number}")
        learner = KerasLearner(
            self._tf, model, arguments.data, arguments.validation, values, self._context, self._workers
        )
        length = Length(
            iterations=values.whole("iterations"), samples=arguments.samples, batch_size=values.whole("batch_size")
        )
        called_back = CalledBack(learner, model, arguments.callbacks, length, self._busy, self._stop)
        code = self._train_on(called_back, arguments)
        if code == EXIT_DONE:
            self._busy()
            called_back.ended()
        return code, called_back.history

    def _train_on(self, learner: CalledBack, arguments: FitArguments) -> int:
        """Load the end of a finished fit, or train. Returns the exit code."""
        from tf_jobs.incarnation import Incarnation, scratch_of

        iterations, before = arguments.values.whole("iterations"), self._fits.before
        meta = self._fits.meta(arguments.meta(learner.parameters))
        scratch = scratch_of(self._context)
        if (finished := self._fits.finished(iterations, scratch, meta)) is not None:
            learner.read_state(scratch)
            self._fits.ended(finished.iteration)
            return EXIT_DONE
        if self._context.chief:
            self._fits.put_by(scratch)
        values = Values(arguments.values.by_name | {"iterations": before + iterations})
        incarnation = Incarnation(
            context=self._context, values=values, meta=meta, stop=self._stop, watchdog=self._watchdog, before=before
        )
        code = incarnation.train(self._tf, FitInJob(learner, before), self._workers)
        self._fits.ended(before + iterations)
        return code

    def _busy(self) -> None:
        from tf_jobs.incarnation import SAVE_LIMIT_S

        self._watchdog.beat(SAVE_LIMIT_S, "callbacks at the end of an epoch")


def join() -> ElasticJob:
    """Join the other tasks of the job. Call it before the script builds any TensorFlow object.

    From then on SIGTERM ends the process with exit code 75, during `fit` after the state is saved. An invalid
    environment ends it with 2.
    """
    stop = JobStop()
    stop.listen()
    try:
        context = read_context("keras", os.environ)
        watchdog = begin_watch(context.tasks)
        tf = _tensorflow()
        from tf_jobs.workers import join_workers

        workers = join_workers(tf, context)
    except ThemisError as error:
        sys.stderr.write(f"ERROR:themis:{error}\n")
        _leave(error.exit_code)
    # TensorFlow's coordination service has replaced our handler.
    stop.take_over()
    return ElasticJob(tf, context, workers, stop, watchdog)


def _tensorflow() -> Any:
    """Return the tensorflow module. Raises InputError if Keras uses another back end."""
    import keras  # type: ignore[import-untyped]

    if keras.backend.backend() != "tensorflow":
        raise InputError("Keras' backend is not tensorflow", value=keras.backend.backend(), remedy="set KERAS_BACKEND")
    import tensorflow as tf

    return tf


def _leave(code: int) -> None:
    """End the process at once: TensorFlow's servers would wait for peers that may be dead."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
