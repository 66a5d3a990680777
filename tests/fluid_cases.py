"""Whole workloads on the fluid fair cluster."""

from themis.fluid_cluster import FluidCluster


def fluid_lives(gpus, arrivals, sizes=()):
    """The lives of all apps of a workload.

    Args:
        gpus: GPUs at the start.
        arrivals: For each app its id, when it arrives in seconds, and its phases.
        sizes: From when on, in seconds, the cluster has how many GPUs.
    """
    changes = [
        *((at_s, 0, size, ()) for at_s, size in sizes),
        *((at_s, 1, app_id, phases) for app_id, at_s, phases in arrivals),
    ]
    changes.sort(key=lambda change: change[:2])
    cluster = FluidCluster(gpus, changes[0][0] if changes else 0.0)
    for at_s, _, what, phases in changes:
        if isinstance(what, str):
            cluster.arrive(what, phases, at_s)
        else:
            cluster.resize(what, at_s)
    return cluster.run_out()
