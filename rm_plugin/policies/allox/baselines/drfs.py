"""DRFS: online DRF, shortest job first within a user, each job on its fastest type."""

from __future__ import annotations

from rm_plugin.policies.allox.baselines.drf import decide_by_shares
from rm_plugin.policies.allox.progress import best_type
from rm_plugin.policies.allox.values import Decision, Job, Snapshot


def decide(snapshot: Snapshot) -> Decision:
    """Start the shortest job of the user with the least dominant share."""

    def order(job: Job) -> tuple[float, float, str]:
        return min(each.time_s for each in job.configurations.values()), job.arrival_s, job.job_id

    return decide_by_shares(snapshot, order, lambda job: best_type(job, snapshot.capacity))
