"""Small apps, views of a cluster and offers for the tests of the agent."""

from collections import Counter

from am.agent.candidates.search_space import SearchSpace
from am.agent.model.finish_time import even_counts
from am.agent.model.views import AppView, ClusterView, GangAt, HeldGang, JobView
from themis.apps import CRUDE_SLOWDOWN, JobShape, Slowdown
from themis.bids import Offer
from themis.choices import BundleRule
from themis.cluster import Allocation, Cluster, Level, Machine

FLAT = Slowdown(1.0, 1.0, 1.0, 1.0)
STRICT = Slowdown(1.0, 1.2, 2.0, 4.0)
ONE = JobShape()


def machines(*slots, racks=("r0",)):
    """m0, m1, .. with these slots each, dealt over the racks."""
    return tuple(
        Machine(machine_id=f"m{place}", rack_id=racks[place % len(racks)], slots=counts)
        for place, counts in enumerate(slots)
    )


def cluster_of(*slots, racks=("r0",)):
    return Cluster(name="c", machines=machines(*slots, racks=racks))


def job(name="j", work=100.0, shape=ONE, slowdown=FLAT):
    """A job of `work` GPU seconds, in one iteration."""
    return JobView(job_id=name, iterations_left=1, serial_iteration_s=float(work), slowdown=slowdown, shape=shape)


def jobs_of(works, shape=ONE, slowdown=FLAT):
    return tuple(job(f"j{place}", work, shape, slowdown) for place, work in enumerate(works))


def app_of(jobs, **changes):
    fields = {
        "app_id": "app",
        "elapsed_s": 0.0,
        "jobs": tuple(jobs),
        "work_total_gpu_s": sum(each.serial_work_s for each in jobs),
        "demand_max_gpus": sum(each.shape.demand_max_gpus for each in jobs) or 1,
    }
    return AppView(**{**fields, **changes})


def even_gangs(*split):
    """The gangs of `even_counts` one by one, largest first."""
    return tuple(Counter(even_counts(*split)).elements())


def cluster_view_of(cluster=None, **changes):
    gpus = 8 if cluster is None else cluster.gpus
    fitting = () if cluster is None else tuple(cluster.nearest_level_for(size) for size in range(1, gpus + 1))
    fields = {
        "cluster_gpus": gpus,
        "active_apps": 1,
        "lease_s": 600.0,
        "fitting_level": fitting,
        "rack_of": {} if cluster is None else {each.machine_id: each.rack_id for each in cluster.machines},
        "rule": BundleRule.CONTINUATION,
    }
    return ClusterView(**{**fields, **changes})


def offer_of(slots, **changes):
    """An offer of these free GPUs by slot and machine."""
    fields = {
        "round_id": 1,
        "now_s": 0.0,
        "deadline_s": 5.0,
        "lease_s": 600.0,
        "free": Allocation.of({machine: sum(counts) for machine, counts in slots.items()}),
        "slots": slots,
    }
    return Offer(**{**fields, **changes})


def whole_offer(cluster, **changes):
    return offer_of({machine.machine_id: machine.slots for machine in cluster.machines}, **changes)


def held(name, gpus, level=Level.MACHINE, up=None):
    """A gang by machine; `up` the renewable ones, True for all."""
    allocation = Allocation.of(gpus)
    return HeldGang(
        job_id=name, gpus=allocation, level=level, renewable_gpus=allocation if up is True else Allocation.of(up or {})
    )


def at(*sizes, level=Level.SLOT):
    return tuple(GangAt(size, level) for size in sizes)


__all__ = [
    "CRUDE_SLOWDOWN",
    "FLAT",
    "ONE",
    "STRICT",
    "app_of",
    "at",
    "cluster_of",
    "cluster_view_of",
    "held",
    "job",
    "jobs_of",
    "machines",
    "offer_of",
    "whole_offer",
]


def space_of(kinds, max_gangs, max_gpus, jobs, **more):
    """A search space for new gangs."""
    return SearchSpace(kinds=kinds, max_gangs=max_gangs, max_gpus=max_gpus, jobs=jobs, **more)
