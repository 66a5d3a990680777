"""The fits of one script, in order: which of them are done, and the iteration at which each begins.

Iterations are counted over all fits of a job. Checkpoints of the current fit have the job's name. When the next fit
begins, the last checkpoint of the previous one is kept under a name of its own, before newer checkpoints replace it.
After a restart the script runs from its first line, and fits with such a checkpoint return at once.
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
    """The script's progress over its fits.

    Attributes:
        number: The number of the current fit, from 1; 0 before the first.
        before: Iterations of the job in earlier fits.

    Args:
        context: This task's position in the job.
    """

    def __init__(self, context: TaskContext) -> None:
        self.number = 0
        self.before = 0
        self._context = context
        self._store = open_store(context.checkpoint_uri)

    def begin(self) -> None:
        """Begin the next fit of the script."""
        self.number += 1

    def ended(self, iteration: int) -> None:
        """End the current fit with this iteration of the job."""
        self.before = iteration

    def meta(self, meta: Meta) -> Meta:
        """Return the meta values of this fit's checkpoints. A first fit has the same values as an only one."""
        return {**meta, "fit": self.number} if self.number > 1 else meta

    def finished(self, iterations: int, into: Path, meta: Meta) -> Checkpoint | None:
        """Fetch the last checkpoint of this fit into a folder. Returns None if no later fit has begun.

        Args:
            iterations: The iterations of this fit.
            into: A folder of this task alone.
            meta: The values that the checkpoint must have.

        Raises:
            InputError: The fit differs from the saved one, or has another length now.
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
        """Keep the last checkpoint of the previous fit, if that is not done yet. Only the chief calls it.

        Raises:
            InputError: That fit has done more iterations than it should have now.
            CheckpointError: Its last checkpoint is not the newest one.
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
        """Return the name under which the last checkpoint of a fit is kept."""
        return f"{self._context.job_id}.fit-{number}"


class FitInJob:
    """A learner that counts its own iterations, in a job that did others before.

    Args:
        learner: The learner of this fit.
        before: Iterations of the job before it.
    """

    def __init__(self, learner: Resumable, before: int) -> None:
        self._learner = learner
        self._before = before

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do an iteration of the job."""
        return self._learner.step(iteration - self._before, stop=stop)

    def validate(self) -> tuple[float, float | None] | None:
        """As in the wrapped learner."""
        return self._learner.validate()

    def snapshot(self) -> Snapshot:
        """As in the wrapped learner."""
        return self._learner.snapshot()

    def read_state(self, folder: Path) -> None:
        """As in the wrapped learner."""
        self._learner.read_state(folder)

    def digest(self) -> int:
        """As in the wrapped learner."""
        return self._learner.digest()
