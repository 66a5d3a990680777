"""Extensions of the gangs that an app keeps: by hand."""

from agent_cases import FLAT, app_of, cluster_of, held, job

from am.agent.candidates.gang_extension import gang_extensions
from am.agent.model.views import GangAt
from themis.apps import JobShape, Slowdown
from themis.cluster import Allocation, Level
from themis.placement.gang_capacity import GangCapacity

FAST_IN_RACK = Slowdown(1.0, 1.0, 1.1, 4.0)
"""A second GPU pays in the rack, but not elsewhere."""


def capacity_of(cluster, free):
    """Free GPUs by machine, each in a slot of its own."""
    slots = {machine: (1,) * count for machine, count in free.items()}
    return GangCapacity(free, slots, cluster.rack_of)


def test_the_example_of_the_docstring():
    cluster = cluster_of((4,), (4,))
    shape, slowdown = JobShape(tasks=4), Slowdown(1.0, 1.2, 2.0, 4.0)
    app = app_of([job("j", 1000.0, shape, slowdown)], held=(held("j", {"m0": 2}),))
    found = gang_extensions(app, capacity_of(cluster, {"m0": 1, "m1": 2}))
    assert [(extension.gangs[0].gpus, extension.gangs[0].level) for extension in found] == [
        (2, Level.MACHINE),
        (4, Level.RACK),
        (3, Level.MACHINE),
    ]
    assert found[2].pinned == (Allocation.of({"m0": 1}),)


def test_gangs_of_jobs_of_equal_work_are_in_the_order_of_job_ids():
    jobs = [job(name, 1000.0, JobShape(tasks=2), FLAT) for name in ("a", "b")]
    gangs = held("a", {"m0": 2}), held("b", {"m1": 1})
    for some in (gangs, gangs[::-1]):
        first = gang_extensions(app_of(jobs, held=some), capacity_of(cluster_of((2,), (2,)), {}))[0]
        assert first.gangs == (GangAt(2, Level.MACHINE), GangAt(1, Level.MACHINE))


def test_of_many_choices_in_the_rack_those_of_the_smallest_machine_ids_are_tried():
    """Seven machines with one free GPU each have more choices than are tried. An eighth is in another rack."""
    cluster = cluster_of(*[(2,)] * 9, racks=(*["r0"] * 8, "r1"))
    app = app_of([job("j", 1000.0, JobShape(tasks=2), FAST_IN_RACK)], held=(held("j", {"m0": 1}),))
    machines = [f"m{place}" for place in range(1, 9)]
    for order in (machines, machines[::-1]):
        found = gang_extensions(app, capacity_of(cluster, dict.fromkeys(order, 1)))
        assert [extension.pinned for extension in found if extension.pinned] == [(Allocation.of({"m1": 1}),)]
