"""The command, the environment and the marks of a task's process, for every runtime."""

from __future__ import annotations

from collections.abc import Mapping

from am.runtimes.port import TaskLaunch, visible_devices
from themis.cluster import GpuId
from themis.errors import InputError

RUN_MARK = "THEMIS_RUN_ID"
"""Variable that identifies a run of a ResourceManager. Two ResourceManagers on one machine may use the same app ids."""

_PREFIXES_NOT_INHERITED = (
    *("THEMIS_", "SLURM_", "SBATCH_", "PBS_", "LSB_", "PMI_", "PMIX_", "OMPI_", "MV2_", "TORCHELASTIC_", "PET_"),
    *("SYSTEMD_", "MEMORY_PRESSURE_"),
)
_NOT_INHERITED = frozenset(
    (
        # A place in a gang, as TensorFlow, PyTorch and Submarine read it.
        *("TF_CONFIG", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "_TASK_TYPE", "_TASK_INDEX"),
        # systemd's to the service that it started.
        *("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID", "MAINPID"),
        *("INVOCATION_ID", "JOURNAL_STREAM", "FDSTORE", "MANAGERPID", "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY"),
        *("RUNTIME_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY"),
    )
)

_SHELL = ("/bin/sh", "-c")
_PATIENT = "trap 'exit $?' TERM; tee() { (trap '' TERM; exec tee \"$@\"); }\n"
"""SIGTERM goes to the whole process group. The shell waits until its command has saved, and returns its exit code.
`tee` ignores the signal, because a program that logs while it saves would fail without it. It ends with its input."""


def process_command(launch: TaskLaunch) -> tuple[str, ...]:
    """Return the program and its arguments. Text runs in a shell. Raises InputError if there is no command."""
    if not launch.command:
        raise InputError("a task needs a command", value=launch.job_id)
    return (*_SHELL, _PATIENT + launch.command) if isinstance(launch.command, str) else launch.command


def own_environment(launch: TaskLaunch, run_id: str, *, cards_from_zero: bool = False) -> dict[str, str]:
    """Return the variables that a task gets in addition to inherited ones: the launch's, its cards and its marks.

    Args:
        launch: The task.
        run_id: The ResourceManager's run.
        cards_from_zero: Whether the container shows only the task's own cards, numbered from 0.
    """
    return {**launch.environment, **_cards(launch, cards_from_zero), **task_marks(launch, run_id)}


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a task inherits from this process.

    Excludes Themis's own, because these contain secrets, and those of launchers, schedulers and systemd, because these
    describe another gang or another process. A task gets such a variable only if its app asks for it.
    """
    return {
        name: value
        for name, value in environment.items()
        if name == RUN_MARK or not (name in _NOT_INHERITED or name.startswith(_PREFIXES_NOT_INHERITED))
    }


def task_marks(launch: TaskLaunch, run_id: str) -> dict[str, str]:
    """Return the variables that identify a task and all its descendants. Omits an empty run id."""
    return {
        **({RUN_MARK: run_id} if run_id else {}),
        "THEMIS_APP_ID": launch.app_id,
        "THEMIS_JOB_ID": launch.job_id,
        "THEMIS_TASK_INDEX": str(launch.task_index),
        "THEMIS_INCARNATION": str(launch.incarnation),
    }


def _cards(launch: TaskLaunch, from_zero: bool) -> dict[str, str]:
    # Set last, so that a user's environment cannot show a card without a lease.
    gpus = [GpuId(gpu.machine_id, index) for index, gpu in enumerate(launch.gpus)] if from_zero else launch.gpus
    cards = {"CUDA_VISIBLE_DEVICES": visible_devices(gpus, emulated=launch.emulated)}
    # Number the cards as nvidia-smi and the cluster file do, not by speed.
    return cards if launch.emulated else {**cards, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
