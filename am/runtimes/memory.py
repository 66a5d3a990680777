"""Tasks that exist in memory only: the shipped adapter for tests, with ends as a script says."""

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
    """A task in memory: runs until somebody ends it."""

    def __init__(self, launch: TaskLaunch, pid: int) -> None:
        self.launch = launch
        self.pid = pid
        self._end: asyncio.Future[TaskExit] = asyncio.get_running_loop().create_future()

    @property
    def ended(self) -> TaskExit | None:
        """How it ended; None while it runs."""
        return self._end.result() if self._end.done() else None

    async def wait(self) -> TaskExit:
        """Return when it has ended."""
        return await asyncio.shield(self._end)

    def end(self, exit_code: int, reason: ExitReason = ExitReason.EXITED) -> None:
        """End it, unless it has ended already."""
        if not self._end.done():
            self._end.set_result(TaskExit(exit_code=exit_code, reason=reason))


class MemoryRuntime:
    """Remembers what was started and stopped.

    Args:
        exit_codes: By job id, the codes with which successive starts of a task of that job end by themselves, at once.
            Once a job's script is used up, its tasks run until they are ended.
        refused: Job ids whose tasks cannot be started.
        stubborn: Job ids whose tasks ignore `stop` until the grace is over and then end by SIGKILL.
        full: Job ids for whose tasks there is never room.

    `seated` holds the ids of the seats that are taken or reserved.
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
        """Seats at made-up addresses; requests of jobs in `full` wait until they are cancelled."""
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
        """Start a task, or raise ThemisError when its job is among the refused."""
        if launch.job_id in self._refused:
            raise ThemisError("cannot start a task", value=launch.job_id, remedy="the script refuses it")
        task = MemoryTask(launch, pid=len(self.started) + 1)
        self.started.append(task)
        if script := self._exit_codes.get(launch.job_id):
            task.end(script.pop(0))
        return task

    async def stop(self, handle: TaskHandle, grace_s: float) -> TaskExit:
        """End a task by SIGTERM; a stubborn one by SIGKILL after the grace."""
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
