"""The smallest finish time of an app's jobs on a small bundle, over every division and every assignment of jobs.

Written from the definition in `am/agent/bids/bidding.py`. Of the agent it uses only the time of one job on one gang.
For apps without GPUs and without later phases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from am.agent.model.finish_time import job_time_s
from am.agent.model.views import AppView, GangAt, JobView
from themis.apps import JobShape
from themis.bids import FreeMachine
from themis.cluster import Level

Vector = tuple[int, ...]


def least_time_s(jobs: Sequence[JobView], gangs: Sequence[GangAt]) -> float:
    """The smallest finish time of all jobs on gangs that run one job at a time, over every assignment."""
    times_s = [[job_time_s(job, gang) for gang in gangs] for job in sorted(jobs, key=lambda job: -job.serial_work_s)]
    best_s = math.inf

    def assign(place: int, loads_s: tuple[float, ...]) -> None:
        nonlocal best_s
        if max(loads_s) >= best_s:
            return
        if place == len(times_s):
            best_s = max(loads_s)
            return
        for gang, load_s in enumerate(loads_s):
            # Of equally busy identical gangs the first suffices.
            if (gangs[gang], load_s) not in zip(gangs[:gang], loads_s[:gang], strict=True):
                assign(place + 1, (*loads_s[:gang], load_s + times_s[place][gang], *loads_s[gang + 1 :]))

    assign(0, (0.0,) * len(gangs))
    return best_s


def exact_time_s(
    app: AppView,
    machines: Sequence[FreeMachine],
    time_s: Callable[[Sequence[JobView], Sequence[GangAt]], float] = least_time_s,
) -> float:
    """Seconds until the last job ends on the best gangs of a bundle. Infinite if none fits.

    `time_s` returns the time of all jobs on gangs: by the best assignment, or by some rule.
    """
    return min((time_s(app.jobs, gangs) for gangs in divisions(app, machines)), default=math.inf)


def divisions(app: AppView, machines: Sequence[FreeMachine]) -> Iterator[tuple[GangAt, ...]]:
    """Every way to form gangs of a bundle that its jobs can run on, at most one per job, each way once."""
    names = [(machine, slot) for machine in machines for slot in range(len(machine.free_slots))]
    full = tuple(machine.free_slots[slot] for machine, slot in names)
    owners = [machine for machine, _ in names]
    choices = [
        (vector, gang)
        for vector in itertools.product(*(range(count + 1) for count in full))
        for gang in sorted({gang for job in app.jobs for gang in _as_gang(vector, owners, job.shape)}, key=repr)
    ]
    seen: set[tuple[Vector, tuple[GangAt, ...]]] = set()

    def grow(left: Vector, gangs: tuple[GangAt, ...], first: int) -> Iterator[tuple[GangAt, ...]]:
        for place in range(first, len(choices)):
            vector, gang = choices[place]
            rest = tuple(have - want for have, want in zip(left, vector, strict=True))
            more = tuple(sorted((*gangs, gang), key=repr))
            if min(rest) < 0 or (rest, more) in seen:
                continue
            seen.add((rest, more))
            yield more
            if len(more) < len(app.jobs):
                yield from grow(rest, more, place)

    yield from grow(full, (), 0)


def _as_gang(vector: Vector, owners: Sequence[FreeMachine], shape: JobShape) -> Iterator[GangAt]:
    """The gang of these GPUs by slot for jobs of a shape.

    None if they do not form whole tasks, or are too few or too many.
    """
    by_machine: dict[str, int] = {}
    for count, machine in zip(vector, owners, strict=True):
        if count:
            by_machine[machine.machine_id] = by_machine.get(machine.machine_id, 0) + count
    gpus, unit = sum(vector), shape.gpus_per_task
    if not gpus or any(count % unit for count in by_machine.values()) or shape.usable_gpus(gpus) != gpus:
        return
    racks = {machine.rack_id for count, machine in zip(vector, owners, strict=True) if count}
    level = Level.RACK if len(racks) == 1 else Level.CLUSTER
    if len(by_machine) == 1:
        level = Level.SLOT if sum(count > 0 for count in vector) == 1 else Level.MACHINE
    yield GangAt(gpus, level, unit if level > Level.MACHINE else 0)
