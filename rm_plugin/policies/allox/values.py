"""What AlloX and its baselines decide on: a snapshot of jobs, machines and users, and the decision."""

from __future__ import annotations

import math
from collections.abc import Mapping

from themis.values import Value


class Configuration(Value, frozen=True, kw_only=True):
    """What a job needs on one device type.

    Attributes:
        time_s: Estimated processing time of the whole job, alone on one machine of the type.
        units: Units of the type that it occupies: 1 for a whole GPU or a whole CPU node.
        memory_gb: Memory that it occupies.
        cores: CPU cores that it occupies beside a GPU; 0 on a CPU node, whose cores are in its unit.
    """

    time_s: float
    units: float = 1.0
    memory_gb: float = 0.0
    cores: float = 0.0


class Job(Value, frozen=True, kw_only=True):
    """A job whose estimates are complete.

    Attributes:
        job_id: Unique id.
        user: The user who submitted it.
        arrival_s: Submission time, before profiling; a(j) of the paper.
        configurations: By device type; a type is absent if the job cannot run there.
    """

    job_id: str
    user: str
    arrival_s: float
    configurations: Mapping[str, Configuration]

    def time_s(self, type_name: str) -> float:
        """Estimated processing time on a type; infinite if the job cannot run there."""
        configuration = self.configurations.get(type_name)
        return math.inf if configuration is None else configuration.time_s


class Machine(Value, frozen=True, kw_only=True):
    """A machine that can run one job at a time.

    Attributes:
        machine_id: Unique id.
        type_name: Its device type.
        available_s: When its present job is expected to end; omega(i) of the paper.
        is_idle: Whether a job may start on it now: no job, no sample, no failure, no reservation.
    """

    machine_id: str
    type_name: str
    available_s: float
    is_idle: bool


class RunningJob(Value, frozen=True, kw_only=True):
    """A job on a machine, with the fraction of its work that is left (used by SRPT only)."""

    job: Job
    machine_id: str
    type_name: str
    fraction_left: float = 1.0


class Capacity(Value, frozen=True, kw_only=True):
    """Totals of the cluster: units by device type, memory in GB and CPU cores (0 if these are not limited)."""

    units: Mapping[str, float]
    memory_gb: float = 0.0
    cores: float = 0.0


class UserState(Value, frozen=True, kw_only=True):
    """A user's fairness state: the sum of values of running jobs, and the time of the last start."""

    progress: float = 0.0
    last_start_s: float = -math.inf


class Snapshot(Value, frozen=True, kw_only=True):
    """Everything that one decision may use.

    Attributes:
        now_s: Time of the decision.
        machines: All machines of the cluster, busy ones included; a lost machine is absent.
        waiting: Jobs that may start.
        capacity: Totals of the cluster.
        users: State by user; a user without an entry has never started a job.
        running: Jobs on machines, for the policies that use shares or preempt.
        bindings: Machine by waiting job, for the policies that bind jobs to queues.
        fraction_left: By waiting job that ran before; 1 for all others. Used by SRPT only.
    """

    now_s: float
    machines: tuple[Machine, ...]
    waiting: tuple[Job, ...]
    capacity: Capacity
    users: Mapping[str, UserState] = {}
    running: tuple[RunningJob, ...] = ()
    bindings: Mapping[str, str] = {}
    fraction_left: Mapping[str, float] = {}


class Start(Value, frozen=True, kw_only=True):
    """Start a job on a machine. `value` is what the job adds to its user's progress (`progress.value_of`)."""

    job: Job
    machine_id: str
    type_name: str
    value: float = 0.0


class Decision(Value, frozen=True, kw_only=True):
    """What to do now. All starts of one decision happen at once, after the preemptions.

    Attributes:
        starts: Jobs to start on idle machines.
        preempted: Ids of running jobs to stop first; only SRPT uses it.
        bindings: Machine by newly bound waiting job; only BF and JSQ+ use it.
    """

    starts: tuple[Start, ...] = ()
    preempted: tuple[str, ...] = ()
    bindings: Mapping[str, str] = {}


def arrival_order(job: Job) -> tuple[float, str]:
    """Sort key: first come first served, ties by id."""
    return job.arrival_s, job.job_id
