"""DRFF: online DRF, first come first served within a user, always on GPUs. It needs no estimates."""

from __future__ import annotations

from rm_plugin.policies.allox.baselines.drf import decide_by_shares
from rm_plugin.policies.allox.progress import PREFERRED_TYPE, best_type
from rm_plugin.policies.allox.values import Decision, Job, Snapshot


def decide(snapshot: Snapshot) -> Decision:
    """Start the oldest job of the user with the least dominant share; one without GPU times takes its fastest."""

    def type_of(job: Job) -> str:
        return PREFERRED_TYPE if PREFERRED_TYPE in job.configurations else best_type(job, snapshot.capacity)

    return decide_by_shares(snapshot, lambda job: (job.arrival_s, 0.0, job.job_id), type_of)
