"""What the ResourceManager asks of an app before it takes it, whoever submits it: not every client is ours."""

from __future__ import annotations

from themis.apps import AppSpec, JobSpec
from themis.checkpoint_uri import check_checkpoint_uri
from themis.cluster import Cluster
from themis.config.names import check_app_name, check_job_id, check_label
from themis.errors import InputError


def check_app(spec: AppSpec, cluster: Cluster) -> None:
    """Raise InputError when an app may not be called what it is called, or could never run on this cluster."""
    source = "the app submitted"
    check_app_name(spec.name, source)
    check_label(spec.user, "user", source)
    check_label(spec.queue, "queue", source)
    for job in spec.jobs:
        check_job_id(job.job_id)
        _check_fits(job, cluster)
    check_checkpoint_uri(spec.checkpoint_uri)


def _check_fits(job: JobSpec, cluster: Cluster) -> None:
    shape = job.shape
    if shape.gpus_per_task > cluster.largest_machine_gpus:
        raise InputError(
            f"job {job.job_id}: no machine of {cluster.name} holds a task of so many GPUs",
            value=shape.gpus_per_task,
            remedy=f"ask for at most {cluster.largest_machine_gpus} GPUs a task",
        )
    room = sum(machine.gpus // shape.gpus_per_task for machine in cluster.machines)
    if shape.tasks > room:
        raise InputError(
            f"job {job.job_id} is larger than the cluster {cluster.name} of {cluster.gpus} GPUs",
            value=f"{shape.tasks} tasks of {shape.gpus_per_task} GPUs",
            remedy=f"ask for at most {room} tasks",
        )
