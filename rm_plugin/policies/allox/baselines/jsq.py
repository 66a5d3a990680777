"""JSQ+: each job joins the queue where it would end first, waiting time and own time together, and never moves."""

from __future__ import annotations

from collections.abc import Mapping

from rm_plugin.policies.allox.baselines.bound_queues import decide_by_queues
from rm_plugin.policies.allox.values import Decision, Job, Machine, Snapshot


def decide(snapshot: Snapshot) -> Decision:
    """Bind new jobs by the earliest end; queues are first come first served."""
    return decide_by_queues(snapshot, _soonest)


def _soonest(job: Job, backlog_s: Mapping[Machine, float]) -> Machine:
    def key(machine: Machine) -> tuple[float, float, str]:
        time_s = job.time_s(machine.type_name)
        return backlog_s[machine] + time_s, time_s, machine.machine_id

    return min(backlog_s, key=key)
