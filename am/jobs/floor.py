"""A time before which an app's jobs surely do not all end, whichever way they are put on some gangs.

It is worked out from sums, where to follow or to pack the jobs takes a hundred times as long: what surely ends later
than the best that is known need not be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from am.agent.model.finish_time import job_time_s, pace_on
from am.agent.model.views import GangAt, JobView
from themis.apps import JobShape, Slowdown

_Pace = tuple[JobShape, Slowdown]


class _Alike:
    """Waiting jobs of one shape and S: one of them, the work of all and of the longest, in GPU seconds at S = 1."""

    __slots__ = ("job", "longest_gpu_s", "work_gpu_s")

    def __init__(self, job: JobView) -> None:
        self.job = job
        self.work_gpu_s = self.longest_gpu_s = 0.0

    def add(self, work_gpu_s: float) -> None:
        """One more of them."""
        self.work_gpu_s += work_gpu_s
        self.longest_gpu_s = max(self.longest_gpu_s, work_gpu_s)

    def speeds_on(self, gangs: Iterable[GangAt]) -> list[float]:
        """GPU seconds at S = 1 that such a job does a second on each gang; 0 where it cannot run."""
        return [usable / slowdown for slowdown, usable in (pace_on(self.job, gang) for gang in gangs)]


class Floor:
    """The least end of waiting jobs beside and behind running ones, in seconds from now.

    Args:
        waiting: Jobs without a gang.
        busy: Gangs on which jobs run, and when these are free, in seconds from now; then they run waiting jobs.
    """

    def __init__(self, waiting: Iterable[JobView], busy: Iterable[tuple[GangAt, float]]) -> None:
        alike: dict[_Pace, _Alike] = {}
        for job in waiting:
            pace = job.shape, job.slowdown
            if pace not in alike:
                alike[pace] = _Alike(job)
            alike[pace].add(job.serial_work_s)
        self._alike = sorted(alike.values(), key=lambda some: -some.work_gpu_s)
        self._held: dict[GangAt, list[float]] = {}
        for gang, free_s in busy:
            self._held.setdefault(gang, []).append(free_s)
        self._busy_gpu_s = sum([gang.gpus * sum(loads_s) for gang, loads_s in self._held.items()])
        self._busy_gpus = sum([gang.gpus * len(loads_s) for gang, loads_s in self._held.items()])
        self._busy_s = max([max(loads_s) for loads_s in self._held.values()], default=0.0)

    def packed_s(self, new: Sequence[GangAt]) -> float:
        """The least end on gangs that stay as they are: by all work and all gangs, and by the longest job."""
        gangs = list({**dict.fromkeys(self._held), **dict.fromkeys(new)})
        # Gangs count by how fast the jobs of most work are on them: for these the bound is what fluid work would take.
        weights = self._alike[0].speeds_on(gangs)
        weight_of = dict(zip(gangs, weights, strict=True))
        room = sum([weight_of[gang] * len(loads_s) for gang, loads_s in self._held.items()])
        room += sum([weight_of[gang] for gang in new])
        needed = sum([weight_of[gang] * sum(loads_s) for gang, loads_s in self._held.items() if weight_of[gang]])
        latest_s = self._busy_s
        for some in self._alike:
            speeds = some.speeds_on(gangs)
            fastest = max(speeds, default=0.0)
            if not fastest:
                return math.inf
            latest_s = max(latest_s, some.longest_gpu_s / fastest)
            least = min([weight / speed for weight, speed in zip(weights, speeds, strict=True) if speed])
            needed += some.work_gpu_s * least
        return max(latest_s, needed / room) if room else latest_s

    def shared_s(self, waiting: Iterable[JobView], new: Sequence[GangAt]) -> float:
        """The least end where GPUs that a job leaves may be divided anew, at the levels of the gangs that there are.

        Args:
            waiting: The jobs in the order in which they are served, the first of them on the new gangs.
            new: These gangs.
        """
        gpus = self._busy_gpus + sum([gang.gpus for gang in new])
        if not gpus:
            return math.inf
        nearest = min([gang.level for gang in (*self._held, *new)])
        needed = sum([some.work_gpu_s * some.job.slowdown.at(nearest) for some in self._alike])
        started_s = [job_time_s(job, gang) for job, gang in zip(waiting, new, strict=False)]
        return max(self._busy_s, *started_s, (needed + self._busy_gpu_s) / gpus)
