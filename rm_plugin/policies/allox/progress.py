"""Progress of users: the sum of the values of their running jobs (AlloX, section 3.3.2).

A job's value is its dominant share on its best type. On another type the value is discounted by the ratio of the times,
so that a job adds up to the same over its run wherever it runs.

Example: a cluster of 8 CPUs, 2 GPUs and 64 GB, and a job that needs 1 CPU and 4 GB for 20 s, or 1 GPU and 2 GB for 5 s.
The GPU is better, so the dominant share is max(1/2, 2/64) = 1/2. The value is 1/2 on a GPU and 1/2 * 5/20 = 1/8 on a
CPU; over the run both add up to 2.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rm_plugin.policies.allox.values import Capacity, Configuration, Job, UserState
from themis.errors import InvariantError

PREFERRED_TYPE = "gpu"
"""Of types with equal time the best is this one, as in the authors' simulator, else the first by name."""


def best_type(job: Job, capacity: Capacity) -> str:
    """Of the cluster's device types the one with the smallest estimated time. The job must be able to run on one."""
    types = [name for name in job.configurations if capacity.units.get(name)]
    return min(types, key=lambda name: (job.configurations[name].time_s, name != PREFERRED_TYPE, name))


def dominant_share(configuration: Configuration, type_name: str, capacity: Capacity) -> float:
    """The largest of the configuration's shares of the type's units, the cluster's memory and its cores."""
    memory = configuration.memory_gb / capacity.memory_gb if capacity.memory_gb else 0.0
    cores = configuration.cores / capacity.cores if capacity.cores else 0.0
    return max(configuration.units / capacity.units[type_name], memory, cores)


def value_of(job: Job, placed_type: str, capacity: Capacity) -> float:
    """What the job adds to its user's progress while it runs on a type."""
    best = best_type(job, capacity)
    share = dominant_share(job.configurations[best], best, capacity)
    if placed_type == best:
        return share
    return share * job.configurations[best].time_s / job.configurations[placed_type].time_s


class ProgressLedger:
    """The values of running jobs, by user. A value is fixed at the start of a job and removed at its end.

    Progress is summed again for each reading, exactly rounded: a running sum would keep rounding errors, and users with
    equal progress would no longer tie. Sample runs are not entered.
    """

    def __init__(self, running: Mapping[str, tuple[str, float]] | None = None, last_start_s: Mapping[str, float] = {}):
        """Begin with the given state.

        Args:
            running: (user, value) by running job.
            last_start_s: Time of the last start, by user.
        """
        self._running: dict[str, tuple[str, float]] = dict(running or {})
        self._last_start_s: dict[str, float] = dict(last_start_s)

    def start(self, job_id: str, user: str, value: float, now_s: float) -> None:
        """Enter a job that starts. Raises InvariantError if it runs already."""
        if job_id in self._running:
            raise InvariantError("a job starts twice", value=job_id)
        self._running[job_id] = user, value
        self._last_start_s[user] = now_s

    def end(self, job_id: str) -> None:
        """Remove a job that ended, failed or lost its machine. Raises InvariantError if it does not run."""
        if self._running.pop(job_id, None) is None:
            raise InvariantError("a job ends that does not run", value=job_id)

    def users(self, names: Iterable[str] = ()) -> dict[str, UserState]:
        """State of all users with a running job or an earlier start, and of `names`."""
        values: dict[str, list[float]] = {name: [] for name in (*self._last_start_s, *names)}
        for user, value in self._running.values():
            values[user].append(value)
        return {
            user: UserState(progress=math.fsum(own), last_start_s=self._last_start_s.get(user, -math.inf))
            for user, own in values.items()
        }

    @property
    def running(self) -> Mapping[str, tuple[str, float]]:
        """(user, value) by running job: with `last_start_s` all of the state, to be stored and restored."""
        return dict(self._running)

    @property
    def last_start_s(self) -> Mapping[str, float]:
        """Time of the last start, by user."""
        return dict(self._last_start_s)
