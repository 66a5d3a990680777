"""Tasks in containers: a gang's containers first, all of them, then its tasks. One for every engine with containers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from am.runtimes.port import ExitReason, NoRoomError, Seat, SeatRequest, TaskExit, TaskHandle, TaskLaunch
from am.runtimes.remote import frames
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.source import ContainerSource, ContainerWish
from am.runtimes.remote.steps import Steps
from am.runtimes.task_process import own_environment, process_command, task_marks
from themis.errors import InvariantError

LOG = logging.getLogger("themis.am.remote")

CONNECT_S = 30.0
"""How long a task host may take from the start of its container until it is heard of."""
_OVERRUN_S = 5.0
"""How long past its grace a task may take to be gone, before its container is ended."""


class RemoteTask:
    """A task in a container."""

    def __init__(self, launch: TaskLaunch, seat: Seat, pid: int) -> None:
        self.launch = launch
        self.seat = seat
        self.pid = pid
        self.reason = ExitReason.EXITED
        self.end: asyncio.Future[TaskExit] = asyncio.get_running_loop().create_future()

    @property
    def ended(self) -> TaskExit | None:
        """How it ended; None while anything of its container runs."""
        return self.end.result() if self.end.done() else None

    async def wait(self) -> TaskExit:
        """Return when its container is gone."""
        return await asyncio.shield(self.end)


class RemoteRuntime:
    """A ContainerRuntime over any source of containers.

    A task counts as ended once its *container* is gone, as the engine tells: only then are its GPUs free.

    Args:
        source: Gives the containers.
        hosts: Where task hosts connect; it listens already.
        address: `host:port` of `hosts`, as containers reach it.
        run_id: The mark of the ResourceManager's run.
        prefix: Of seat ids, so that they differ over the attempts of an app.
        environment: What every container's environment holds beside its seat's.
        cards_from_zero: A container is shown its own cards only, which count from 0 there.
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
    ) -> None:
        self._source = source
        self._hosts = hosts
        self._address = address
        self._run_id = run_id
        self._prefix = prefix
        self._environment = dict(environment)
        self._cards_from_zero = cards_from_zero
        self._numbers = itertools.count(1)
        self._tasks: dict[str, RemoteTask] = {}
        self._watchers: set[asyncio.Task[None]] = set()

    async def reserve(self, requests: Sequence[SeatRequest]) -> tuple[Seat, ...]:
        """A container with a task host in it for every task, or for none; raises NoRoomError."""
        steps = Steps(asyncio.get_running_loop().time)
        wishes = [self._wish(request, steps) for request in requests]
        try:
            await self._source.acquire(wishes)
            steps.over("start")
            async with asyncio.timeout(CONNECT_S):
                seats = await asyncio.gather(*(self._connected(wish.seat_id) for wish in wishes))
            steps.over("connect")
            seconds = steps.seconds()
            return tuple(replace(seat, seconds=seconds) for seat in seats)
        except BaseException as error:
            await asyncio.gather(*(self._discard(wish.seat_id) for wish in wishes))
            if isinstance(error, TimeoutError):
                remedy = "see its container's log: does the program start there, and can it reach the app master?"
                raise NoRoomError(
                    f"no task host within {CONNECT_S:g} s", value=_where(requests), remedy=remedy
                ) from None
            raise

    async def vacate(self, seats: Sequence[Seat]) -> None:
        """End the containers of seats that nobody took."""
        await asyncio.gather(*(self._discard(seat.seat_id) for seat in seats))

    async def start(self, launch: TaskLaunch) -> RemoteTask:
        """Start a task in its seat's container."""
        seat = launch.seat
        if seat is None:
            raise InvariantError("a task in a container needs a seat", value=launch.job_id)
        command = process_command(launch)
        task = RemoteTask(launch, seat, self._hosts.pid(seat.seat_id))
        self._hosts.run(
            seat.seat_id,
            command=command,
            python=command[0] == sys.executable,
            environment=own_environment(launch, self._run_id, cards_from_zero=self._cards_from_zero),
            marks=task_marks(launch, self._run_id),
            log_path=launch.log_path,
            folder=Path(launch.working_dir),
        )
        self._tasks[seat.seat_id] = task
        self._keep(self._watch(task))
        return task

    async def stop(self, handle: TaskHandle, grace_s: float) -> TaskExit:
        """SIGTERM to the task, SIGKILL after `grace_s` seconds; its container is ended when that does not help."""
        task = self._asked_to_end(handle)
        self._hosts.stop(task.seat.seat_id, grace_s)
        try:
            return await asyncio.wait_for(task.wait(), grace_s + _OVERRUN_S)
        except TimeoutError:
            LOG.warning("%s does not end: its container is ended", task.seat.seat_id)
            return await self._end_container(task)

    async def kill(self, handle: TaskHandle) -> TaskExit:
        """End the task's container."""
        return await self._end_container(self._asked_to_end(handle))

    async def close(self) -> None:
        """End every container."""
        await self._source.close()
        await asyncio.gather(*self._watchers)
        await self._hosts.close()

    def _wish(self, request: SeatRequest, steps: Steps) -> ContainerWish:
        seat_id = f"{self._prefix}-{next(self._numbers)}"
        environment = {
            **self._environment,
            frames.ADDRESS_VARIABLE: self._address,
            frames.SEAT_VARIABLE: seat_id,
            frames.TOKEN_VARIABLE: self._hosts.expect(seat_id),
        }
        return ContainerWish(seat_id=seat_id, request=request, environment=environment, on_step=steps.over)

    async def _connected(self, seat_id: str) -> Seat:
        """The seat once its host is there; a container that ends before raises NoRoomError."""
        connected = asyncio.ensure_future(self._hosts.connected(seat_id))
        gone = asyncio.ensure_future(self._source.gone(seat_id))
        try:
            await asyncio.wait({connected, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not connected.done():
                code = (await gone).exit_code
                raise NoRoomError(
                    "a task's container ended before its task began", value=f"{seat_id}: exit code {code}"
                )
            state = connected.result()
            return Seat(seat_id=seat_id, address=state.address, job_dir=state.job_dir)
        finally:
            connected.cancel()
            gone.cancel()

    async def _discard(self, seat_id: str) -> None:
        self._hosts.leave(seat_id)
        await self._source.discard(seat_id)
        self._hosts.forget(seat_id)

    async def _end_container(self, task: RemoteTask) -> TaskExit:
        await self._source.discard(task.seat.seat_id)
        return await task.wait()

    async def _watch(self, task: RemoteTask) -> None:
        seat_id = task.seat.seat_id
        seen = await self._source.gone(seat_id)
        told = self._hosts.exit_code(seat_id)
        reason = task.reason if seen.reason is ExitReason.EXITED else seen.reason
        self._hosts.forget(seat_id)
        del self._tasks[seat_id]
        task.end.set_result(TaskExit(exit_code=seen.exit_code if told is None else told, reason=reason))

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        watcher = asyncio.get_running_loop().create_task(work)
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    def _asked_to_end(self, handle: TaskHandle) -> RemoteTask:
        if not isinstance(handle, RemoteTask):
            raise InvariantError("a task of another runtime", value=handle)
        if (
            handle.ended is None
            and handle.reason is ExitReason.EXITED
            and self._hosts.exit_code(handle.seat.seat_id) is None
        ):
            handle.reason = ExitReason.STOPPED
        return handle


def _where(requests: Sequence[SeatRequest]) -> str:
    return ", ".join(sorted({str(gpu) for request in requests for gpu in request.gpus}))
