"""The environment of each task: the contract between the app master and the programs it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import field

from am.runtimes.port import visible_devices
from themis.apps import NO_FRAMEWORK, PYTORCH, TENSORFLOW
from themis.cluster import Allocation, GpuId, Level
from themis.errors import InputError
from themis.reporting import FILE_VARIABLE
from themis.values import Value, repr_without

# Ours, that of OpenMP and numerical libraries, and TensorFlow's for one operation and for operations side by side.
_THREAD_VARIABLES = ("THEMIS_THREADS", "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class JobIncarnation(Value, frozen=True, kw_only=True):
    """All tasks of one incarnation of a job.

    Attributes:
        incarnation: Counts the starts of the job, from 1; a later one never has a lower number.
        gpus: For each task, in order, its leased GPUs, all on one machine.
        addresses: For each task `host:port`, where it may listen to its peers. Needed when there are two tasks or more,
            and for the variables of torchrun.
        level: The locality level that all GPUs of the gang span.
        checkpoint_uri: Where the job's checkpoints go.
        job_dir: Folder of the job's own files, as the task sees it.
        time_scale: How many emulated seconds a replayed job lets pass in one real second; 1 for training.
        emulated: The GPUs are emulated, or the devices are CPU nodes: tasks see no card.
        device: The device type of the GPUs.
        speed: The speed of emulated work on that type.
        threads: For each task the threads that it may use on its CPU node; none on GPUs.
        environment: The user's own variables; the contract's names win over them.
        framework: Whose variables describe a task's peers: one of `themis.apps.FRAMEWORKS`, or empty for all.
        most_tasks: How many tasks an incarnation of the job may have.
    """

    app_id: str
    job_id: str
    incarnation: int
    gpus: tuple[tuple[GpuId, ...], ...]
    level: Level
    checkpoint_uri: str
    job_dir: str
    addresses: tuple[str, ...] = ()
    time_scale: float = 1.0
    emulated: bool = False
    device: str = "gpu"
    speed: float = 1.0
    threads: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    framework: str = ""
    most_tasks: int = 1

    __repr__ = repr_without("environment")

    def __post_init__(self) -> None:
        if not self.gpus:
            raise InputError("a gang needs at least one task", value=self.job_id)
        scattered = [task for task in self.gpus if len({gpu.machine_id for gpu in task}) > 1]
        if scattered:
            raise InputError("a task cannot span machines", value=[str(gpu) for gpu in scattered[0]])
        if (len(self.gpus) > 1 or self.runs_as_torchrun) and len(self.addresses) != len(self.gpus):
            raise InputError("every task of a gang needs an address", value=self.addresses)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.gpus)

    @property
    def runs_as_torchrun(self) -> bool:
        """Whether tasks get torchrun's variables.

        By default all jobs do that may have several tasks, also while they have one: a program that shrinks to one task
        initialises its process group all the same.
        """
        return self.framework == PYTORCH or (not self.framework and self.most_tasks > 1)


def task_environment(gang: JobIncarnation, task_index: int) -> dict[str, str]:
    """The environment variables of one task of a gang, in addition to those that its machine gives to every process.

    Raises:
        InputError: The gang has no task of this index.
    """
    if not 0 <= task_index < gang.tasks:
        raise InputError(f"a gang of {gang.tasks} tasks has no task of this index", value=task_index)
    environment = {
        # Without it, Python buffers output to a file, so that lines reach the log minutes late.
        "PYTHONUNBUFFERED": "1",
        **gang.environment,
        "THEMIS_APP_ID": gang.app_id,
        "THEMIS_JOB_ID": gang.job_id,
        "THEMIS_TASK_INDEX": str(task_index),
        "THEMIS_TASKS": str(gang.tasks),
        "THEMIS_INCARNATION": str(gang.incarnation),
        "THEMIS_CHECKPOINT_URI": gang.checkpoint_uri,
        "THEMIS_JOB_DIR": gang.job_dir,
        FILE_VARIABLE: f"{gang.job_dir}/task-{task_index}.log",
        "THEMIS_GPUS": gpus_text(gang),
        "THEMIS_LEVEL": gang.level.label,
        "THEMIS_TIME_SCALE": f"{gang.time_scale:g}",
        "THEMIS_DEVICE": gang.device,
        "THEMIS_SPEED": f"{gang.speed:.17g}",
        "CUDA_VISIBLE_DEVICES": visible_devices(gang.gpus[task_index], emulated=gang.emulated),
        # The two names that Submarine's programs know.
        "_TASK_TYPE": "worker",
        "_TASK_INDEX": str(task_index),
    }
    if gang.threads:
        environment |= dict.fromkeys(_THREAD_VARIABLES, str(gang.threads[task_index]))
    if gang.framework != NO_FRAMEWORK:
        environment.pop("TF_CONFIG", None)
    if gang.framework in ("", TENSORFLOW) and gang.tasks > 1:
        environment["TF_CONFIG"] = tf_config(gang, task_index)
    if gang.runs_as_torchrun:
        environment |= torchrun_variables(gang, task_index)
    return environment


def gpus_text(gang: JobIncarnation) -> str:
    """The gang's GPUs by machine, as in `m0:2,m1:1`."""
    counts = Allocation.of_gpus(gpu for task in gang.gpus for gpu in task)
    return ",".join(f"{machine}:{count}" for machine, count in counts)


def tf_config(gang: JobIncarnation, task_index: int) -> str:
    """TF_CONFIG of one task, as TensorFlow's multi-worker strategies read it."""
    cluster = {"worker": list(gang.addresses)}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": task_index}})


def torchrun_variables(gang: JobIncarnation, task_index: int) -> dict[str, str]:
    """Variables of one task, as torchrun gives them to its processes, and defaults for a torchrun in the command.

    A task is a node of one process, also if several tasks share a machine: it sees only its own cards, so the local
    rank 0 is right for `torch.cuda.set_device`. Example: task 1 of 2 has RANK=1, WORLD_SIZE=2, LOCAL_RANK=0 and
    NODE_RANK=1.

    A task of several cards runs `torchrun train.py` to have a process for each. torchrun reads its options from the
    variables that begin with PET_, and replaces the others.
    """
    host, _, port = gang.addresses[0].rpartition(":")
    index, tasks = str(task_index), str(gang.tasks)
    return {
        "RANK": index,
        "WORLD_SIZE": tasks,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": index,
        "GROUP_RANK": index,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "PET_NNODES": tasks,
        "PET_NODE_RANK": index,
        "PET_NPROC_PER_NODE": str(len(gang.gpus[task_index])),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": port,
    }
