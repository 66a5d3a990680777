"""What a job's life costs beside its iterations."""

from __future__ import annotations

from themis.errors import InputError
from themis.values import Value

A_DAY_S = 86_400.0
A_CENTURY_S = 100 * 365.25 * A_DAY_S


class Costs(Value, frozen=True, kw_only=True):
    """What a job's life costs beside its iterations, in seconds.

    Attributes:
        checkpoint_s: A job that stops writes a checkpoint for so long before it gives its GPUs back.
        restore_s: A job that starts reads its checkpoint and makes its first step so long after its containers stand.
        container_s: Containers on GPUs that the app did not hold already take so long to start.
        finish_s: A job that reached its target saves itself and leaves its GPUs for so long.
        checkpoint_every_s: A running job saves itself so often; what it did since is lost with its machine. The write
            goes on beside the training and costs nothing.
    """

    checkpoint_s: float = 5.0
    restore_s: float = 5.0
    container_s: float = 30.0
    finish_s: float = 0.0
    checkpoint_every_s: float = 300.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            most_s = A_CENTURY_S if name == "checkpoint_every_s" else A_DAY_S
            # The comparison is false for NaN too, of which a run would have no end.
            if not 0.0 <= getattr(self, name) <= most_s:
                what = f"{name} must be 0 to a {'day' if most_s == A_DAY_S else 'century'}, in seconds"
                raise InputError(what, value=getattr(self, name))

    @property
    def restart_s(self) -> float:
        """What moving a running job costs it."""
        return self.checkpoint_s + self.container_s + self.restore_s
