"""AlloX+: a heuristic for clusters too large for the matching (AlloX, section 4.4).

Jobs that have waited longer than a time-out go first, then the shortest, each on the type with the shortest time among
those with an idle machine. With n jobs on a few types it takes O(n log n), however many machines there are. AlloX+ does
not look at users.
"""

from __future__ import annotations

import math
from enum import StrEnum

from rm_plugin.policies.allox.idle_machines import IdleMachines
from rm_plugin.policies.allox.values import Decision, Job, Snapshot, Start

TIMEOUT_S = 500.0
"""The value of the authors' simulator; the paper states none."""


class LateOrder(StrEnum):
    """The order among jobs past the time-out.

    SHORTEST is the authors'. Under overload it can still starve a long job; OLDEST cannot.
    """

    SHORTEST = "shortest"
    OLDEST = "oldest"


def decide(snapshot: Snapshot, timeout_s: float = TIMEOUT_S, late_order: LateOrder = LateOrder.SHORTEST) -> Decision:
    """Decide which jobs start now.

    Args:
        snapshot: The cluster and the waiting jobs.
        timeout_s: Seconds after a job's arrival from which it goes before younger jobs.
        late_order: The order among such jobs.
    """
    idle = IdleMachines(snapshot)

    def key(job: Job, time_s: float) -> tuple[bool, float, float, float, str]:
        in_time = snapshot.now_s - job.arrival_s <= timeout_s
        first_s = job.arrival_s if late_order is LateOrder.OLDEST and not in_time else -math.inf
        return in_time, first_s, time_s, job.arrival_s, job.job_id

    free_types = idle.types()
    pairs = sorted(
        (key(job, job.configurations[name].time_s), name, place)
        for place, job in enumerate(snapshot.waiting)
        for name in free_types
        if name in job.configurations
    )
    starts: dict[int, Start] = {}
    # One pass is enough: a type that is full stays full.
    for _, type_name, place in pairs:
        if place not in starts and idle.has(type_name):
            starts[place] = idle.take(snapshot.waiting[place], type_name)
            if not idle:
                break
    return Decision(starts=tuple(starts.values()))
