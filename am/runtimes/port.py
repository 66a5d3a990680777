"""The ContainerRuntime port: it reserves room for tasks, starts and ends them, and reports how they ended.

Example: a job gets two GPUs on m0. `reserve([SeatRequest(job_id="j0", task_index=0, gpus=(m0:0, m0:1))])` returns a
*seat*, that is, a reservation for one task. `start(TaskLaunch(.., seat=seat))` returns a handle. `stop(handle, 10)`
asks the task to save and end, kills it after 10 seconds, and returns its exit. A runtime may keep the seat for the
app's next task on the same GPUs (`KeptSeats`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import field

from themis.cluster import GpuId
from themis.errors import ThemisError
from themis.values import Value, repr_without


class NoRoomError(ThemisError):
    """The engine has no room on leased GPUs, because another program uses them or the machine is gone.

    Args:
        gpus: The GPUs without room. Empty if this is unknown: then no GPU of the gang counts as usable.
        headroom_gpus: GPUs that the engine would grant the app elsewhere, by its own word, if it did not grant these.
            None if it does not say, or if the machine is at fault.
    """

    def __init__(
        self,
        what: str,
        *,
        value: object = None,
        remedy: str = "",
        gpus: tuple[GpuId, ...] = (),
        headroom_gpus: int | None = None,
    ) -> None:
        super().__init__(what, value=value, remedy=remedy)
        self.gpus = gpus
        self.headroom_gpus = headroom_gpus


OnNoRoom = Callable[[tuple[GpuId, ...], NoRoomError], None]
"""Called with leased GPUs on which the engine has no room, and the error that says why."""


class SeatRequest(Value, frozen=True, kw_only=True):
    """A request to reserve room for one task of a gang.

    Attributes:
        gpus: The task's leased GPUs, all on one machine.
        memory_mb: Memory of the task. 0 means the runtime's default.
        vcores: Virtual cores of the task.
        node_cores: Cores of the CPU node that the task has to itself. 0 on GPUs.
        cores: These cores by the system's numbers, if nodes share this machine (`ContainerRuntime.cores`), else empty.
    """

    job_id: str
    task_index: int
    gpus: tuple[GpuId, ...]
    memory_mb: int = 0
    vcores: int = 1
    node_cores: int = 0
    cores: tuple[int, ...] = ()


class Seat(Value, frozen=True, kw_only=True):
    """A reservation for one task.

    Attributes:
        seat_id: The runtime's own id of the seat.
        address: `host:port` at which the task may listen, and its peers reach it.
        job_dir: The job's folder as the task sees it. Empty if it is the same as the app master's.
        reused: Whether a task of the app ran there before.
        seconds: Seconds per step of reserving the gang, in order. Empty if reserving takes no time.
    """

    seat_id: str
    address: str
    job_dir: str = ""
    reused: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)


class TaskLaunch(Value, frozen=True, kw_only=True):
    """One task of one incarnation of a job, ready to start.

    Attributes:
        command: Program and arguments, or text for the shell.
        environment: Variables in addition to those that the runtime gives to every task.
        gpus: The leased GPUs of this task, all on one machine.
        emulated: Whether the GPUs are emulated. Then the task sees no card.
        cores: The cores of this machine on which the task runs, by the system's numbers. Empty for all.
        working_dir: Folder in which the task starts. Created if missing.
        log_path: File to which standard output and standard error are appended. Its folder is created if missing.
        memory_mb: Memory limit in MB, 0 for none. How strictly it is enforced depends on the runtime.
        vcores: Cores that it may use, 0 for all. How strictly this is enforced depends on the runtime.
        seat: The task's reservation. None if the runtime needs none.
        code: An archive, which is unpacked into `code` within the job's folder. The task then starts there.
    """

    app_id: str
    job_id: str
    task_index: int
    incarnation: int
    command: tuple[str, ...] | str
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[GpuId, ...] = ()
    emulated: bool = False
    cores: tuple[int, ...] = ()
    working_dir: Path
    log_path: Path
    memory_mb: int = 0
    vcores: int = 0
    seat: Seat | None = None
    code: Path | None = None

    __repr__ = repr_without("environment")


class ExitReason(StrEnum):
    """Why a task ended."""

    EXITED = "exited"
    STOPPED = "stopped"
    MEMORY = "memory"
    TAKEN = "taken"


class TaskExit(Value, frozen=True, kw_only=True):
    """The end of a task.

    Attributes:
        exit_code: The exit code, or minus the signal's number if a signal ended the task.
        reason: EXITED: by itself, or by a foreign signal. STOPPED: by `stop` or `kill`. MEMORY: it exceeded its limit.
            TAKEN: the engine preempted it, or lost its machine. This is not the task's fault.
    """

    exit_code: int
    reason: ExitReason = ExitReason.EXITED

    @property
    def succeeded(self) -> bool:
        """Whether the program ended by itself with code 0."""
        return self.exit_code == 0 and self.reason is ExitReason.EXITED


class TaskHandle(Protocol):
    """A started task."""

    @property
    def launch(self) -> TaskLaunch:
        """The launch that was started."""
        ...

    @property
    def pid(self) -> int:
        """Its process id, or a number that represents one."""
        ...

    @property
    def ended(self) -> TaskExit | None:
        """How it ended, or None while it runs."""
        ...

    async def wait(self) -> TaskExit:
        """Wait until the task has ended for any reason. Any number of callers may wait."""
        ...


@runtime_checkable
class MeasuredTask(TaskHandle, Protocol):
    """A started task whose runtime measures its memory."""

    @property
    def peak_memory_mb(self) -> float:
        """The most memory that it was seen to use so far, with its children; 0 before the first measurement."""
        ...


class KeptSeats(Protocol):
    """Seats that outlast their tasks, for the app's next task on the same GPUs. Call all methods in one event loop."""

    def watch(self, on_change: Callable[[], None], on_no_room: OnNoRoom) -> None:
        """Call `on_change` when an idle seat has become ready, and `on_no_room` when one has failed."""
        ...

    def prepare(self, requests: Sequence[SeatRequest], granted: Collection[GpuId]) -> bool:
        """Start to create seats for tasks that will start soon, as far as their GPUs are granted and have no task.

        Returns whether there is nothing to wait for: the GPUs of all these tasks are granted, and each task has a ready
        seat, or needs GPUs on which another task still runs.
        """
        ...

    def occupied(self) -> frozenset[GpuId]:
        """Return GPUs with a seat of the app, including starting and ending seats. Other apps cannot use these GPUs."""
        ...

    async def clear(self, gpus: Collection[GpuId]) -> None:
        """Wait until no seat is left on these GPUs. Idle seats end now, other seats with their task."""
        ...


