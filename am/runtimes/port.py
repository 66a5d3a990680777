"""The ContainerRuntime port: where tasks run, and how their end becomes known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from themis.cluster import GpuId
from themis.errors import ThemisError


class NoRoomError(ThemisError):
    """The engine has no room for a task where the app holds leases: somebody else is there, or the machine is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRequest:
    """Room for one task of a gang: its leased GPUs, all on one machine, and what else it may use.

    `memory_mb` of 0 leaves it to the runtime.
    """

    job_id: str
    task_index: int
    gpus: tuple[GpuId, ...]
    memory_mb: int = 0
    vcores: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Room that a task was given.

    Attributes:
        seat_id: The runtime's own name for it.
        address: `host:port` where the task may listen to its peers; its peers reach it there.
        job_dir: The job's folder as the task sees it; empty where that is the app master's own.
        reused: A task of the app ran there before.
        seconds: What reserving it took together with its gang, by step in their order; empty where it takes no time.
    """

    seat_id: str
    address: str
    job_dir: str = ""
    reused: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLaunch:
    """One task of one incarnation of a job, ready to start.

    Attributes:
        command: Program and arguments, or text for the shell.
        environment: What the task's environment holds on top of what the runtime gives to every task.
        gpus: The leased GPUs of this task, all on one machine.
        emulated: The GPUs are emulated: no card is shown to the task.
        working_dir: Folder the task starts in; made when missing.
        log_path: File that standard output and standard error are appended to; its folder is made when missing.
        memory_mb: What the task may use; 0 for no limit. Each runtime says how far it enforces it.
        seat: The room reserved for it; None where the runtime needs none reserved.
    """

    app_id: str
    job_id: str
    task_index: int
    incarnation: int
    command: tuple[str, ...] | str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    gpus: tuple[GpuId, ...] = ()
    emulated: bool = False
    working_dir: Path
    log_path: Path
    memory_mb: int = 0
    seat: Seat | None = None


class ExitReason(StrEnum):
    """Why a task ended."""

    EXITED = "exited"
    STOPPED = "stopped"
    MEMORY = "memory"
    TAKEN = "taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskExit:
    """The end of a task: its exit code (minus the signal's number when a signal ended it) and why.

    EXITED: by itself, or by somebody else's signal; STOPPED: `stop` or `kill` was called; MEMORY: it passed its limit;
    TAKEN: the engine took its room away (preempted, its machine lost or unhealthy), which is no fault of the task's.
    """

    exit_code: int
    reason: ExitReason = ExitReason.EXITED

    @property
    def succeeded(self) -> bool:
        """True when the program ended by itself with code 0."""
        return self.exit_code == 0 and self.reason is ExitReason.EXITED


class TaskHandle(Protocol):
    """A started task."""

    @property
    def launch(self) -> TaskLaunch:
        """What was started."""
        ...

    @property
    def pid(self) -> int:
        """Its process id, or a number that stands for one."""
        ...

    @property
    def ended(self) -> TaskExit | None:
        """How it ended; None while it runs."""
        ...

    async def wait(self) -> TaskExit:
        """Return when it has ended, whatever the cause. Any number of callers may wait."""
        ...


class KeptSeats(Protocol):
    """Seats that outlast their tasks, for the app's next on the same GPUs. All methods belong to one event loop."""

    def prepare(self, requests: Sequence[SeatRequest]) -> None:
        """Tasks like these will start soon: begin with their room, on GPUs on which nothing of the app's is yet."""
        ...

    def occupied(self) -> frozenset[GpuId]:
        """GPUs on which a seat of the app's is, comes, or goes: none of them is free for others."""
        ...

    async def clear(self, gpus: Collection[GpuId]) -> None:
        """Return when no seat is left on these GPUs: idle ones end now, the others with their task."""
        ...


class NothingKept:
    """For runtimes whose seats end with their tasks."""

    def prepare(self, requests: Sequence[SeatRequest]) -> None:
        """There is nothing to prepare."""

    def occupied(self) -> frozenset[GpuId]:
        """No task, no seat."""
        return frozenset()

    async def clear(self, gpus: Collection[GpuId]) -> None:
        """There is nothing to clear."""


class ContainerRuntime(Protocol):
    """Starts and ends tasks. All methods belong to one event loop.

    Attributes:
        kept: Its seats that outlast their tasks.
    """

    kept: KeptSeats

    async def reserve(self, requests: Sequence[SeatRequest]) -> tuple[Seat, ...]:
        """Room for every task of a gang, or for none: what was got is given back when a part cannot be had in time.

        Each seat is then started, or given back with `vacate`. Cancelling gives back what was got.

        Raises:
            NoRoomError: There is no room, or not in time.
        """
        ...

    async def vacate(self, seats: Sequence[Seat]) -> None:
        """Give back seats on which nothing was started; returns when nothing of ours is there any more."""
        ...

    async def start(self, launch: TaskLaunch) -> TaskHandle:
        """Start a task; raises ThemisError when it cannot be started at all."""
        ...

    async def stop(self, handle: TaskHandle, grace_s: float) -> TaskExit:
        """Ask the task to end, kill it and all its children after `grace_s` seconds; returns when it is gone."""
        ...

    async def kill(self, handle: TaskHandle) -> TaskExit:
        """Kill the task and its children at once; returns when it is gone."""
        ...

    async def close(self) -> None:
        """Kill every task that still runs."""
        ...


def visible_devices(gpus: Sequence[GpuId], *, emulated: bool) -> str:
    """CUDA_VISIBLE_DEVICES for a task on these GPUs of one machine; empty, which hides every card, when emulated."""
    return "" if emulated else ",".join(str(gpu.index) for gpu in sorted(gpus))
