"""Request, start and stop containers of YARN, each pinned to the machine of its leases."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import operator
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from am.runtimes.port import ExitReason, NoRoomError, TaskExit
from am.runtimes.remote.source import ContainerWish
from themis.answered_time import AnsweredTime
from themis.errors import ThemisError, UnreachableError
from themis.hadoop.am_client import AmClient
from themis.hadoop.errors import AttemptGoneError, ResourceAskError
from themis.hadoop.nm_client import NmClient
from themis.hadoop.values import (
    AllocateReply,
    AskRefusal,
    Container,
    ContainerAsk,
    ContainerEnd,
    ExitCode,
    NodeReport,
    ProcessLaunch,
    Registration,
)
from themis.threads import Threads
from themis.values import Value

LOG = logging.getLogger("themis.am.yarn")

T = TypeVar("T")
MakeLaunch = Callable[[ContainerWish], ProcessLaunch]

_EAGER_S = 0.2
_EAGER_BEATS = 10
"""After an ask, the next `_EAGER_BEATS` heartbeats follow every `_EAGER_S` seconds while the ask waits, because YARN
delivers grants only with heartbeats. Spark does the same (`spark.yarn.scheduler.initial-allocation.interval`)."""
_CALLS = 8
"""Concurrent calls into Java."""
_SILENCE_S = 2.0
"""Seconds beyond a heartbeat's interval after which YARN counts as unreachable. That time is no waiting time."""
_STOP_AGAIN_S = 5.0
"""Seconds after which an order to stop a container is repeated, because its node may have been unreachable."""
_REASONS = {
    ExitCode.KILLED_EXCEEDED_PMEM: ExitReason.MEMORY,
    ExitCode.KILLED_EXCEEDED_VMEM: ExitReason.MEMORY,
    ExitCode.ABORTED: ExitReason.TAKEN,
    ExitCode.DISKS_FAILED: ExitReason.TAKEN,
    ExitCode.PREEMPTED: ExitReason.TAKEN,
    ExitCode.KILLED_BY_RM: ExitReason.TAKEN,
}
"""Reasons of containers that did not end by themselves."""


@dataclass(slots=True, kw_only=True)
class _Seat:
    """A container that is requested, runs or is gone.

    Attributes:
        up: Completes when its process has started. Holds the error if that fails.
        gone: Its end as YARN reports it.
        asking: The ask to YARN, which a thread sends.
        container: The granted container.
        starting: The order to its node to start it. Set from the grant on.
        released: Whether it was given back to YARN without a process.
    """

    wish: ContainerWish
    request_id: int
    up: asyncio.Future[None]
    gone: asyncio.Future[TaskExit]
    asking: asyncio.Task[None] | None = None
    container: Container | None = None
    starting: asyncio.Task[None] | None = None
    released: bool = False


class YarnLimits(Value, frozen=True, kw_only=True):
    """Settings for requests to YARN.

    Attributes:
        heartbeat_s: Seconds between two heartbeats to YARN.
        pin_timeout_s: Seconds to wait for a pinned ask, without those in which YARN's ResourceManager is unavailable.
            YARN never reports that it cannot grant one.
        memory_mb: Default memory of a task's container.
        vcores: Minimum of virtual cores of a task's container.
    """

    heartbeat_s: float = 1.0
    pin_timeout_s: float = 20.0
    memory_mb: int = 1024
    vcores: int = 1


