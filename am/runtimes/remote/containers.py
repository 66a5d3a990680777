"""The containers of an app: asked for, taken for a task, kept idle for the next one, ended."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from am.runtimes.port import NoRoomError, Seat, SeatRequest, TaskExit
from am.runtimes.remote import frames
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.source import ContainerSource, ContainerWish
from am.runtimes.remote.steps import Steps
from themis.cluster import GpuId

LOG = logging.getLogger("themis.am.containers")

T = TypeVar("T")

CONNECT_S = 300.0
"""How long a task host may take from the start of its container until it is heard of. A node may have gigabytes to
fetch and unpack first; a program that fails, or does not reach its app master, ends its container long before."""
TAKE_OVER_S = 5.0
"""How long an idle task host may take to make ready for another task. One that is dead unnoticed never answers."""


class Use(Enum):
    """What a container is there for."""

    IDLE = "idle"
    TAKEN = "taken"
    ENDING = "ending"


@dataclass(slots=True, kw_only=True, eq=False)
class Container:
    """A container from the moment that it is wished for until it is gone.

    Attributes:
        steps: When it was asked for, granted, started, connected.
        coming: Done when its task host is there; holds what stood in the way.
        gone: Its end as the engine tells; there once it was started.
        left: Nothing of it is there any more.
        kept: It stays when its task ends in good order.
        used: A task was started in it.
    """

    seat_id: str
    request: SeatRequest
    steps: Steps
    use: Use
    coming: asyncio.Task[None] = field(init=False)
    gone: asyncio.Task[TaskExit] | None = None
    ending: asyncio.Task[None] | None = None
    left: asyncio.Event = field(default_factory=asyncio.Event)
    kept: bool = True
    used: bool = False

    @property
    def failed(self) -> bool:
        """It did not come."""
        return self.coming.done() and (self.coming.cancelled() or self.coming.exception() is not None)


class Containers:
    """Containers with task hosts in them; the runtime's `kept` seats.

    A container serves one task after the other, each on exactly the same GPUs, with the same memory and cores. One
    whose GPUs another task wants otherwise is ended before anything is asked for there.

    Args:
        source: Gives the containers.
        hosts: Where task hosts connect; it listens already.
        address: `host:port` of `hosts`, as containers reach it.
        prefix: Of seat ids.
        environment: What every container's environment holds beside its seat's.
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
        self._numbers = itertools.count(1)
        self._containers: dict[str, Container] = {}
        self._work: set[asyncio.Task[Any]] = set()

    # ---- for the app master ----

    def prepare(self, requests: Sequence[SeatRequest]) -> None:
        """Ask for containers for these tasks; what does not come is tried again when a task wants it."""
        for request in requests:
            if not self._on(request.gpus):
                self._bring([request], Use.IDLE)

    def occupied(self) -> frozenset[GpuId]:
        """GPUs of containers that are there, or asked for."""
        return frozenset(gpu for container in self._containers.values() for gpu in container.request.gpus)

    async def clear(self, gpus: Collection[GpuId]) -> None:
        """End what idles on these GPUs, keep nothing there; returns when all are gone, as the engine says."""
        there = self._on(gpus)
        for container in there:
            container.kept = False
        await self._end_all(self._not_taken(gpus))
        for container in there:
            await container.left.wait()

    # ---- for the runtime ----

    async def reserve(self, requests: Sequence[SeatRequest]) -> tuple[Seat, ...]:
        """A container with a task host for every task, idle ones where they fit; or for none. Raises NoRoomError."""
        steps = Steps(asyncio.get_running_loop().time)
        gang = [self._idle(request) for request in requests]
        try:
            for place, fits in enumerate(await asyncio.gather(*map(self._takes_over, gang))):
                gang[place] = gang[place] if fits else None
            missing = [request for request, container in zip(requests, gang, strict=True) if container is None]
            await self._make_way(missing)
            fresh = iter(self._bring(missing, Use.TAKEN, steps))
            gang = [container or next(fresh) for container in gang]
            return await self._seats([container for container in gang if container is not None], steps)
        except BaseException as error:
            await self._end_all(container for container in gang if container is not None)
            if not isinstance(error, asyncio.CancelledError):
                # Whoever finds no room gives these GPUs back at once.
                await self._make_way(requests)
            raise

    def of(self, seat: Seat) -> Container:
        """The container of a reserved seat; NoRoomError when it is gone already."""
        container = self._containers.get(seat.seat_id)
        if container is None:
            raise NoRoomError("a task's container ended before its task began", value=seat.seat_id)
        return container

    def free(self, container: Container) -> None:
        """Its task has ended in good order: it idles, or ends where nothing is to be kept."""
        container.use, container.used = Use.IDLE, True
        if container.left.is_set():
            self._hosts.forget(container.seat_id)
        elif not container.kept:
            self._end(container)

    async def end(self, seat_ids: Iterable[str]) -> None:
        """End these containers, whatever they do; returns when they are gone."""
        ids = tuple(seat_ids)
        await self._end_all(self._containers[seat_id] for seat_id in ids if seat_id in self._containers)
        for seat_id in ids:
            self._hosts.forget(seat_id)

    async def close(self) -> None:
        """End all."""
        coming = [container.coming for container in self._containers.values() if not container.coming.done()]
        for each in coming:
            each.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        await self._source.close()
        await asyncio.gather(*self._work, return_exceptions=True)

    # ---- taking over ----

    def _idle(self, request: SeatRequest) -> Container | None:
        """An idle container for this task, now taken; None when there is none that fits."""
        for container in self._on(request.gpus):
            if container.use is Use.IDLE and not container.failed and _alike(container.request, request):
                container.use = Use.TAKEN
                return container
        return None

    async def _takes_over(self, container: Container | None) -> bool:
        """Whether the container's host is ready for another task, or on its way; one that is not is ended."""
        if container is None or not container.coming.done():
            return container is not None
        try:
            if not container.left.is_set():
                self._hosts.renew(container.seat_id)
                async with asyncio.timeout(TAKE_OVER_S):
                    await self._there(container)
                return True
        except (NoRoomError, TimeoutError) as error:
            LOG.warning("%s is not taken over: %s", container.seat_id, error or "its host does not answer")
        await self._end_all([container])
        return False

    async def _seats(self, gang: Sequence[Container], steps: Steps) -> tuple[Seat, ...]:
        """The seats of containers once all of them are there."""
        # Waiting does not cancel what is waited for: each is ended by itself, and leaves nothing.
        done, _ = await asyncio.wait({container.coming for container in gang}, return_when=asyncio.FIRST_EXCEPTION)
        for coming in done:
            coming.result()
        for container in gang:
            if not container.used:
                steps.join(container.steps)
        steps.over("connect")
        seconds = steps.seconds()
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

    def _bring(self, requests: Sequence[SeatRequest], use: Use, steps: Steps | None = None) -> list[Container]:
        """Ask for containers, which come together or not at all."""
        if not requests:
            return []
        steps = steps or Steps(asyncio.get_running_loop().time)
        containers = [
            Container(seat_id=f"{self._prefix}-{next(self._numbers)}", request=request, steps=steps, use=use)
            for request in requests
        ]
        coming = self._spawn(self._come(containers))
        for container in containers:
            container.coming = coming
            self._containers[container.seat_id] = container
        coming.add_done_callback(lambda _: self._came(containers))
        return containers

    async def _come(self, containers: Sequence[Container]) -> None:
        await self._source.acquire([self._wish(container) for container in containers])
        for container in containers:
            container.gone = self._spawn(self._gone(container))
            container.steps.over("start")
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.gather(*map(self._there, containers))
        except TimeoutError:
            remedy = "does its node still fetch what it starts from? Else its container's log says why"
            raise NoRoomError(f"no task host within {CONNECT_S:g} s", value=_where(containers), remedy=remedy) from None
        for container in containers:
            container.steps.over("connect")

    def _came(self, containers: Sequence[Container]) -> None:
        """What nobody waits for ends when it does not come; whoever has taken it hears of it, and ends it himself."""
        for container in containers:
            if container.failed and container.use is Use.IDLE:
                LOG.info("%s does not come: %s", container.seat_id, container.coming)
                self._end(container)

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
            on_step=container.steps.over,
        )

    async def _there(self, container: Container) -> None:
        """Return when its task host is ready for a task; a container that ends before raises NoRoomError."""
        assert container.gone is not None
        ready = asyncio.ensure_future(self._hosts.ready(container.seat_id))
        try:
            await asyncio.wait({ready, container.gone}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                told = f"{container.seat_id}: exit code {container.gone.result().exit_code}"
                raise NoRoomError("a task's container ended before its task began", value=told)
        finally:
            ready.cancel()

    # ---- ending ----

    async def _make_way(self, requests: Sequence[SeatRequest]) -> None:
        """Return when nothing idles any more on the GPUs of these requests."""
        await self._end_all(self._not_taken(gpu for request in requests for gpu in request.gpus))

    def _end(self, container: Container) -> asyncio.Task[None]:
        container.use = Use.ENDING
        if container.ending is None or container.ending.done():
            container.ending = self._spawn(self._ended(container))
        return container.ending

    async def _end_all(self, containers: Iterable[Container]) -> None:
        endings = {self._end(container) for container in containers}
        if endings:
            # An end that has begun goes on, also when nobody waits for it any more.
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
        container.left.set()

    # ---- inside ----

    def _on(self, gpus: Iterable[GpuId]) -> list[Container]:
        """Containers that have one of these GPUs."""
        wanted = frozenset(gpus)
        return [container for container in self._containers.values() if not wanted.isdisjoint(container.request.gpus)]

    def _not_taken(self, gpus: Iterable[GpuId]) -> list[Container]:
        return [container for container in self._on(gpus) if container.use is not Use.TAKEN]

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task


def _alike(one: SeatRequest, other: SeatRequest) -> bool:
    """Whether a container for the one serves the other."""
    return (sorted(one.gpus), one.memory_mb, one.vcores) == (sorted(other.gpus), other.memory_mb, other.vcores)


def _where(containers: Sequence[Container]) -> str:
    return ", ".join(sorted({str(gpu) for container in containers for gpu in container.request.gpus}))
