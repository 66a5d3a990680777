"""Refuse jobs that a policy cannot give enough devices."""

from __future__ import annotations

from rm_plugin.policies.port import traits_of
from rm_plugin.policies.registry import POLICIES, make_policy
from themis.apps import JobShape
from themis.errors import InputError


def check_gang(policy: str, app: str, job_id: str, shape: JobShape) -> None:
    """Raise InputError if the policy gives each job one device and the smallest gang of this job has more.

    Args:
        policy: Its name.
        app: The app's name, for the message.
        job_id: The job's id, for the message.
        shape: The job's tasks.
    """
    if shape.demand_min_gpus <= 1 or traits_of(make_policy(policy)).gangs:
        return
    others = [name for name in POLICIES if traits_of(make_policy(name)).gangs]
    raise InputError(
        f"policy {policy} gives each job one device, and job {job_id} of app {app} needs more",
        value=f"at least {shape.demand_min_gpus} GPUs",
        remedy=f"let it run as one task (min_tasks: 1, one GPU a task), or choose another policy: {', '.join(others)}",
    )
