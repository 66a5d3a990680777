"""A container source whose containers are plain processes of this machine, for tests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from am.runtimes.port import NoRoomError, TaskExit
from am.runtimes.remote.source import ContainerWish
from themis.processes import ProcessSpec, RunningProcess, start
from themis.python_programs import module_command

HOST_COMMAND = module_command("am.runtimes.remote.task_host")


class ProcessSource:
    """Starts a task host for every wish, each in its own folder.

    Args:
        folder: Parent of these folders.
        full: Machines without room.
        command: The command that starts a task host.
    """

    def __init__(
        self, folder: Path, *, full: frozenset[str] = frozenset(), command: Sequence[str] = HOST_COMMAND
    ) -> None:
        self.processes: dict[str, RunningProcess] = {}
        self._folder = folder
        self._full = full
        self._command = tuple(command)

    async def acquire(self, wish: ContainerWish) -> None:
        """Start the container unless its machine is full."""
        if wish.machine_id in self._full:
            raise NoRoomError("the machine is full", value=wish.machine_id)
        folder = self._folder / wish.seat_id
        self.processes[wish.seat_id] = start(
            ProcessSpec(
                command=self._command,
                environment={**os.environ, **wish.environment},
                working_dir=folder,
                stdout=folder / "host.log",
                dies_with_parent=True,
            )
        )

    async def gone(self, seat_id: str) -> TaskExit:
        """Wait for the end of the process, and return it."""
        return TaskExit(exit_code=await self.processes[seat_id].wait())

    async def discard(self, seat_id: str) -> None:
        """Send SIGTERM, and SIGKILL two seconds later."""
        if (process := self.processes.get(seat_id)) is not None:
            await process.terminate(2.0)

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(self.discard(seat_id) for seat_id in self.processes))
