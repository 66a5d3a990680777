"""Tasks as processes of this machine: own group, log file, visible cards limited to the leased ones. Linux only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from am.runtimes.port import ExitReason, TaskExit, TaskHandle, TaskLaunch, visible_devices
from themis.errors import InputError, InvariantError
from themis.processes import ProcessSpec, RunningProcess, kill_marked, start

_SHELL = ("/bin/sh", "-c")
_RUN_MARK = "THEMIS_RUN_ID"


class LocalTask:
    """A task that is a process of this machine."""

    def __init__(self, launch: TaskLaunch, process: RunningProcess) -> None:
        self.launch = launch
        self.process = process
        self.reason = ExitReason.EXITED

    @property
    def pid(self) -> int:
        """Its process id, which is its group's too."""
        return self.process.pid

    @property
    def ended(self) -> TaskExit | None:
        """How it ended; None while it runs."""
        code = self.process.exit_code
        return None if code is None else TaskExit(exit_code=code, reason=self.reason)

    async def wait(self) -> TaskExit:
        """Return when it has ended."""
        code = await self.process.wait()
        return TaskExit(exit_code=code, reason=self.reason)


class LocalRuntime:
    """Starts each task under the guard, so that none outlives this process (see `themis.process_guard`).

    Children that a task moved into sessions of their own are found and killed by their marks when the task ends.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, LocalTask] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._inherited = inherited_environment(os.environ)

    async def start(self, launch: TaskLaunch) -> LocalTask:
        """Start a task; raises StartError when its folders or its program cannot be used."""
        launch.working_dir.mkdir(parents=True, exist_ok=True)
        launch.log_path.parent.mkdir(parents=True, exist_ok=True)
        process = start(
            ProcessSpec(
                command=_command(launch),
                environment={**self._inherited, **launch.environment, **_cards(launch)},
                working_dir=launch.working_dir,
                stdout=launch.log_path,
                dies_with_parent=True,
            )
        )
        task = LocalTask(launch, process)
        self._tasks[task.pid] = task
        watcher = asyncio.get_running_loop().create_task(self._watch(task))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return task

    async def stop(self, handle: TaskHandle, grace_s: float) -> TaskExit:
        """SIGTERM to the task's group, SIGKILL after `grace_s` seconds."""
        task = self._own(handle)
        if task.ended is None:
            task.reason = ExitReason.STOPPED
            await task.process.terminate(grace_s)
        return await task.wait()

    async def kill(self, handle: TaskHandle) -> TaskExit:
        """SIGKILL to the task's group."""
        return await self.stop(handle, 0.0)

    async def close(self) -> None:
        """Kill every task that still runs."""
        await asyncio.gather(*(self.kill(task) for task in list(self._tasks.values())))
        await asyncio.gather(*self._watchers)

    async def _watch(self, task: LocalTask) -> None:
        await task.process.wait()
        self._tasks.pop(task.pid, None)

    def _own(self, handle: TaskHandle) -> LocalTask:
        if not isinstance(handle, LocalTask):
            raise InvariantError("a task of another runtime", value=handle)
        return handle


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a task inherits: everything but our own variables, whose secrets are no business of the user's program."""
    return {
        name: value for name, value in environment.items() if not name.startswith("THEMIS_") or name == _RUN_MARK
    }


def _command(launch: TaskLaunch) -> tuple[str, ...]:
    if not launch.command:
        raise InputError("a task needs a command", value=launch.job_id)
    return (*_SHELL, launch.command) if isinstance(launch.command, str) else launch.command


def _cards(launch: TaskLaunch) -> dict[str, str]:
    # Set here, last: whatever a program's environment says, it sees no card that it holds no lease on.
    cards = {"CUDA_VISIBLE_DEVICES": visible_devices(launch.gpus, emulated=launch.emulated)}
    # Indices as nvidia-smi and the cluster file count them, not fastest card first.
    return cards if launch.emulated else {**cards, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
