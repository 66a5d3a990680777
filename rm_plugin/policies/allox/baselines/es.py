"""ES: equal shares; each user fills its GPUs with its shortest jobs on GPUs, then the other types likewise."""

from __future__ import annotations

from collections.abc import Sequence

from rm_plugin.policies.allox.baselines.equal_share import shares_left
from rm_plugin.policies.allox.idle_machines import IdleMachines
from rm_plugin.policies.allox.progress import PREFERRED_TYPE
from rm_plugin.policies.allox.values import Decision, Snapshot, Start, arrival_order


def decide(snapshot: Snapshot, users: Sequence[str], types: Sequence[str] = (PREFERRED_TYPE,)) -> Decision:
    """Start jobs within the share of each user.

    Args:
        snapshot: The cluster and the waiting jobs.
        users: All registered users.
        types: The order in which users fill their machines, GPUs first. Other types follow by name.
    """
    idle = IdleMachines(snapshot)
    starts: list[Start] = []
    if not idle:
        return Decision()
    for user, left in shares_left(snapshot, users).items():
        own = [job for job in snapshot.waiting if job.user == user]
        for type_name in [*types, *sorted(left.keys() - set(types))]:
            for job in sorted(own, key=lambda job: (job.time_s(type_name), arrival_order(job))):
                if left[type_name] < 1 or not idle.has(type_name) or type_name not in job.configurations:
                    break
                starts.append(idle.take(job, type_name))
                left[type_name] -= 1
                own.remove(job)
    return Decision(starts=tuple(starts))
