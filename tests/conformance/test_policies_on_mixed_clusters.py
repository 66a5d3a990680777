"""What every policy must do on clusters of several device types: one type a gang, no type that cannot run the job."""

import random
from functools import cache

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT

from rm_plugin.policies.demands import capacity_after, usable_left
from rm_plugin.policies.port import traits_of
from rm_plugin.policies.registry import POLICIES, make_policy
from themis.apps import JobShape
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.speeds import speeds_in
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.observer import History
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

K80, V100 = DeviceType(name="k80"), DeviceType(name="v100", speed=3.0)
CPU = DeviceType(name="cpu", kind=DeviceKind.CPU)


def cluster(*groups):
    """Two machines per group, a (type, slots), on two racks that hold every type."""
    machines = [
        Machine(machine_id=f"{device.name}{number}", rack_id=f"r{number}", slots=slots, device=device.name)
        for device, slots in groups
        for number in range(2)
    ]
    return Cluster(name="mixed", machines=tuple(machines), devices={device.name: device for device, _ in groups})


CLUSTERS = {
    "two types of GPUs": cluster((K80, (2, 2)), (V100, (2,))),
    "GPUs and CPU nodes": cluster((V100, (2, 2)), (CPU, (1,))),
}
MAY_LEAVE_A_TYPE_IDLE = {"best_fit", "drff", "drfs", "equal_share", "equal_share_fcfs"}
"""Policies under which each job waits for its fastest type or GPU, or a user's share stays idle."""

OWN_SPEEDS = ({}, {}, {"cpu": 0.5}, {"cpu": 4.0})


def workload(seed, types, gangs):
    rng = random.Random(seed)
    apps = []
    for place in range(8):
        speeds = {name: speed for name, speed in rng.choice(OWN_SPEEDS).items() if name in types}
        least = rng.choice([1, 1, 1, 2])
        jobs = [
            JobTrace(
                job_id=f"a{place}-j{number}",
                iterations_total=rng.randint(200, 6000),
                serial_iteration_s=1.0,
                slowdown=rng.choice([FLAT, CRUDE_SLOWDOWN]),
                shape=JobShape(tasks=least + rng.randint(0, 2), min_tasks=least if gangs else 1),
                speed_by_device=speeds,
            )
            for number in range(rng.randint(1, 4))
        ]
        apps.append(AppTrace(name=f"a{place}", arrival_s=50.0 * place, jobs=tuple(jobs)))
    return Workload(name="mixed", apps=tuple(apps))


class Story(History):
    """A whole run, all rounds checked."""

    def __init__(self, policy, cluster_name, seed):
        super().__init__()
        self.cluster = CLUSTERS[cluster_name]
        settings = Settings(cluster=self.cluster, policy=policy, seed=seed, costs=Costs())
        self.traits = traits_of(make_policy(policy))
        self.run = Simulation(workload(seed, self.cluster.devices, self.traits.gangs), settings, observer=self)
        self.types_of_jobs = set()
        self.record = self.run.run(watch=self.check_jobs)

    def round_played(self, result):
        super().round_played(result)
        assert not result.refused
        snapshot, decision = result.snapshot, result.decision
        grants = decision.grants()
        # Raises if more is given than is free.
        capacity_after(snapshot.machines, grants)
        for app_id, gangs in grants.items():
            demands = snapshot.reports[app_id].demands
            for gang in gangs:
                device = self.cluster.device_of(gang.gpus)
                assert any(demand.speeds.on(device) > 0.0 for demand in demands)
        if self.traits.work_conserving:
            assert usable_left(snapshot.machines, decision) == 0

    def check_jobs(self, run):
        run.arbiter.validate()
        for app in run.apps.values():
            for job in app.jobs.values():
                if job.gpus:
                    (device,) = {self.cluster.machine(gpu.machine_id).device for gpu in job.gpus}
                    assert job.speeds.on(device) > 0.0
                    self.types_of_jobs.add(device)


@cache
def story(policy, cluster_name):
    return Story(policy, cluster_name, seed=1)


@pytest.mark.parametrize("cluster_name", CLUSTERS)
@pytest.mark.parametrize("policy", sorted(POLICIES))
class TestMixedClusters:
    def test_gangs_have_one_type_that_can_run_the_job_and_nothing_usable_is_idle(self, policy, cluster_name):
        reported = story(policy, cluster_name)
        assert reported.record.counts.violations == []
        if policy in MAY_LEAVE_A_TYPE_IDLE:
            assert "v100" in reported.types_of_jobs
        else:
            assert reported.types_of_jobs == set(reported.cluster.devices)

    def test_no_app_ends_before_its_work_is_done_at_the_highest_speed(self, policy, cluster_name):
        reported = story(policy, cluster_name)
        for app, trace in zip(reported.record.apps, reported.run.workload.apps, strict=True):
            speeds = [speed for job in trace.jobs for _, speed in speeds_in(job.spec, reported.cluster).by_type]
            assert app.gpu_time_s * max(speeds) >= sum(job.work_gpu_s for job in trace.jobs) * (1 - 1e-9)
