"""Small clusters, apps and runs for the tests of the simulator."""

from rm_plugin.arbiter.core import LeasePolicy
from themis.apps import JobShape, Slowdown, TunerSpec
from themis.cluster import Cluster, Machine
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, LossCurve, Workload

FLAT = Slowdown(1.0, 1.0, 1.0, 1.0)
FAR = Slowdown(1.0, 1.0, 2.0, 4.0)
COSTS = Costs(checkpoint_s=5.0, restore_s=5.0, container_s=30.0, checkpoint_every_s=100.0)
FREE = Costs(checkpoint_s=0.0, restore_s=0.0, container_s=0.0)


def cluster(*machines, racks=("r0",)):
    """A machine for each tuple of slots, dealt over the racks."""
    return Cluster(
        name="small",
        machines=tuple(
            Machine(machine_id=f"m{place}", rack_id=racks[place % len(racks)], slots=slots)
            for place, slots in enumerate(machines)
        ),
    )


def job(name="j0", iterations=1000, serial_s=1.0, gpus=1, least=None, slowdown=FLAT, floor=0.0):
    return JobTrace(
        job_id=name,
        iterations_total=iterations,
        serial_iteration_s=serial_s,
        slowdown=slowdown,
        shape=JobShape(tasks=gpus, min_tasks=least or gpus),
        curve=LossCurve(floor=floor),
    )


def app(name, *jobs, at_s=0.0, tuner=None):
    return AppTrace(name=name, arrival_s=at_s, jobs=jobs or (job(),), tuner=tuner or TunerSpec(name="single"))


def workload(*apps):
    return Workload(name="hand-made", apps=tuple(sorted(apps, key=lambda each: each.arrival_s)))


def settings(on, costs=COSTS, lease_s=600.0, **others):
    leases = others.pop("leases", LeasePolicy(duration_s=lease_s, checkpoint_lead_s=costs.checkpoint_s))
    return Settings(cluster=on, costs=costs, leases=leases, **others)


def run(on, *apps, make_agent=None, **others):
    """The record of a run."""
    return Simulation(workload(*apps), settings(on, **others), make_agent).run()
