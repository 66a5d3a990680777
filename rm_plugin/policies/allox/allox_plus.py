"""AlloX+: a heuristic for clusters too large for the matching (AlloX, section 4.4).

Jobs that have waited longer than a time-out go first, then the shortest, each on the type with the shortest time among
those with an idle machine. Among late jobs the shortest go first, so under overload a long job can starve; it cannot if
the oldest go first (`LateOrder`). With n jobs on a few types it takes O(n log n), however many machines there are.
AlloX+ does not look at users.
"""

from __future__ import annotations

from rm_plugin.policies.allox.idle_machines import IdleMachines
from rm_plugin.policies.allox.values import Decision, Job, Snapshot, Start
from themis.choices import LateOrder

TIMEOUT_S = 500.0
"""The value of the authors' simulator; the paper states none."""


def decide(snapshot: Snapshot, timeout_s: float = TIMEOUT_S, late_order: LateOrder = LateOrder.SHORTEST) -> Decision:
    """Decide which jobs start now.

    Args:
        snapshot: The cluster and the waiting jobs.
        timeout_s: Seconds after a job's arrival from which it goes before younger jobs.
        late_order: Which of these late jobs go first.
    """
    idle = IdleMachines(snapshot)

    def key(job: Job, time_s: float) -> tuple[bool, float, float, str]:
        in_time = snapshot.now_s - job.arrival_s <= timeout_s
        if late_order is LateOrder.OLDEST and not in_time:
            return in_time, job.arrival_s, time_s, job.job_id
        return in_time, time_s, job.arrival_s, job.job_id

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
