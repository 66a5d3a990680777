"""BF, best fit: each job goes to its fastest type, to the machine there with the least load, and never moves."""

from __future__ import annotations

from collections.abc import Mapping

from rm_plugin.policies.allox.baselines.bound_queues import decide_by_queues
from rm_plugin.policies.allox.values import Decision, Job, Machine, Snapshot


def decide(snapshot: Snapshot) -> Decision:
    """Bind new jobs by their fastest type; queues are first come first served."""
    return decide_by_queues(snapshot, _fastest)


def _fastest(job: Job, backlog_s: Mapping[Machine, float]) -> Machine:
    return min(backlog_s, key=lambda machine: (job.time_s(machine.type_name), backlog_s[machine], machine.machine_id))
