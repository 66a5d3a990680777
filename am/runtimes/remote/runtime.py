"""Run tasks in containers: first start all containers of a gang, then its tasks. All container engines use this."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from am.runtimes.port import ExitReason, KeptSeats, Seat, SeatRequest, TaskExit, TaskHandle, TaskLaunch
from am.runtimes.remote.containers import Container, Containers
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.source import ContainerSource
from am.runtimes.task_process import own_environment, process_command, task_marks
from themis.errors import InvariantError

LOG = logging.getLogger("themis.am.remote")

_OVERRUN_S = 5.0
"""Seconds after a task's grace period at which its container is ended."""


class RemoteTask:
    """A task in a container."""

    def __init__(self, launch: TaskLaunch, container: Container, pid: int) -> None:
        self.launch = launch
        self.container = container
        self.pid = pid
        self.reason = ExitReason.EXITED
        self.peak_memory_mb = 0.0
        self.end: asyncio.Future[TaskExit] = asyncio.get_running_loop().create_future()

    @property
    def seat_id(self) -> str:
        """The id of its seat."""
        return self.container.seat_id

    @property
    def ended(self) -> TaskExit | None:
        """How it ended, or None while it runs."""
        return self.end.result() if self.end.done() else None

    def used_memory(self, peak_mb: float) -> None:
        """Note the most memory that it was seen to use."""
        self.peak_memory_mb = peak_mb

    async def wait(self) -> TaskExit:
        """Wait until the task has ended. Its container may stay, idle (see `KeptSeats`)."""
        return await asyncio.shield(self.end)


class RemoteRuntime:
    """A ContainerRuntime over any source of containers.

    A task that ended cleanly has ended when its host reports this. Any other task has ended when the engine reports
    that its *container* is gone, because the engine may know the reason. `kept` knows when the GPUs are free.

    Args:
        source: Starts the containers.
        hosts: The server for task hosts. It must already listen.
        address: `host:port` of `hosts`, as containers reach it.
        run_id: The ResourceManager's run.
        prefix: Prefix of seat ids, so that they differ between attempts of an app.
        environment: Variables of every container, in addition to its seat's.
        cards_from_zero: Whether a container shows only its own cards, numbered from 0.
        cores: The cores of the machine on which all containers run, by the system's numbers. Empty if there are several
            machines.
    """

    def __init__(
        self,
        source: ContainerSource,
        hosts: TaskHosts,
        *,
        address: str,
        run_id: str,
        prefix: str,
        environment: Mapping[str, str],
        cards_from_zero: bool = False,
        cores: tuple[int, ...] = (),
    ) -> None:
        self._hosts = hosts
        self._containers = Containers(source, hosts, address=address, prefix=prefix, environment=environment)
        self.kept: KeptSeats = self._containers
        self.cores = cores
        self._run_id = run_id
        self._cards_from_zero = cards_from_zero
        self._watchers: set[asyncio.Task[None]] = set()

    async def reserve(self, requests: Sequence[SeatRequest]) -> tuple[Seat, ...]:
        """Reserve a container with a task host for every task, or for none. Raises NoRoomError."""
        return await self._containers.reserve(requests)

    async def vacate(self, seats: Sequence[Seat]) -> None:
        """End the containers of unused seats."""
        await self._containers.end(seat.seat_id for seat in seats)

    async def start(self, launch: TaskLaunch) -> RemoteTask:
        """Start a task in its seat's container."""
        seat = launch.seat
        if seat is None:
            raise InvariantError("a task in a container needs a seat", value=launch.job_id)
        command = process_command(launch)
        code = b"" if launch.code is None else await asyncio.to_thread(launch.code.read_bytes)
        task = RemoteTask(launch, self._containers.of(seat), self._hosts.pid(seat.seat_id))
        self._hosts.run(
            seat.seat_id,
            command=command,
            python=command[0] == sys.executable,
            environment=own_environment(launch, self._run_id, cards_from_zero=self._cards_from_zero),
            marks=task_marks(launch, self._run_id),
            log_path=launch.log_path,
            folder=Path(launch.working_dir),
            code=code,
            used_memory=task.used_memory,
        )
        watcher = asyncio.get_running_loop().create_task(self._watch(task))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return task

    async def stop(self, handle: TaskHandle, grace_s: float) -> TaskExit:
        """Send SIGTERM to the task, and SIGKILL after `grace_s` seconds. If it still runs then, end its container."""
        task = self._asked_to_end(handle)
        if task.ended is not None:
            # Another task may already run in its container.
            return task.ended
        self._hosts.stop(task.seat_id, grace_s)
        try:
            async with asyncio.timeout(grace_s + _OVERRUN_S):
                return await task.wait()
        except TimeoutError:
            LOG.warning("%s does not end, so its container is ended", task.seat_id)
            return await self._end_container(task)

    async def kill(self, handle: TaskHandle) -> TaskExit:
        """End the task's container."""
        return await self._end_container(self._asked_to_end(handle))

    async def close(self) -> None:
        """End every container."""
        await self._containers.close()
        await asyncio.gather(*self._watchers)
        await self._hosts.close()

    async def _end_container(self, task: RemoteTask) -> TaskExit:
        if task.ended is None:
            await self._containers.end([task.seat_id])
        return await task.wait()

    async def _watch(self, task: RemoteTask) -> None:
        gone = task.container.gone
        assert gone is not None
        exited = asyncio.ensure_future(self._hosts.exited(task.seat_id))
        await asyncio.wait({exited, gone}, return_when=asyncio.FIRST_COMPLETED)
        exited.cancel()
        code = self._hosts.exit_code(task.seat_id)
        clean = code is not None and _ended_cleanly(code, task.reason) and self._hosts.tidy(task.seat_id)
        if code is not None and clean and not gone.done():
            self._containers.free(task.container)
            task.end.set_result(TaskExit(exit_code=code, reason=task.reason))
            return
        self._hosts.leave(task.seat_id)
        seen = await asyncio.shield(gone)
        code = self._hosts.exit_code(task.seat_id) if code is None else code
        self._hosts.forget(task.seat_id)
        reason = task.reason if seen.reason is ExitReason.EXITED else seen.reason
        task.end.set_result(TaskExit(exit_code=seen.exit_code if code is None else code, reason=reason))

    def _asked_to_end(self, handle: TaskHandle) -> RemoteTask:
        if not isinstance(handle, RemoteTask):
            raise InvariantError("a task of another runtime", value=handle)
        if (
            handle.ended is None
            and handle.reason is ExitReason.EXITED
            and self._hosts.exit_code(handle.seat_id) is None
        ):
            handle.reason = ExitReason.STOPPED
        return handle


def _ended_cleanly(exit_code: int, reason: ExitReason) -> bool:
    """Whether another task may use the container: the task finished, or ended when asked to.

    The cause of a crash may still be in the container.
    """
    return exit_code == 0 or (reason is ExitReason.STOPPED and exit_code != -signal.SIGKILL)
