"""The time that starting, stopping and saving a job takes."""

from __future__ import annotations

from themis.errors import InputError
from themis.values import Value

A_DAY_S = 86_400.0
A_CENTURY_S = 100 * 365.25 * A_DAY_S


class Costs(Value, frozen=True, kw_only=True):
    """The time that a job needs in addition to its iterations, in seconds.

    Attributes:
        checkpoint_s: Time that a stopping job needs to write its checkpoint before it gives its GPUs back.
        restore_s: Time from running containers to the first step: the job reads its checkpoint.
        container_s: Start time of containers on GPUs that the app did not hold before.
        finish_s: Time that a job at its target needs to save itself and give its GPUs back.
        checkpoint_every_s: Time between two checkpoints of a running job. If its machine is lost, so is the work since
            the last one. These checkpoints take no time, since they are written during training.
    """

    checkpoint_s: float = 5.0
    restore_s: float = 5.0
    container_s: float = 30.0
    finish_s: float = 0.0
    checkpoint_every_s: float = 300.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            most_s = A_CENTURY_S if name == "checkpoint_every_s" else A_DAY_S
            # The comparison is false for NaN too; with NaN a run would never end.
            if not 0.0 <= getattr(self, name) <= most_s:
                what = f"{name} must be 0 to a {'day' if most_s == A_DAY_S else 'century'}, in seconds"
                raise InputError(what, value=getattr(self, name))

    @property
    def restart_s(self) -> float:
        """Seconds that a running job loses if it moves."""
        return self.checkpoint_s + self.container_s + self.restore_s
