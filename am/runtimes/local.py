"""Run tasks as processes of this machine, each with its own group, log file and leased cards. Linux only."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path

from am.runtimes.memory_use import CHECK_S, check_pauses_s, tree_memory_mb
from am.runtimes.orphans import Orphans
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
from am.runtimes.task_process import RUN_MARK, inherited_environment, own_environment, process_command, task_marks
from themis.code_archive import CODE_FOLDER, unpack_code
from themis.control_groups import Limits
from themis.errors import InvariantError
from themis.files import add_note
from themis.processes import ProcessSpec, RunningProcess, kill_marked, look_surely, start
from themis.sessions import adopts_orphans

_LOG = logging.getLogger(__name__)


class LocalTask:
    """A task that is a process of this machine."""

    def __init__(self, launch: TaskLaunch, process: RunningProcess) -> None:
        self.launch = launch
        self.process = process
        self.reason = ExitReason.EXITED
        self.peak_memory_mb = 0.0
        self.end: asyncio.Future[TaskExit] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        """Its process id, which is also its process group."""
        return self.process.pid

    @property
    def ended(self) -> TaskExit | None:
        """How it ended, or None while it runs."""
        return self.end.result() if self.end.done() else None

    async def wait(self) -> TaskExit:
        """Wait until the task and its children have ended."""
        return await asyncio.shield(self.end)


class LocalRuntime:
    """Starts each task under the guard, so that none outlives this process (see `themis.process_guard`).

    When a task ends, the runtime finds children in other sessions by their marks, and kills them. Those without marks
    end with the last task that runs, if this process adopts orphans.

    Args:
        memory_check_s: Seconds between two checks of tasks with a memory limit, less at the start of a task. A task may
            exceed its limit in between.
    """

    def __init__(self, *, memory_check_s: float = CHECK_S) -> None:
        self.kept: KeptSeats = NothingKept()
        self.cores = tuple(sorted(os.sched_getaffinity(0)))
        self._memory_check_s = memory_check_s
        self._tasks: dict[int, LocalTask] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._orphans = Orphans(self._tasks) if adopts_orphans() else None
        self._inherited = inherited_environment(os.environ)

    async def reserve(self, requests: Sequence[SeatRequest]) -> tuple[Seat, ...]:
        """Return seats on this machine, each with a loopback port that was free a moment ago."""
        addresses = free_addresses(len(requests))
        return tuple(
            Seat(seat_id=f"{request.job_id}/{request.task_index}", address=address)
            for request, address in zip(requests, addresses, strict=True)
        )

    async def vacate(self, seats: Sequence[Seat]) -> None:
        """Do nothing: an unused seat holds no resources."""

    async def start(self, launch: TaskLaunch) -> LocalTask:
        """Start a task. Raises StartError if its folders or its program cannot be used."""
        working_dir = launch.working_dir
        if launch.code is not None:
            working_dir /= CODE_FOLDER
            # The tasks of a gang share the job's folder, and task 0 starts first.
            if launch.task_index == 0:
                await asyncio.to_thread(_unpack, launch.code, working_dir)
        process = start(
            ProcessSpec(
                command=process_command(launch),
                environment={**self._inherited, **own_environment(launch, os.environ.get(RUN_MARK, ""))},
                working_dir=working_dir,
                stdout=launch.log_path,
                dies_with_parent=True,
                cores=launch.cores,
                # A task that has a CPU node to itself may use all its cores.
                limits=Limits(memory_mb=launch.memory_mb, cores=max(launch.vcores, len(launch.cores))),
            )
        )
        task = LocalTask(launch, process)
        self._tasks[task.pid] = task
        self._keep(self._watch(task))
        if launch.memory_mb > 0:
            self._keep(self._limit_memory(task))
        return task

    async def stop(self, handle: TaskHandle, grace_s: float) -> TaskExit:
        """Send SIGTERM to the task's group, and SIGKILL after `grace_s` seconds."""
        task = self._asked_to_end(handle)
        await task.process.terminate(grace_s)
        return await task.wait()

    async def kill(self, handle: TaskHandle) -> TaskExit:
        """Send SIGKILL to the task's group."""
        task = self._asked_to_end(handle)
        task.process.kill()
        return await task.wait()

    async def close(self) -> None:
        """Kill every task that still runs."""
        await asyncio.gather(*(self.kill(task) for task in list(self._tasks.values())))
        await asyncio.gather(*self._watchers)

    async def _watch(self, task: LocalTask) -> None:
        code = await task.process.wait()
        if task.process.ran_out_of_memory and task.reason is ExitReason.EXITED:
            self._note_memory(task, "more than")
        # Use a thread, because this examines every process of the machine.
        left = await look_surely(kill_marked, task_marks(task.launch, os.environ.get(RUN_MARK, "")))
        if left:
            _LOG.warning("processes of job %s cannot be killed: %s", task.launch.job_id, left)
        del self._tasks[task.pid]
        if self._orphans is not None:
            await self._orphans.end()
        task.end.set_result(TaskExit(exit_code=code, reason=task.reason))

    async def _limit_memory(self, task: LocalTask) -> None:
        limit_mb = task.launch.memory_mb
        for pause_s in check_pauses_s(self._memory_check_s):
            if task.process.exit_code is not None:
                return
            task.process.note_sessions()
            used_mb = tree_memory_mb(task.pid)
            task.peak_memory_mb = max(task.peak_memory_mb, used_mb)
            if used_mb > limit_mb:
                task.process.kill()
                self._note_memory(task, f"{used_mb:.0f} MB of")
                return
            await asyncio.wait([task.end], timeout=pause_s)

    def _note_memory(self, task: LocalTask, used: str) -> None:
        task.reason = ExitReason.MEMORY
        message = f"themis: killed, because it used {used} its {task.launch.memory_mb} MB of memory\n"
        add_note(task.launch.log_path, message)

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        # The event loop only holds a weak reference.
        watcher = asyncio.get_running_loop().create_task(work)
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    def _asked_to_end(self, handle: TaskHandle) -> LocalTask:
        if not isinstance(handle, LocalTask):
            raise InvariantError("a task of another runtime", value=handle)
        if handle.process.exit_code is None and handle.reason is ExitReason.EXITED:
            handle.reason = ExitReason.STOPPED
        return handle


def _unpack(archive: Path, folder: Path) -> None:
    unpack_code(archive.read_bytes(), folder)


def free_addresses(count: int) -> tuple[str, ...]:
    """Return loopback addresses with ports that were free a moment ago, one per task."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(f"127.0.0.1:{each.getsockname()[1]}" for each in sockets)
