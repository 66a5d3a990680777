"""The fits of one script, one after another: which of them are done, and where in the job each begins.

The iterations of a job go on over its fits. Checkpoints of the fit under way lie under the job's own name; when the
next fit begins, the end of the one before is put by under a name of its own, as newer checkpoints will take its place.
A script that starts again runs from its first line: fits whose ends are put by give them back at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from am.checkpoints.store import Checkpoint, CheckpointError, Meta
from am.checkpoints.uri import open_store
from tf_jobs.context import TaskContext
from tf_jobs.recorder import restore
from themis.errors import InputError

if TYPE_CHECKING:
    from tf_jobs.incarnation import Resumable
    from tf_jobs.learner import StepOutcome
    from tf_jobs.saver import Snapshot


class Fits:
    """How far a script has come in its fits.

    Attributes:
        number: Of the fit under way, from 1; 0 before the first.
        before: Iterations of the job in the fits before it.

    Args:
        context: This task's place in the job.
    """

    def __init__(self, context: TaskContext) -> None:
        self.number = 0
        self.before = 0
        self._context = context
        self._store = open_store(context.checkpoint_uri)

    def begin(self) -> None:
        """The script has come to its next fit."""
        self.number += 1

    def ended(self, iteration: int) -> None:
        """The fit under way has ended with this iteration of the job."""
        self.before = iteration

    def meta(self, meta: Meta) -> Meta:
        """What checkpoints of this fit have noted; those of a first fit are as those of an only one."""
        return {**meta, "fit": self.number} if self.number > 1 else meta

    def finished(self, iterations: int, into: Path, meta: Meta) -> Checkpoint | None:
        """Fetch the end of this fit into a folder, where a later fit has begun already; None where it has not.

        Args:
            iterations: Of this fit.
            into: A folder of this task alone.
            meta: What the end has to agree on.

        Raises:
            InputError: The fit is another than it was, or is to be longer or shorter now.
        """
        found = restore(self._store, self._kept_id(self.number), into, self.meta(meta))
        if found is not None and found.iteration != self.before + iterations:
            raise InputError(
                f"fit {self.number} of the script has another length than when the next one began",
                value=iterations,
                remedy=f"give it {found.iteration - self.before} iterations, or use another job id",
            )
        return found

    def put_by(self, into: Path) -> None:
        """Keep the end of the fit before this one, if that is not done yet; for the chief.

        Raises:
            InputError: That fit has done more than it is to do now.
            CheckpointError: It is not the newest checkpoint.
        """
        if self.number == 1 or self._store.latest_iteration(self._kept_id(self.number - 1)) is not None:
            return
        found = self._store.fetch_latest(self._context.job_id, into)
        if found is not None and found.iteration > self.before:
            raise InputError(
                f"fit {self.number - 1} of the script has done more than it is to do now",
                value=found.iteration,
                remedy="give it the length it had, or use another job id",
            )
        if found is None or found.iteration < self.before:
            raise CheckpointError(
                f"the end of fit {self.number - 1} of the script is not the newest checkpoint",
                value=found and found.iteration,
                remedy="start the job again",
            )
        files = {record.name: into / record.name for record in found.files}
        self._store.save(self._kept_id(self.number - 1), found.iteration, files, found.meta)

    def _kept_id(self, number: int) -> str:
        """What the end of a fit is kept under."""
        return f"{self._context.job_id}.fit-{number}"


class FitInJob:
    """A learner that counts its own iterations, within a job that did some before.

    Args:
        learner: Of this fit.
        before: Iterations of the job before it.
    """

    def __init__(self, learner: Resumable, before: int) -> None:
        self._learner = learner
        self._before = before

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do an iteration of the job."""
        return self._learner.step(iteration - self._before, stop=stop)

    def validate(self) -> tuple[float, float | None] | None:
        """As the learner's."""
        return self._learner.validate()

    def snapshot(self) -> Snapshot:
        """As the learner's."""
        return self._learner.snapshot()

    def read_state(self, folder: Path) -> None:
        """As the learner's."""
        self._learner.read_state(folder)

    def digest(self) -> int:
        """As the learner's."""
        return self._learner.digest()