class YarnSource:
    """A ContainerSource over YARN's clients. Calls into Java run in threads, everything else in one event loop.

    A container's GPUs are free only when YARN reports its end, after its process has ended. So the source stops a
    container and waits for that report. It releases only containers that their node never started (see
    `themis.hadoop.am_client`).

    Args:
        am: The attempt's registered connection.
        nodes: Client that starts and stops processes on nodes.
        launch: Returns the process to start for a wish.
        limits: Settings for requests.
        registration: YARN's answer to the registration. The source ends its containers of earlier attempts first.
        progress: Returns the progress that every heartbeat sends to YARN.
    """

    def __init__(
        self,
        am: AmClient,
        nodes: NmClient,
        launch: MakeLaunch,
        limits: YarnLimits,
        *,
        registration: Registration,
        progress: Callable[[], float],
    ) -> None:
        self._am = am
        self._nodes = nodes
        self._launch = launch
        self._limits = limits
        self._progress = progress
        self._numbers = itertools.count(1)
        self._seats: dict[str, _Seat] = {}
        self._asked: dict[int, _Seat] = {}
        # The size of the largest node at registration, and all granted sizes since: GPUs, memory, cores.
        self._sizes = {(registration.max_gpus, registration.max_memory_mb, registration.max_vcores)}
        self._asked_anew = asyncio.Event()
        self._eager_beats = 0
        self._yarn_time = AnsweredTime(gap_s=limits.heartbeat_s + _SILENCE_S, now_s=asyncio.get_running_loop().time())
        # Heartbeats and calls have their own threads: a node that does not answer may block the threads of the calls,
        # and an unreachable HDFS the default threads of the process.
        self._heart = Threads("heartbeat", 1)
        self._calls = Threads("yarn", _CALLS)
        self._by_container: dict[str, _Seat] = {}
        self._old = {container.container_id: container for container in registration.previous}
        self._old_gone = asyncio.Event()
        self._work: set[asyncio.Task[Any]] = set()
        self.headroom_gpus: int | None = None
        """GPUs that YARN's newest reply allows the app in addition. None before the first."""
        self.gone_for_good = asyncio.Event()
        self._resting = asyncio.Event()
        self._beating = asyncio.get_running_loop().create_task(self._beat())
        if not self._old:
            self._old_gone.set()
        for container in self._old.values():
            self._spawn(self._stop_old(container))

    async def alone(self) -> None:
        """Wait until no container of earlier attempts runs. Until then the app cannot give their GPUs back."""
        await self._old_gone.wait()

    # ---- the port ----

    async def acquire(self, wish: ContainerWish) -> None:
        """Request the container, and start it as soon as it is granted.

        Raises:
            NoRoomError: The machine is lost, does not answer or refuses the container, or YARN has not granted it
                within `pin_timeout_s`.
            ResourceAskError: The container is larger than any node.
        """
        await self._old_gone.wait()
        seat = self._add(wish)
        seat.asking = self._spawn(self._ask(seat))
        await asyncio.shield(seat.asking)
        self._asked_anew.set()
        await self._up_in_time(seat)
        if seat.container is None:
            remedy = (
                "does another program use its GPUs or memory, is the queue at its limit, or the machine unreachable?"
            )
            waited = f"YARN granted no container within {self._limits.pin_timeout_s:g} s"
            raise NoRoomError(
                waited,
                value=wish.machine_id,
                remedy=remedy,
                gpus=wish.request.gpus,
                headroom_gpus=self.headroom_gpus,
            )
        await asyncio.shield(seat.up)

    async def gone(self, seat_id: str) -> TaskExit:
        """Wait for the end of the container, and return it as YARN reports it."""
        return await asyncio.shield(self._seats[seat_id].gone)

    async def discard(self, seat_id: str) -> None:
        """Withdraw the ask, or stop the container and wait until YARN reports its end."""
        seat = self._seats.get(seat_id)
        if seat is None or seat.gone.done():
            return
        if seat.container is None:
            if seat.asking is not None:
                # Withdrawn before it was sent, the ask would stay with YARN.
                await asyncio.wait([seat.asking])
            await self._calls.run(self._am.withdraw, seat.request_id)
        # The grant may have arrived while the ask was withdrawn, so check again.
        if seat.container is None:
            self._end(seat, TaskExit(exit_code=ExitCode.ABORTED))
        else:
            self._spawn(self._stop(seat, seat.container))
        await asyncio.shield(seat.gone)

    async def rest(self) -> None:
        """Stop the heartbeats, and wait for the last one. YARN must get none after the app's end."""
        self._resting.set()
        self._asked_anew.set()  # This also ends the pause before the next heartbeat.
        await asyncio.gather(self._beating, return_exceptions=True)

    async def close(self) -> None:
        """End every container, then the heartbeats."""
        if not self.gone_for_good.is_set() and not self._resting.is_set():
            await asyncio.gather(*(self.discard(seat_id) for seat_id in list(self._seats)))
        await self.rest()
        for seat in self._seats.values():
            self._end(seat, TaskExit(exit_code=ExitCode.ABORTED))
        await asyncio.gather(*self._work, return_exceptions=True)
        self._heart.close()
        self._calls.close()

    # ---- asking and starting ----

    def _add(self, wish: ContainerWish) -> _Seat:
        loop = asyncio.get_running_loop()
        seat = _Seat(wish=wish, request_id=next(self._numbers), up=loop.create_future(), gone=loop.create_future())
        self._seats[wish.seat_id] = self._asked[seat.request_id] = seat
        return seat

    async def _ask(self, seat: _Seat) -> None:
        gpus, memory_mb, vcores = self._size(seat)
        ask = ContainerAsk(
            allocation_request_id=seat.request_id,
            host=seat.wish.machine_id,
            gpus=gpus,
            memory_mb=memory_mb,
            vcores=vcores,
        )
        await self._calls.run(self._am.ask, ask)
        seat.wish.on_step("ask")

    async def _up_in_time(self, seat: _Seat) -> None:
        """Wait until the process has started, at most `pin_timeout_s` seconds in which YARN answers.

        Raises the error of its start.
        """
        loop = asyncio.get_running_loop()
        begun_s = self._yarn_time.at(loop.time())
        left_s = self._limits.pin_timeout_s
        while left_s > 0.0:
            # While YARN is unavailable, the remaining time stays the same.
            if (await asyncio.wait([seat.up], timeout=max(left_s, 0.1)))[0]:
                seat.up.result()
                return
            left_s = self._limits.pin_timeout_s - (self._yarn_time.at(loop.time()) - begun_s)

    async def _start(self, seat: _Seat, container: Container) -> None:
        try:
            await self._calls.run(self._nodes.start, container, self._launch(seat.wish))
        except UnreachableError as error:
            # Its process may run or not. YARN reports the container's end in both cases.
            LOG.warning("%s: %s", container.container_id, error)
            self._fail(seat, _no_room("a machine does not answer", seat, str(error)))
        except ThemisError as error:
            LOG.warning("%s: %s", container.container_id, error)
            self._fail(seat, _no_room("a machine refuses a container", seat, str(error)))
            await self._release(seat, container)
        except Exception as error:
            # A defect in this program. Pass it to the caller that waits for the start.
            self._fail(seat, error)
        if not seat.up.done():
            seat.up.set_result(None)

    async def _release(self, seat: _Seat, container: Container) -> None:
        """Give back a container that its node refused to start. Otherwise YARN holds its GPUs for 10 minutes."""
        try:
            # If the reply to a first try was lost, the refusal answers the second try, and the container runs.
            seat.released = not await self._calls.run(self._nodes.has, container)
        except ThemisError as error:
            LOG.warning("%s: its node does not report whether it runs: %s", container.container_id, error)
        if seat.released:
            await self._calls.run(self._am.release, container)
            self._asked_anew.set()

    async def _stop(self, seat: _Seat, container: Container) -> None:
        if seat.starting is not None:
            await asyncio.wait((seat.starting, seat.gone), return_when=asyncio.FIRST_COMPLETED)
        while not seat.gone.done() and not seat.released:
            await self._stop_once(container)
            await asyncio.wait((seat.gone,), timeout=_STOP_AGAIN_S)

    async def _stop_old(self, container: Container) -> None:
        while container.container_id in self._old and not self._resting.is_set():
            await self._stop_once(container)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_AGAIN_S):
                    await self._resting.wait()

    async def _stop_once(self, container: Container) -> None:
        try:
            await self._calls.run(self._nodes.stop, container)
        except ThemisError as error:
            # Its node is unreachable, or does not know the container. YARN will report the end.
            LOG.warning("%s cannot be stopped: %s", container.container_id, error)

    # ---- heartbeats ----

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._resting.is_set():
            begun_s = loop.time()
            try:
                reply = await self._heart.run(self._am.allocate, self._progress())
                self._yarn_time.answered(loop.time())
                self._take(reply)
            except AttemptGoneError as error:
                LOG.error("%s", error)
                self.gone_for_good.set()
                return
            except ThemisError as error:
                LOG.warning("%s", error)
            except Exception:
                # Survive a defect in handling one answer: without heartbeats YARN would give the whole app up.
                LOG.exception("a heartbeat failed")
            await self._rest(begun_s)

    async def _rest(self, begun_s: float) -> None:
        """Wait for the next heartbeat: it is due at once after a new ask, and soon while an ask waits."""
        pause_s = self._limits.heartbeat_s
        if self._asked and self._eager_beats > 0:
            pause_s = min(pause_s, _EAGER_S)
            self._eager_beats -= 1
        left_s = begun_s + pause_s - asyncio.get_running_loop().time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left_s)):
                await self._asked_anew.wait()
            self._asked_anew.clear()
            self._eager_beats = _EAGER_BEATS

    def _take(self, reply: AllocateReply) -> None:
        self.headroom_gpus = reply.headroom_gpus
        for container in reply.granted:
            self._granted(container)
        for container in reply.recovered:
            if container.container_id not in self._by_container:
                self._old[container.container_id] = container
                self._old_gone.clear()
                self._spawn(self._stop_old(container))
        for end in reply.ended:
            self._ended(end)
        for refusal in reply.refused:
            self._refused(refusal)
        for node in reply.lost_nodes:
            self._lost(node)

    def _granted(self, container: Container) -> None:
        seat = self._asked.pop(container.allocation_request_id, None)
        if seat is None or seat.gone.done():
            self._spawn(self._calls.run(self._am.release, container))
            return
        self._by_container[container.container_id] = seat
        self._sizes.add(self._size(seat))
        seat.wish.on_step("grant")
        seat.container = container
        seat.starting = self._spawn(self._start(seat, container))

    def _ended(self, end: ContainerEnd) -> None:
        if self._old.pop(end.container_id, None) is not None:
            if not self._old:
                self._old_gone.set()
            return
        seat = self._by_container.pop(end.container_id, None)
        if seat is not None:
            if end.exit_code:
                LOG.info("%s ended with %d: %s", end.container_id, end.exit_code, end.diagnostics.strip()[:500])
            remedy = end.diagnostics.strip()[:500]
            error = _no_room("a container ended before its start", seat, remedy)
            self._fail(seat, error)
            reason = _REASONS.get(end.exit_code, ExitReason.EXITED)
            self._end(seat, TaskExit(exit_code=end.exit_code, reason=reason))

    def _refused(self, refusal: AskRefusal) -> None:
        seat = self._asked.pop(refusal.allocation_request_id, None)
        if seat is not None:
            # The ask is larger than any present node, so other GPUs would not help. But such nodes may only be
            # unreachable, as all nodes are after a restart of YARN's ResourceManager.
            known = any(all(map(operator.le, self._size(seat), size)) for size in self._sizes)
            what, where = "YARN refuses a container", seat.wish.machine_id
            too_large = ResourceAskError(what, value=where, remedy=refusal.reason)
            self._fail(seat, _no_room(what, seat, refusal.reason) if known else too_large)

    def _size(self, seat: _Seat) -> tuple[int, int, int]:
        """Return the requested size: GPUs, memory, cores."""
        request = seat.wish.request
        memory_mb = request.memory_mb or self._limits.memory_mb
        # YARN knows no device for a CPU node: the container takes its cores.
        gpus = 0 if request.node_cores else len(request.gpus)
        return gpus, memory_mb, max(request.vcores, request.node_cores, self._limits.vcores)

    def _lost(self, node: NodeReport) -> None:
        """Fail the asks for a lost node, because YARN does not report them as failed."""
        for seat in self._asked.values():
            if seat.wish.machine_id == node.host:
                remedy = f"YARN reports {node.state.value}: {node.health or node.node_id}"
                self._fail(seat, _no_room("a machine is lost", seat, remedy))

    def _fail(self, seat: _Seat, error: Exception) -> None:
        if not seat.up.done():
            seat.up.set_exception(error)
            # Read the exception, because asyncio warns about exceptions that no caller reads.
            seat.up.exception()

    def _end(self, seat: _Seat, exit_: TaskExit) -> None:
        self._asked.pop(seat.request_id, None)
        if not seat.gone.done():
            seat.gone.set_result(exit_)
        if not seat.up.done():
            seat.up.cancel()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task


def _no_room(what: str, seat: _Seat, reason: str) -> NoRoomError:
    """Return the error of one seat."""
    return NoRoomError(what, value=seat.wish.machine_id, remedy=reason, gpus=seat.wish.request.gpus)
