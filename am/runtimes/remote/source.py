"""The ContainerSource port: what gives containers on chosen machines, and tells when one is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from am.runtimes.port import SeatRequest, TaskExit


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerWish:
    """A container that is to run a task host: for which seat, how large and where, with which environment.

    `on_step` is told by sources that know of them when steps are over: `ask`, the engine was asked; `grant`, it said
    yes.
    """

    seat_id: str
    request: SeatRequest
    environment: Mapping[str, str] = field(repr=False)
    on_step: Callable[[str], None] = field(default=_ignore, repr=False, compare=False)

    @property
    def machine_id(self) -> str:
        """The machine that it must run on: that of its GPUs."""
        return self.request.gpus[0].machine_id


class ContainerSource(Protocol):
    """Starts and ends containers. All methods belong to one event loop."""

    async def acquire(self, wishes: Sequence[ContainerWish]) -> None:
        """Have a container started for every wish; returns when all are. Cancelled or failed, it may leave some.

        The caller discards every seat of a failed call. Raises NoRoomError when one cannot be had in time.
        """
        ...

    def gone(self, seat_id: str) -> Awaitable[TaskExit]:
        """Wait until nothing of the seat's container runs any more; how it ended as the engine saw it."""
        ...

    async def discard(self, seat_id: str) -> None:
        """End the seat's container, whatever it does; returns when it is gone. An unknown seat is no error."""
        ...

    async def close(self) -> None:
        """End every container."""
        ...
