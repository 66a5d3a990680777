"""The ContainerSource port: it starts containers on chosen machines, and reports when they are gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from am.runtimes.port import SeatRequest, TaskExit
from themis.values import Value, repr_without


def _ignore(_: str) -> None:
    pass


class ContainerWish(Value, frozen=True, kw_only=True):
    """A request for a container with a task host.

    Attributes:
        seat_id: The seat of the container.
        request: Its size and GPUs.
        environment: Its environment variables.
        on_step: Called at the end of a step by sources that have them: `ask` (the engine was asked for the container)
            and `grant` (it granted the container).
    """

    seat_id: str
    request: SeatRequest
    environment: Mapping[str, str]
    on_step: Callable[[str], None] = _ignore

    __repr__ = repr_without("environment", "on_step")

    @property
    def machine_id(self) -> str:
        """The machine of its GPUs, on which it must run."""
        return self.request.gpus[0].machine_id


class ContainerSource(Protocol):
    """Starts and ends containers. Call all methods in one event loop."""

    async def acquire(self, wish: ContainerWish) -> None:
        """Start a container. Returns when it has started.

        A cancelled or failed call may leave it, so the caller must discard its seat. Raises NoRoomError if it cannot be
        started in time.
        """
        ...

    def gone(self, seat_id: str) -> Awaitable[TaskExit]:
        """Wait until the seat's container has ended, and return its end as the engine reports it."""
        ...

    async def discard(self, seat_id: str) -> None:
        """End the seat's container in any state. Returns when it is gone. An unknown seat is no error."""
        ...

    async def close(self) -> None:
        """End every container."""
        ...
