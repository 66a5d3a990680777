"""Start, kill and remove the containers of tasks on a Docker engine."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from am.runtimes.port import ExitReason, NoRoomError, TaskExit
from am.runtimes.remote.source import ContainerWish
from themis.docker_host import (
    APP_LABEL,
    ATTEMPT_LABEL,
    ROLE_LABEL,
    RUN_LABEL,
    TASK,
    Bind,
    ContainerEnd,
    ContainerSpec,
    DockerError,
    DockerHost,
)
from themis.docker_watch import ContainerWatch
from themis.python_programs import module_command
from themis.values import Value, repr_without

LOG = logging.getLogger("themis.am.docker")

HOME = "/tmp"
"""Working folder of a task's container. It belongs to the container, and every user may write to it."""
_KILL_AGAIN_S = 5.0
_NEVER_STARTED = -signal.SIGKILL


class TaskContainers(Value, frozen=True, kw_only=True):
    """The common settings of all task containers of an attempt.

    Attributes:
        name_suffix: Suffix of containers' names. Two ResourceManagers on one engine may use the same app ids.
        memory_mb: Default memory of a task's container.
        machines_with_cards: Ids of the machines whose GPUs are cards of the engine's machine.
        checkpoints: Folder of the tasks' persistent files. It has the same path inside and outside of containers.
    """

    image: str
    python: str
    network: str
    user: str
    volumes: Sequence[str]
    environment: Mapping[str, str]
    memory_mb: int
    shm_mb: int
    runtime: str
    machines_with_cards: Sequence[str]
    name_suffix: str
    run_id: str
    app_id: str
    attempt: int
    checkpoints: str

    __repr__ = repr_without("environment")

    def spec(self, wish: ContainerWish) -> ContainerSpec:
        """Return the container for this wish."""
        request = wish.request
        has_cards = wish.machine_id in self.machines_with_cards
        cards = tuple(str(gpu.index) for gpu in sorted(request.gpus)) if has_cards else ()
        return ContainerSpec(
            name=f"themis-{wish.seat_id}-{self.name_suffix}",
            image=self.image,
            command=module_command("am.runtimes.remote.task_host", python=self.python),
            environment={
                "HOME": HOME,
                **self.environment,
                # Images that are made for GPUs ask for all cards.
                "NVIDIA_VISIBLE_DEVICES": ",".join(cards) or "void",
                **wish.environment,
            },
            labels={
                RUN_LABEL: self.run_id,
                APP_LABEL: self.app_id,
                ATTEMPT_LABEL: str(self.attempt),
                ROLE_LABEL: TASK,
                "themis.gpus": ",".join(str(gpu) for gpu in sorted(request.gpus)),
                "themis.emulated": "false" if cards else "true",
            },
            network=self.network,
            working_dir=HOME,
            user=self.user,
            binds=(Bind(source=self.checkpoints, target=self.checkpoints),),
            volumes=tuple(self.volumes),
            memory_mb=request.memory_mb or self.memory_mb,
            cpus=float(len(request.cores) or request.vcores),
            cpuset=",".join(map(str, request.cores)),
            shm_mb=self.shm_mb,
            device_ids=cards,
            runtime=self.runtime,
        )


@dataclass(slots=True, kw_only=True)
class _Seat:
    """A container that is starting, running or gone, or that could not start (`failure`)."""

    wish: ContainerWish
    gone: asyncio.Future[TaskExit]
    started: asyncio.Event = field(default_factory=asyncio.Event)
    container_id: str = ""
    failure: NoRoomError | None = None


class DockerSource:
    """A ContainerSource over one Docker engine. Calls to the engine run in threads, everything else in one event loop.

    Args:
        docker: The engine.
        watch: Reports how the app's containers end.
        containers: Their common settings.
    """

    def __init__(self, docker: DockerHost, watch: ContainerWatch, containers: TaskContainers) -> None:
        self._docker = docker
        self._watch = watch
        self._containers = containers
        self._seats: dict[str, _Seat] = {}
        self._work: set[asyncio.Task[Any]] = set()

    async def acquire(self, wish: ContainerWish) -> None:
        """Start the container. Raises NoRoomError if it cannot be started."""
        seat = self._seats[wish.seat_id] = _Seat(wish=wish, gone=asyncio.get_running_loop().create_future())
        self._spawn(self._start(seat))
        await seat.started.wait()
        if seat.failure is not None:
            raise seat.failure

    async def gone(self, seat_id: str) -> TaskExit:
        """Wait for the end of the container, and return it."""
        return await asyncio.shield(self._seats[seat_id].gone)

    async def discard(self, seat_id: str) -> None:
        """Kill the container. If it is still starting, kill it afterwards."""
        seat = self._seats.get(seat_id)
        if seat is None:
            return
        await seat.started.wait()
        while not seat.gone.done():
            try:
                await self._docker.threads.run(self._docker.kill, seat.container_id)
            except DockerError as error:
                LOG.warning("%s", error)
            await asyncio.wait([seat.gone], timeout=_KILL_AGAIN_S)

    async def close(self) -> None:
        """Kill all containers, and wait until they are removed."""
        await asyncio.gather(*(self.discard(seat_id) for seat_id in self._seats))
        await asyncio.gather(*self._work, return_exceptions=True)

    # ---- one container ----

    async def _start(self, seat: _Seat) -> None:
        try:
            container = await self._docker.threads.run(self._docker.start, self._containers.spec(seat.wish))
        except DockerError as error:
            seat.failure = NoRoomError("Docker cannot start a container", value=seat.wish.seat_id, remedy=error.remedy)
            seat.gone.set_result(TaskExit(exit_code=_NEVER_STARTED))
        else:
            seat.container_id = container.container_id
            self._spawn(self._until_gone(seat))
        finally:
            seat.started.set()

    async def _until_gone(self, seat: _Seat) -> None:
        end = await self._watch.follow(seat.container_id)
        if end.exit_code:
            words = await self._docker.threads.run(self._docker.last_words, seat.container_id)
            LOG.info("%s ended with %d %s", seat.wish.seat_id, end.exit_code, words)
        seat.gone.set_result(exit_of(end))
        try:
            await self._docker.threads.run(self._docker.remove, seat.container_id)
        except DockerError as error:
            # The launcher removes it when the app master ends.
            LOG.warning("%s", error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


def exit_of(end: ContainerEnd) -> TaskExit:
    """Return the end of a container's task. Docker reports signal n as exit code 128 + n, as a shell does."""
    reason = ExitReason.MEMORY if end.out_of_memory else ExitReason.EXITED
    if end.exit_code is None:
        return TaskExit(exit_code=-signal.SIGKILL, reason=reason)
    number = end.exit_code - 128
    return TaskExit(exit_code=-number if number in signal.valid_signals() else end.exit_code, reason=reason)
