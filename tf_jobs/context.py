"""A task's context: the environment that the runtime sets, with defaults for runs by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tf_jobs.addresses import Address, read_addresses
from themis.errors import InputError, UnknownNameError
from themis.number_parsing import as_whole
from themis.values import Value

LEVELS = ("slot", "machine", "rack", "cluster")


class TaskContext(Value, frozen=True, kw_only=True):
    """One task's position in its job.

    Attributes:
        app_id: The app that the job belongs to.
        job_id: The job; its checkpoints are kept under this name.
        task_index: Index of this task, from 0; task 0 is the chief.
        tasks: Number of tasks of this incarnation.
        incarnation: Starts of the job so far, this one included.
        checkpoint_uri: The location of checkpoints.
        job_dir: Working folder of this task. Its peers and later incarnations may have others.
        addresses: The address on which each task may listen for its peers; empty for a single task.
        gpus: GPUs leased to the job, over all machines.
        level: The tightest locality level that all of these GPUs share.
        time_scale: How many times faster than real time emulated work runs.
        speed: How many times faster than on the reference GPU emulated work runs on this device type.
        device: The device type of the job's GPUs; empty if it is run by hand.
    """

    app_id: str
    job_id: str
    task_index: int
    tasks: int
    incarnation: int
    checkpoint_uri: str
    job_dir: Path
    addresses: tuple[Address, ...]
    gpus: int
    level: str
    time_scale: float
    speed: float = 1.0
    device: str = ""

    @property
    def chief(self) -> bool:
        """Whether this task logs and saves for the job."""
        return self.task_index == 0


def read_context(program_name: str, environment: Mapping[str, str], checkpoint_uri: str = "") -> TaskContext:
    """Read the context from `environment`. A run by hand needs no variable.

    Args:
        program_name: Used as app id and job id if none are given.
        environment: Usually `os.environ`.
        checkpoint_uri: The flag, which overrides the environment.

    Raises:
        InputError: A variable does not parse, or several tasks lack the variables that distinguish them.
    """
    job_id = environment.get("THEMIS_JOB_ID") or program_name
    tasks = _whole(environment, "THEMIS_TASKS", 1, low=1)
    task_index = _whole(environment, "THEMIS_TASK_INDEX", 0, low=0)
    if task_index >= tasks:
        raise InputError(
            "THEMIS_TASK_INDEX is not below THEMIS_TASKS", value=task_index, remedy=f"use 0 to {tasks - 1}"
        )
    uri = checkpoint_uri or environment.get("THEMIS_CHECKPOINT_URI", "")
    if tasks > 1 and not uri:
        raise InputError("several tasks need THEMIS_CHECKPOINT_URI", remedy="name a place that all of them reach")
    job_dir = Path(environment.get("THEMIS_JOB_DIR") or Path("themis-jobs") / job_id)
    level = environment.get("THEMIS_LEVEL") or "slot"
    if level not in LEVELS:
        raise UnknownNameError("locality level in THEMIS_LEVEL", level, LEVELS)
    return TaskContext(
        app_id=environment.get("THEMIS_APP_ID") or "by-hand",
        job_id=job_id,
        task_index=task_index,
        tasks=tasks,
        incarnation=_incarnation(environment, tasks),
        checkpoint_uri=uri or str(job_dir / "checkpoints"),
        job_dir=job_dir,
        addresses=read_addresses(environment, tasks=tasks, task_index=task_index),
        gpus=count_gpus(environment.get("THEMIS_GPUS", ""), default=tasks),
        level=level,
        time_scale=_factor(environment, "THEMIS_TIME_SCALE", "use 1 for real time"),
        speed=_factor(environment, "THEMIS_SPEED", "use 1 for the reference GPU"),
        device=environment.get("THEMIS_DEVICE", ""),
    )


def count_gpus(text: str, *, default: int) -> int:
    """Return the sum of GPUs in a list such as `m0:2,m1:1`, or `default` if the list is empty.

    Raises:
        InputError: An element is not `machine:count` with a count of 1 or more.
    """
    if not text.strip():
        return default
    total = 0
    for part in text.split(","):
        machine, colon, count = part.strip().rpartition(":")
        gpus = as_whole(count)
        if not (machine and colon and gpus):
            raise InputError("THEMIS_GPUS does not parse", value=text, remedy="write machine:count, e.g. m0:2,m1:1")
        total += gpus
    return total


def _incarnation(environment: Mapping[str, str], tasks: int) -> int:
    """Return the incarnation. Required for several tasks, which accept only peers of the same incarnation."""
    if tasks > 1 and not environment.get("THEMIS_INCARNATION"):
        raise InputError(
            "several tasks need THEMIS_INCARNATION", remedy="set it to 1 at the first start and raise it at each start"
        )
    return _whole(environment, "THEMIS_INCARNATION", 1, low=1)


def _whole(environment: Mapping[str, str], name: str, default: int, *, low: int) -> int:
    """Read a whole number from the environment. Raises InputError unless it is `low` or more."""
    text = environment.get(name)
    if not text:
        return default
    number = as_whole(text)
    if number is None or number < low:
        raise InputError(f"{name} is not a whole number of {low} or more", value=text, remedy=f"e.g. {default}")
    return number


def _factor(environment: Mapping[str, str], name: str, remedy: str) -> float:
    """Read a factor, 1 by default. Raises InputError unless it is a positive number."""
    text = environment.get(name) or "1"
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if not 0.0 < factor < float("inf"):
        raise InputError(f"{name} is not a positive number", value=text, remedy=remedy)
    return factor
