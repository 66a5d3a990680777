"""Check a submitted app before it is accepted. Clients may send anything: not every client is ours."""

from __future__ import annotations

from themis.apps import AppSpec, JobSpec
from themis.checkpoint_uri import check_checkpoint_uri
from themis.cluster import Cluster
from themis.config.app_limits import MAX_VALUES, check_few, check_limits
from themis.config.group_file import INT32_MAX, MAX_TASKS
from themis.config.names import check_app_name, check_job_id, check_label, check_queue_name
from themis.config.search_space import MAX_JOBS
from themis.errors import FoundErrors, InputError, UnknownNameError
from themis.speeds import speed_on

_SOURCE = "the app submitted"
_MAX_NUMBER = 1e9


def check_app(spec: AppSpec, cluster: Cluster) -> None:
    """Raise InputError if an app is invalid or could never run on this cluster.

    Every text, list and number of an `AppSpec` has a limit, since it is stored, shown and sent to the app master.
    """
    found = FoundErrors()
    run = found.run
    run(check_app_name, spec.name, _SOURCE)
    run(check_label, spec.user, "user", _SOURCE)
    run(check_queue_name, spec.queue, "queue", _SOURCE)
    run(_check_count, "priority", spec.priority, least=-1000, most=1000)
    run(check_label, spec.tuner.name, "tuner", _SOURCE)
    if spec.program.name:
        run(check_label, spec.program.name, "program", _SOURCE)
    run(check_limits, spec, _SOURCE)
    run(_check_jobs, spec, cluster)
    if len(spec.checkpoint_uri) > MAX_VALUES:
        found.add(InputError(f"{_SOURCE}: checkpoint_uri is too long", value=len(spec.checkpoint_uri)))
    else:
        run(check_checkpoint_uri, spec.checkpoint_uri)
    run(_check_count, "resources.memory_mb", spec.resources.memory_mb)
    run(_check_count, "resources.vcores", spec.resources.vcores)
    run(_check_count, "checkpoint_every", spec.checkpoint_every)
    run(_check_count, "keep_checkpoints", spec.keep_checkpoints)
    run(_check_count, "max_task_restarts", spec.max_task_restarts, least=0)
    run(_check_number, "job.peer_wait_s", spec.peer_wait_s)
    if spec.max_runtime_s:
        run(_check_number, "job.max_runtime_s", spec.max_runtime_s)
    run(_check_count, "job.max_iterations", spec.max_iterations, least=0, most=2**53)
    if spec.estimate.serial_iteration_s is not None:
        run(_check_number, "estimate.serial_iteration_s", spec.estimate.serial_iteration_s)
    if spec.estimate.slowdown is not None:
        run(_check_number, "estimate.slowdown", spec.estimate.slowdown.cluster)
    found.raise_all()


def _check_jobs(spec: AppSpec, cluster: Cluster) -> None:
    """Up to the first job with an error: the jobs of a search usually share it."""
    check_few("jobs", spec.jobs, _SOURCE, MAX_JOBS)
    for job in spec.jobs:
        check_job_id(job.job_id)
        _check_job(job)
        _check_fits(job, cluster)


def _check_job(job: JobSpec) -> None:
    found = FoundErrors()
    found.run(_check_count, f"job {job.job_id}: tasks", job.shape.tasks, most=MAX_TASKS)
    # So that iterations times seconds stay exact in sums.
    found.run(_check_count, f"job {job.job_id}: iterations", job.iterations_total, most=2**53)
    found.run(check_few, "devices", job.speed_by_device, _SOURCE)
    for device, speed in job.speed_by_device.items():
        found.run(check_label, device, "device", _SOURCE)
        found.run(_check_number, f"job {job.job_id}: speed on {device}", speed)
    found.raise_all()


