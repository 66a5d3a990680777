"""The containers of an app: request them, use them for tasks, keep them idle for the next task, end them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from am.runtimes.port import NoRoomError, OnNoRoom, Seat, SeatRequest, TaskExit
from am.runtimes.remote import frames
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.source import ContainerSource, ContainerWish
from am.runtimes.remote.startup_timing import StartupTiming
from themis.cluster import GpuId

LOG = logging.getLogger("themis.am.containers")

T = TypeVar("T")

CONNECT_S = 300.0
"""Seconds from the start of a container until its task host must have connected. A node may first fetch and unpack
gigabytes. A task host that fails, or does not reach its app master, ends its container much earlier."""
TAKE_OVER_S = 5.0
"""Seconds within which an idle task host must be ready for another task. A host that has died never answers."""


class Use(Enum):
    """The use of a container."""

    IDLE = "idle"
    TAKEN = "taken"
    ENDING = "ending"


@dataclass(slots=True, kw_only=True, eq=False)
class Container:
    """A container, from its request until it is gone.

    Attributes:
        timing: When it was requested, granted and started, and when its host connected.
        coming: Completes when its task host is connected. Holds the error if it failed.
        gone: Its end as the engine reports it. Set once the container has started.
        left: Set once the container is gone.
        kept: Whether it stays when its task ends cleanly.
        used: Whether a task has run in it.
    """

    seat_id: str
    request: SeatRequest
    timing: StartupTiming
    use: Use
    coming: asyncio.Task[None] = field(init=False)
    gone: asyncio.Task[TaskExit] | None = None
    ending: asyncio.Task[None] | None = None
    left: asyncio.Event = field(default_factory=asyncio.Event)
    kept: bool = True
    used: bool = False

    @property
    def failed(self) -> bool:
        """Whether it failed to start."""
        return self.coming.done() and (self.coming.cancelled() or self.coming.exception() is not None)


class Containers:
    """Containers with task hosts. Implements the runtime's `KeptSeats`.

    A container runs one task after the other, with exactly the same GPUs, memory and cores. If a task needs its GPUs in
    another combination, the container ends before a new one is requested.

    Example: a job runs on m0:0 and m0:1 in container c1. It is stopped, and c1 idles. If the job, or another of the
    app, restarts on both GPUs, it runs in c1. If a job needs only m0:0, c1 ends, and a new container starts.

    Args:
        source: Starts the containers.
        hosts: The server for task hosts. It must already listen.
        address: `host:port` of `hosts`, as containers reach it.
        prefix: Prefix of seat ids.
        environment: Variables of every container, in addition to its seat's.
    """

    def __init__(
        self,
        source: ContainerSource,
        hosts: TaskHosts,
        *,
        address: str,
        prefix: str,
        environment: Mapping[str, str],
    ) -> None:
        self._source = source
        self._hosts = hosts
        self._address = address
        self._prefix = prefix
        self._environment = dict(environment)
        self._on_change: Callable[[], None] = _ignore
        self._on_no_room: OnNoRoom = _ignore
        self._numbers = itertools.count(1)
        self._containers: dict[str, Container] = {}
        self._work: set[asyncio.Task[Any]] = set()

    # ---- for the app master ----

    def watch(self, on_change: Callable[[], None], on_no_room: OnNoRoom) -> None:
        """Call `on_change` when an idle container is ready, and `on_no_room` when one has failed and is gone."""
        self._on_change, self._on_no_room = on_change, on_no_room

    def prepare(self, requests: Sequence[SeatRequest], granted: Collection[GpuId]) -> bool:
        """Request containers for tasks on granted GPUs. Idle ones on parts of these GPUs end before.

        Returns whether each task has a ready container, or waits for a task that still runs.
        """
        fitting = {container.seat_id for request in requests for container in self._fitting(request)}
        possible = [request for request in requests if all(gpu in granted for gpu in request.gpus)]
        for request in possible:
            if not (there := self._on(request.gpus)):
                self._bring(request, Use.IDLE)
            for container in there:
                if container.use is Use.IDLE and container.seat_id not in fitting:
                    self._end(container)
        return len(possible) == len(requests) and all(map(self._is_prepared, requests))

    def occupied(self) -> frozenset[GpuId]:
        """Return the GPUs of all containers, including requested ones."""
        return frozenset(gpu for container in self._containers.values() for gpu in container.request.gpus)

    async def clear(self, gpus: Collection[GpuId]) -> None:
        """End idle containers on these GPUs now, the others with their tasks. Returns when all are gone."""
        there = self._on(gpus)
        for container in there:
            container.kept = False
        await self._end_all(self._not_taken(gpus))
        for container in there:
            await container.left.wait()

    # ---- for the runtime ----

    async def reserve(self, requests: Sequence[SeatRequest]) -> tuple[Seat, ...]:
        """Reserve a container with a task host for every task, or for none. Prefers idle ones.

        If some tasks find no room, the containers of the others stay, idle. Otherwise another tenant would take their
        GPUs, and a smaller gang would find no room either.

        Raises:
            NoRoomError: Names the GPUs of all tasks without room. No container is left there.
        """
        timing = StartupTiming(asyncio.get_running_loop().time)
        gang = [self._idle(request) for request in requests]
        try:
            for place, fits in enumerate(await asyncio.gather(*map(self._is_reusable, gang))):
                gang[place] = gang[place] if fits else None
            missing = [request for request, container in zip(requests, gang, strict=True) if container is None]
            await self._make_way(missing)
            fresh = iter([self._bring(request, Use.TAKEN, timing) for request in missing])
            gang = [container or next(fresh) for container in gang]
            return await self._seats([container for container in gang if container is not None], timing)
        except (NoRoomError, asyncio.CancelledError):
            await self._leave_idle([container for container in gang if container is not None])
            raise
        except BaseException:
            await self._end_all(container for container in gang if container is not None)
            raise

    def of(self, seat: Seat) -> Container:
        """Return the container of a reserved seat. Raises NoRoomError if it is gone."""
        container = self._containers.get(seat.seat_id)
        if container is None:
            raise NoRoomError("a task's container ended before its task began", value=seat.seat_id)
        return container

    def free(self, container: Container) -> None:
        """Keep the container, whose task has ended cleanly, idle. If it is not to be kept, end it."""
        container.use, container.used = Use.IDLE, True
        if container.left.is_set():
            self._hosts.forget(container.seat_id)
        elif not container.kept:
            self._end(container)

    async def end(self, seat_ids: Iterable[str]) -> None:
        """End these containers in any state. Returns when they are gone."""
        ids = tuple(seat_ids)
        await self._end_all(self._containers[seat_id] for seat_id in ids if seat_id in self._containers)
        for seat_id in ids:
            self._hosts.forget(seat_id)

    async def close(self) -> None:
        """End all containers."""
        coming = [container.coming for container in self._containers.values() if not container.coming.done()]
        for each in coming:
            each.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        await self._source.close()
        await asyncio.gather(*self._work, return_exceptions=True)

    # ---- taking over ----

    def _fitting(self, request: SeatRequest) -> list[Container]:
        """Return the containers of exactly this size and on these GPUs, whatever their use."""
        return [container for container in self._on(request.gpus) if _is_same_size(container.request, request)]

    def _is_prepared(self, request: SeatRequest) -> bool:
        there = self._on(request.gpus)
        if any(container.use is Use.TAKEN for container in there):
            # Its task has to end first, and only then can a container of another size follow.
            return True
        return any(container.use is Use.IDLE and container.coming.done() for container in self._fitting(request))

    def _idle(self, request: SeatRequest) -> Container | None:
        """Take an idle container for this task. Returns None if none fits."""
        for container in self._fitting(request):
            if container.use is Use.IDLE and not container.failed:
                container.use = Use.TAKEN
                return container
        return None

    async def _is_reusable(self, container: Container | None) -> bool:
        """Whether the container's host is ready for another task, or is starting. Otherwise ends the container."""
        if container is None or not container.coming.done():
            return container is not None
        try:
            if not container.left.is_set():
                self._hosts.renew(container.seat_id)
                async with asyncio.timeout(TAKE_OVER_S):
                    await self._there(container)
                return True
        except (NoRoomError, TimeoutError) as error:
            LOG.warning("%s cannot be reused: %s", container.seat_id, error or "its host does not answer")
        await self._end_all([container])
        return False

    async def _seats(self, gang: Sequence[Container], timing: StartupTiming) -> tuple[Seat, ...]:
        """Return the seats of containers once all their hosts are connected."""
        await self._all_there(gang)
        for container in gang:
            if not container.used:
                timing.merge(container.timing)
        timing.step_done("connect")
        seconds = timing.seconds()
        places = [await self._hosts.ready(container.seat_id) for container in gang]
        return tuple(
            Seat(
                seat_id=container.seat_id,
                address=place.address,
                job_dir=place.job_dir,
                reused=container.used,
                seconds=seconds,
            )
            for container, place in zip(gang, places, strict=True)
        )

    # ---- coming ----

    def _bring(self, request: SeatRequest, use: Use, timing: StartupTiming | None = None) -> Container:
        """Request a container."""
        timing = timing or StartupTiming(asyncio.get_running_loop().time)
        container = Container(seat_id=f"{self._prefix}-{next(self._numbers)}", request=request, timing=timing, use=use)
        container.coming = self._spawn(self._come(container))
        self._containers[container.seat_id] = container
        container.coming.add_done_callback(lambda _: self._came(container))
        return container

    async def _come(self, container: Container) -> None:
        await self._source.acquire(self._wish(container))
        container.gone = self._spawn(self._gone(container))
        container.timing.step_done("start")
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._there(container)
        except TimeoutError:
            remedy = "does its node still fetch files? If not, see the container's log"
            gpus = ", ".join(map(str, sorted(container.request.gpus)))
            raise NoRoomError(f"no task host within {CONNECT_S:g} s", value=gpus, remedy=remedy) from None
        container.timing.step_done("connect")

    def _came(self, container: Container) -> None:
        """End an idle container that failed to start. For a taken container, `reserve` gets the error and ends it."""
        if container.use is not Use.IDLE:
            return
        if not container.failed:
            self._on_change()
            return
        LOG.info("%s did not start: %s", container.seat_id, container.coming)
        ending = self._end(container)
        if not container.coming.cancelled():
            error = container.coming.exception()
            no_room = error if isinstance(error, NoRoomError) else NoRoomError(str(error))
            ending.add_done_callback(lambda _: self._on_no_room(container.request.gpus, no_room))

    def _wish(self, container: Container) -> ContainerWish:
        environment = {
            **self._environment,
            frames.ADDRESS_VARIABLE: self._address,
            frames.SEAT_VARIABLE: container.seat_id,
            frames.TOKEN_VARIABLE: self._hosts.expect(container.seat_id),
        }
        return ContainerWish(
            seat_id=container.seat_id,
            request=container.request,
            environment=environment,
            on_step=container.timing.step_done,
        )

    async def _all_there(self, gang: Sequence[Container]) -> None:
        """Wait until each container's host is connected, or has found no room. Raises another error at once."""
        waiting = {container.coming for container in gang}
        while waiting:
            # `wait` does not cancel the futures on an error. `reserve` then handles each container.
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
            for coming in done:
                if not isinstance(coming.exception(), NoRoomError):
                    coming.result()
        failed = [container for container in gang if container.failed]
        if failed:
            error = failed[0].coming.exception()
            assert isinstance(error, NoRoomError)
            gpus = tuple(gpu for container in failed for gpu in container.request.gpus)
            machines = ", ".join(sorted({gpu.machine_id for gpu in gpus}))
            raise NoRoomError(
                error.what, value=machines, remedy=error.remedy, gpus=gpus, headroom_gpus=error.headroom_gpus
            ) from error

    async def _there(self, container: Container) -> None:
        """Wait until the container's host is ready for a task. Raises NoRoomError if the container ends before."""
        assert container.gone is not None
        ready = asyncio.ensure_future(self._hosts.ready(container.seat_id))
        try:
            await asyncio.wait({ready, container.gone}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                end = f"{container.seat_id}: exit code {container.gone.result().exit_code}"
                raise NoRoomError("a task's container ended before its task began", value=end)
        finally:
            ready.cancel()

    # ---- ending ----

    async def _leave_idle(self, gang: Sequence[Container]) -> None:
        """Keep the containers of a gang that does not start, but for those that failed or are gone."""
        for container in gang:
            if container.use is Use.TAKEN:
                container.use = Use.IDLE
        await self._end_all(
            container for container in gang if container.failed or container.left.is_set() or not container.kept
        )

    async def _make_way(self, requests: Sequence[SeatRequest]) -> None:
        """Wait until no idle container is left on the GPUs of these requests."""
        await self._end_all(self._not_taken(gpu for request in requests for gpu in request.gpus))

    def _end(self, container: Container) -> asyncio.Task[None]:
        container.use = Use.ENDING
        if container.ending is None or container.ending.done():
            container.ending = self._spawn(self._ended(container))
        return container.ending

    async def _end_all(self, containers: Iterable[Container]) -> None:
        endings = {self._end(container) for container in containers}
        if endings:
            # `wait` does not cancel the endings if this call is cancelled.
            await asyncio.wait(endings)
            for ending in endings:
                ending.result()

    async def _ended(self, container: Container) -> None:
        if not container.coming.done():
            container.coming.cancel()
            await asyncio.wait({container.coming})
        self._hosts.leave(container.seat_id)
        await self._source.discard(container.seat_id)
        self._hosts.forget(container.seat_id)
        self._has_left(container)

    async def _gone(self, container: Container) -> TaskExit:
        seen = await self._source.gone(container.seat_id)
        self._has_left(container)
        if container.use is not Use.TAKEN:
            LOG.info("%s is gone: exit code %d", container.seat_id, seen.exit_code)
            self._hosts.forget(container.seat_id)
        return seen

    def _has_left(self, container: Container) -> None:
        self._containers.pop(container.seat_id, None)
        if not container.left.is_set():
            container.left.set()
            # A larger container may be waiting for its GPUs.
            self._on_change()

    # ---- inside ----

    def _on(self, gpus: Iterable[GpuId]) -> list[Container]:
        """Return the containers that have any of these GPUs."""
        wanted = frozenset(gpus)
        return [container for container in self._containers.values() if not wanted.isdisjoint(container.request.gpus)]

    def _not_taken(self, gpus: Iterable[GpuId]) -> list[Container]:
        return [container for container in self._on(gpus) if container.use is not Use.TAKEN]

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task


def _ignore(*_: object) -> None:
    """Do nothing: no app master watches."""


def _is_same_size(one: SeatRequest, other: SeatRequest) -> bool:
    """Whether both requests need the same GPUs, memory and cores, so that one container serves both."""
    return (sorted(one.gpus), one.memory_mb, one.vcores) == (sorted(other.gpus), other.memory_mb, other.vcores)
