"""What the process of a task is started with, wherever it runs: its command, its environment, its marks."""

from __future__ import annotations

from collections.abc import Mapping

from am.runtimes.port import TaskLaunch, visible_devices
from themis.cluster import GpuId
from themis.errors import InputError

RUN_MARK = "THEMIS_RUN_ID"
"""The mark of a ResourceManager's run: two of them on one machine count their apps alike."""

_SHELL = ("/bin/sh", "-c")
_PATIENT = "trap 'exit $?' TERM\n"
"""The word to stop goes to the whole group: the shell waits for its command to save, then ends with its exit code."""


def process_command(launch: TaskLaunch) -> tuple[str, ...]:
    """Program and arguments; text for the shell is given to one. No command at all raises InputError."""
    if not launch.command:
        raise InputError("a task needs a command", value=launch.job_id)
    return (*_SHELL, _PATIENT + launch.command) if isinstance(launch.command, str) else launch.command


def own_environment(launch: TaskLaunch, run_id: str, *, cards_from_zero: bool = False) -> dict[str, str]:
    """What a task's environment holds beside what it inherits: the launch's, its cards and its marks.

    `cards_from_zero`: where the task runs it is shown its own cards only, which count from 0 there.
    """
    return {**launch.environment, **_cards(launch, cards_from_zero), **task_marks(launch, run_id)}


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a task inherits: everything but our own variables, whose secrets are no business of the user's program."""
    return {name: value for name, value in environment.items() if not name.startswith("THEMIS_") or name == RUN_MARK}


def task_marks(launch: TaskLaunch, run_id: str) -> dict[str, str]:
    """The environment variables by which a task and all its descendants are known; an empty run id is left out."""
    return {
        **({RUN_MARK: run_id} if run_id else {}),
        "THEMIS_APP_ID": launch.app_id,
        "THEMIS_JOB_ID": launch.job_id,
        "THEMIS_TASK_INDEX": str(launch.task_index),
        "THEMIS_INCARNATION": str(launch.incarnation),
    }


def _cards(launch: TaskLaunch, from_zero: bool) -> dict[str, str]:
    # Set last: whatever a program's environment says, it sees no card that it holds no lease on.
    gpus = [GpuId(gpu.machine_id, index) for index, gpu in enumerate(launch.gpus)] if from_zero else launch.gpus
    cards = {"CUDA_VISIBLE_DEVICES": visible_devices(gpus, emulated=launch.emulated)}
    # Indices as nvidia-smi and the cluster file count them, not fastest card first.
    return cards if launch.emulated else {**cards, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
