"""DRFF: online DRF, first come first served within a user, always on GPUs. It needs no estimates."""

from __future__ import annotations

from collections.abc import Collection

from rm_plugin.policies.allox.baselines.drf import decide_by_shares
from rm_plugin.policies.allox.progress import PREFERRED_TYPE, best_type
from rm_plugin.policies.allox.values import Decision, Job, Snapshot


def decide(snapshot: Snapshot, gpu_types: Collection[str] = (PREFERRED_TYPE,)) -> Decision:
    """Start the oldest job of the user with the least dominant share.

    Args:
        snapshot: The cluster and the waiting jobs.
        gpu_types: The types that are GPUs. Of several a job takes its fastest that has machines, and so does a job
            without GPU times.
    """

    def type_of(job: Job) -> str:
        own = [name for name in sorted(gpu_types) if name in job.configurations]
        gpus = [name for name in own if snapshot.capacity.units.get(name)] or own
        return min(gpus, key=job.time_s) if gpus else best_type(job, snapshot.capacity)

    return decide_by_shares(snapshot, lambda job: (job.arrival_s, 0.0, job.job_id), type_of)
