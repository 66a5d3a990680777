"""The ContainerRuntime port: where tasks run, and how their end becomes known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from themis.cluster import GpuId


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


class ExitReason(StrEnum):
    """Why a task ended."""

    EXITED = "exited"
    STOPPED = "stopped"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskExit:
    """The end of a task: its exit code (minus the signal's number when a signal ended it) and why.

    EXITED: by itself, or by somebody else's signal; STOPPED: `stop` or `kill` was called; MEMORY: it passed its limit.
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


class ContainerRuntime(Protocol):
    """Starts and ends tasks. All methods belong to one event loop."""

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
