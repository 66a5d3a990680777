"""Makes a Keras script of one's own elastic: `job = join()` before the model is built, then `job.fit(model, ..)`.

The script's model, loss, metrics and optimizer stay as they are. The loop is ours, as Keras' `fit` knows neither of
resizes nor of stops (docs/decisions/0012): it draws the same batches for any number of tasks, saves in the
background, stops on SIGTERM with exit code 75, and goes on where it was.
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
"""Samples an iteration where a script gives no other, as of Keras' `fit`."""


class JobStop(HandledStop):
    """A stop that this task hears of by a signal, or from a peer that was quicker to get one."""

    def told_by_peer(self) -> None:
        """As if the signal had come."""
        self._requested = True


class ElasticJob:
    """This task's part in the job. `chief` is true on one task: let only that one write the finished model.

    A script may fit as often as it likes: a later start finds what is done, fit by fit.
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
        """Whether this task speaks for the job."""
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
        """Train a compiled model in place of Keras' `fit`; returns when all its iterations are done.

        A stop ends the process, with exit code 75, once the state is saved, that of the last iteration too; so does an
        error, with its own, and what cannot be used, with 2.

        Args:
            model: Compiled, with its variables built or an input shape known from `x`.
            x: Inputs: an array, or lists or dictionaries of arrays, with one row a sample.
            y: What to answer, likewise.
            batch_size: Samples an iteration, over all tasks together; None: 32, as for Keras.
            epochs: Passes over the data, over all starts of the job.
            verbose: Not heeded, and taken for Keras' sake: how much is told is `log_every`'s.
            iterations: In place of epochs: of this fit, as `%iterations%` gives it where the script has no other.
            validation_data: Held-out inputs and answers, evaluated after every epoch.
            callbacks: Keras' callbacks, called on every task; none that saves or ends the run.
            seed: Of the data's order.
            checkpoint_every: Iterations between checkpoints.
            keep_checkpoints: Newest checkpoints to keep.
            log_every: Iterations between log lines.
            ordered_parts: In how many parts a batch is summed, so that no resize changes a bit; 0: a share a task.
            others: What else Keras' `fit` takes: refused, unless it is Keras' default.

        Returns:
            keras.callbacks.History: `loss` and `val_..` by epoch, also of those before a restart.
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
        """Train, if all that a fit is given can be used, and tell what cannot; the History, if the script goes on."""
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
        """End the process by the code of a fit; one that is done lets the script go on, unless a stop was asked for."""
        if code != EXIT_DONE:
            _leave(code)
        self._stop.training_ended()
        if self._stop.requested():
            # It came too late for this fit to heed. All is saved, and the next start gives the fit back at once.
            _leave(EXIT_CHECKPOINTED)
        self._watchdog.beat(math.inf, "what comes after fit")

    def _train(self, model: Any, arguments: FitArguments) -> tuple[int, Any]:
        """The next fit of the script, or what is left of it; returns the exit code and the History."""
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
        """Take over the end of a fit that is done, or train; returns the exit code."""
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
    """Meet the other tasks of the job, if there are any. Call it before anything of TensorFlow is built.

    From here on SIGTERM ends the process with exit code 75, while `fit` trains after it has saved. An environment that
    cannot be used ends it with 2.
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
    # TensorFlow's coordination service has put a handler of its own in place of ours.
    stop.take_over()
    return ElasticJob(tf, context, workers, stop, watchdog)


def _tensorflow() -> Any:
    """The tensorflow module; raises InputError where Keras works with another library."""
    import keras  # type: ignore[import-untyped]

    if keras.backend.backend() != "tensorflow":
        raise InputError("Keras' backend is not tensorflow", value=keras.backend.backend(), remedy="set KERAS_BACKEND")
    import tensorflow as tf

    return tf


def _leave(code: int) -> None:
    """End the process, without waiting for TensorFlow's servers and for peers that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