class NothingKept:
    """`KeptSeats` of a runtime whose seats end with their tasks."""

    def watch(self, on_change: Callable[[], None], on_no_room: OnNoRoom) -> None:
        """Do nothing."""

    def prepare(self, requests: Sequence[SeatRequest], granted: Collection[GpuId]) -> bool:
        """Do nothing. Returns whether the GPUs of all tasks are granted: there is nothing else to wait for."""
        return all(gpu in granted for request in requests for gpu in request.gpus)

    def occupied(self) -> frozenset[GpuId]:
        """Return no GPUs."""
        return frozenset()

    async def clear(self, gpus: Collection[GpuId]) -> None:
        """Do nothing."""


class ContainerRuntime(Protocol):
    """Starts and ends tasks. Call all methods in one event loop.

    Attributes:
        kept: The seats that outlast their tasks.
        cores: The cores that CPU nodes of this machine share, by the system's numbers. Empty if tasks run on other
            machines, whose engine assigns cores.
    """

    kept: KeptSeats
    cores: tuple[int, ...]

    async def reserve(self, requests: Sequence[SeatRequest]) -> tuple[Seat, ...]:
        """Reserve a seat for every task of a gang, or for none.

        The caller then starts a task in each seat, or gives the seat back with `vacate`. If one seat fails or the call
        is cancelled, the other seats are given back, or kept idle for a smaller gang (`KeptSeats`).

        Raises:
            NoRoomError: There is no room, or the engine does not answer in time.
        """
        ...

    async def vacate(self, seats: Sequence[Seat]) -> None:
        """Give back unused seats. Returns when the engine has freed them."""
        ...

    async def start(self, launch: TaskLaunch) -> TaskHandle:
        """Start a task. Raises ThemisError if it cannot be started."""
        ...

    async def stop(self, handle: TaskHandle, grace_s: float) -> TaskExit:
        """Ask the task to end, and kill it and its children after `grace_s` seconds. Returns when it has ended."""
        ...

    async def kill(self, handle: TaskHandle) -> TaskExit:
        """Kill the task and its children at once. Returns when it has ended."""
        ...

    async def close(self) -> None:
        """Kill every task that still runs."""
        ...


def visible_devices(gpus: Sequence[GpuId], *, emulated: bool) -> str:
    """Return CUDA_VISIBLE_DEVICES for these GPUs of one machine. Emulated GPUs give "", which hides all cards."""
    return "" if emulated else ",".join(str(gpu.index) for gpu in sorted(gpus))
