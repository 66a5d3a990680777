"""A runtime whose tasks exist in memory only, for tests. A script sets the exit codes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from am.runtimes.port import (
    ExitReason,
    KeptSeats,
    NothingKept,
    Seat,
    SeatRequest,
    TaskExit,
    TaskHandle,
    TaskLaunch,
)
from themis.errors import InvariantError, ThemisError


class MemoryTask:
    """A task in memory. It runs until a caller ends it."""

    def __init__(self, launch: TaskLaunch, pid: int) -> None:
        self.launch = launch
        self.pid = pid
        self._end: asyncio.Future[TaskExit] = asyncio.get_running_loop().create_future()

    @property
    def ended(self) -> TaskExit | None:
        """How it ended, or None while it runs."""
        return self._end.result() if self._end.done() else None

    async def wait(self) -> TaskExit:
        """Wait until the task has ended."""
        return await asyncio.shield(self._end)

    def end(self, exit_code: int, reason: ExitReason = ExitReason.EXITED) -> None:
        """End the task, unless it has ended already."""
        if not self._end.done():
            self._end.set_result(TaskExit(exit_code=exit_code, reason=reason))


class MemoryRuntime:
    """Records which tasks were started and stopped.

    Args:
        exit_codes: Exit codes of successive starts by job id. A task with a code ends at once. Further tasks of the job
            run until a caller ends them.
        refused: Job ids whose tasks cannot be started.
        stubborn: Job ids whose tasks ignore `stop` until the grace period ends, and then end by SIGKILL.
        full: Job ids whose reservations wait forever.

    Attributes:
        seated: Ids of the reserved and the used seats.
    """

    def __init__(
        self,
        *,
        exit_codes: dict[str, list[int]] | None = None,
        refused: frozenset[str] = frozenset(),
        stubborn: frozenset[str] = frozenset(),
        full: frozenset[str] = frozenset(),
    ) -> None:
        self.kept: KeptSeats = NothingKept()
        self.cores: tuple[int, ...] = ()
        self.seated: set[str] = set()
        self._full = full
        self.started: list[MemoryTask] = []
        self.stops: list[tuple[int, float]] = []
        self._exit_codes = {job: list(codes) for job, codes in (exit_codes or {}).items()}
        self._refused = refused
        self._stubborn = stubborn

    @property
    def running(self) -> list[MemoryTask]:
        """Tasks that have not ended, in the order of their start."""
        return [task for task in self.started if task.ended is None]

    async def reserve(self, requests: Sequence[SeatRequest]) -> tuple[Seat, ...]:
        """Return seats at invented addresses. Requests of jobs in `full` wait until the caller cancels them."""
        if any(request.job_id in self._full for request in requests):
            await asyncio.Event().wait()
        seats = tuple(
            Seat(seat_id=f"{request.job_id}/{request.task_index}", address=f"127.0.0.1:{10_000 + number}")
            for number, request in enumerate(requests)
        )
        self.seated.update(seat.seat_id for seat in seats)
        return seats

    async def vacate(self, seats: Sequence[Seat]) -> None:
        """Forget the seats."""
        self.seated.difference_update(seat.seat_id for seat in seats)

    async def start(self, launch: TaskLaunch) -> MemoryTask:
        """Start a task. Raises ThemisError if its job is in `refused`."""
        if launch.job_id in self._refused:
            raise ThemisError("cannot start a task", value=launch.job_id, remedy="the script refuses it")
        task = MemoryTask(launch, pid=len(self.started) + 1)
        self.started.append(task)
        if script := self._exit_codes.get(launch.job_id):
            task.end(script.pop(0))
        return task

    async def stop(self, handle: TaskHandle, grace_s: float) -> TaskExit:
        """End a task by SIGTERM, or a stubborn one by SIGKILL after the grace period."""
        task = self._own(handle)
        self.stops.append((task.pid, grace_s))
        if task.launch.job_id in self._stubborn:
            await asyncio.sleep(grace_s)
            return await self.kill(task)
        task.end(-signal.SIGTERM, ExitReason.STOPPED)
        return await task.wait()

    async def kill(self, handle: TaskHandle) -> TaskExit:
        """End a task by SIGKILL."""
        task = self._own(handle)
        task.end(-signal.SIGKILL, ExitReason.STOPPED)
        return await task.wait()

    async def close(self) -> None:
        """Kill every task that still runs."""
        for task in self.running:
            await self.kill(task)

    def _own(self, handle: TaskHandle) -> MemoryTask:
        if not isinstance(handle, MemoryTask):
            raise InvariantError("a task of another runtime", value=handle)
        return handle
