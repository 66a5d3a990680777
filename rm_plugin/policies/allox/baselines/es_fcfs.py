"""ES-FCFS: equal shares, first come first served; a job takes its fastest type if the user has one free, else another.

The example of section 1 of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

from rm_plugin.policies.allox.baselines.equal_share import shares_left
from rm_plugin.policies.allox.idle_machines import IdleMachines
from rm_plugin.policies.allox.values import Decision, Snapshot, Start, arrival_order


def decide(snapshot: Snapshot, users: Sequence[str]) -> Decision:
    """Start jobs within the share of each of the registered `users`, none before an older one of the same user."""
    idle = IdleMachines(snapshot)
    left = shares_left(snapshot, users)
    starts: list[Start] = []
    blocked: set[str] = set()
    for job in sorted(snapshot.waiting, key=arrival_order):
        free = [name for name in job.configurations if left[job.user][name] > 0 and idle.has(name)]
        if job.user in blocked or not free:
            blocked.add(job.user)
            continue
        type_name = min(free, key=lambda name: (job.time_s(name), name))
        starts.append(idle.take(job, type_name))
        left[job.user][type_name] -= 1
    return Decision(starts=tuple(starts))