def types_that_run(spec: AppSpec, cluster: Cluster) -> str:
    """The device types that can run every job of an app, with its speeds, as text. Empty on a cluster of one type.

    A type runs a job if it has enough devices for the job's smallest gang. Example: runs on v100 (speed 3), cpu (speed
    0.2), not on k80.
    """
    if not cluster.has_types:
        return ""
    speeds = {
        device.name: [
            speed_on(job, device) if _tasks_that_fit(job, cluster, device.name) >= job.shape.min_tasks else 0.0
            for job in spec.jobs
        ]
        for device in cluster.present_devices
    }
    able = {name: on_type for name, on_type in speeds.items() if all(on_type)}
    parts = [
        f"{name} (speed {min(on_type):g}{f' to {max(on_type):g}' if max(on_type) > min(on_type) else ''})"
        for name, on_type in sorted(able.items(), key=lambda entry: -max(entry[1]))
    ]
    others = [name for name in speeds if name not in able]
    text = f"runs on {', '.join(parts)}" if parts else "no device type runs every job of it"
    return f"{text}, not on {', '.join(others)}" if parts and others else text


def _check_count(what: str, value: int, *, least: int = 1, most: int = INT32_MAX) -> None:
    if not least <= value <= most:
        raise InputError(f"{_SOURCE}: {what} must be from {least} to {most}", value=value)


def _check_number(what: str, value: float) -> None:
    if not 0.0 < value <= _MAX_NUMBER:
        raise InputError(f"{_SOURCE}: {what} must be a number above 0, at most {_MAX_NUMBER:g}", value=value)


def check_device_types(job: JobSpec, cluster: Cluster) -> None:
    """Raise InputError if a job states its speed on a device type that the cluster does not have."""
    present = cluster.gpus_by_device
    for name in job.speed_by_device:
        if name not in present and name in cluster.devices:
            remedy = f"leave it out, or name one of: {', '.join(present)}"
            what = f"estimate.speed of job {job.job_id}: no machine of {cluster.name} has this type"
            raise InputError(what, value=name, remedy=remedy)
        if name not in present:
            raise UnknownNameError(f"device type in estimate.speed of job {job.job_id}", name, present)


def _check_fits(job: JobSpec, cluster: Cluster) -> None:
    check_device_types(job, cluster)
    present = cluster.gpus_by_device
    types = {device.name for device in cluster.present_devices if speed_on(job, device)}
    if not types and present:
        remedy = f"give its speed on one of them in estimate.speed: {', '.join(present)}"
        raise InputError(f"job {job.job_id} can run on no device type of {cluster.name}", remedy=remedy)
    # A gang has one device type: the one that holds most tasks must hold them all.
    if any(_tasks_that_fit(job, cluster, name) >= job.shape.tasks for name in types):
        return
    sizes = cluster.machine_sizes
    largest = max(sorted(types), key=lambda name: (_tasks_that_fit(job, cluster, name), max(sizes[name])), default="")
    part = cluster.of_type(largest)
    if len(part.machines) == len(cluster.machines):
        _check_shape(job, cluster, f"the cluster {cluster.name} of {cluster.gpus} {cluster.device_noun}s")
    else:
        place = f"the {part.gpus} {part.device_noun}s of type {largest} in the cluster {cluster.name}"
        _check_shape(job, part, place)


def _tasks_that_fit(job: JobSpec, cluster: Cluster, device: str) -> int:
    """Tasks of a job that fit on all machines of a device type."""
    return sum(count * (gpus // job.shape.gpus_per_task) for gpus, count in cluster.machine_sizes[device].items())


def _check_shape(job: JobSpec, cluster: Cluster, place: str) -> None:
    shape, noun = job.shape, cluster.device_noun
    if shape.gpus_per_task > cluster.largest_machine_gpus:
        raise InputError(
            f"job {job.job_id}: no machine of {cluster.name} has enough {noun}s for one task",
            value=shape.gpus_per_task,
            remedy=f"ask for at most {cluster.largest_machine_gpus} {noun}s a task",
        )
    room = sum(_tasks_that_fit(job, cluster, device) for device in cluster.machine_sizes)
    if shape.tasks > room:
        raise InputError(
            f"job {job.job_id} is larger than {place}",
            value=f"{shape.tasks} tasks of {shape.gpus_per_task} {noun}s",
            remedy=f"ask for at most {room} tasks",
        )
