"""Jobs run at their speed on the device type, times S by level."""

import pytest

from themis.apps import JobShape, Slowdown
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.errors import InputError
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

FREE = Costs(checkpoint_s=0.0, restore_s=0.0, container_s=0.0)
K80, V100 = DeviceType(name="k80"), DeviceType(name="v100", speed=3.0)
CPU = DeviceType(name="cpu", kind=DeviceKind.CPU)


def cluster(*types):
    machines = [
        Machine(machine_id=f"m{place}", rack_id="r", slots=(1,) * gpus, device=device.name)
        for place, (device, gpus) in enumerate(types)
    ]
    return Cluster(name="c", machines=tuple(machines), devices={device.name: device for device, _ in types})


def completion_s(here, policy="srtf", gpus=1, **speeds):
    job = JobTrace(
        job_id="j",
        iterations_total=300,
        serial_iteration_s=1.0,
        slowdown=Slowdown(1.0, 1.5, 2.0, 2.0),
        shape=JobShape(tasks=gpus, min_tasks=gpus),
        speed_by_device=speeds,
    )
    workload = Workload(name="w", apps=(AppTrace(name="a", arrival_s=0.0, jobs=(job,)),))
    record = Simulation(workload, Settings(cluster=here, policy=policy, seed=0, costs=FREE)).run()
    return record.apps[0].completion_s


@pytest.mark.parametrize("policy", ["srtf", "themis"])
def test_a_job_takes_its_work_divided_by_its_speed(policy):
    assert completion_s(cluster((K80, 1)), policy) == pytest.approx(300.0)
    assert completion_s(cluster((V100, 1)), policy) == pytest.approx(100.0)
    assert completion_s(cluster((K80, 1), (V100, 1)), policy) == pytest.approx(100.0)
    assert completion_s(cluster((K80, 1), (V100, 1)), policy, v100=0.5) == pytest.approx(300.0)
    assert completion_s(cluster((V100, 1), (CPU, 1)), policy, cpu=6.0) == pytest.approx(50.0)


@pytest.mark.parametrize("policy", ["srtf", "themis"])
def test_speed_and_slowdown_multiply(policy):
    # Two GPUs in two slots: S = 1.5.
    assert completion_s(cluster((V100, 2)), policy, gpus=2) == pytest.approx(300.0 / (2 * 3.0) * 1.5)


def test_rho_counts_the_cluster_at_the_jobs_own_speeds():
    job = JobTrace(job_id="j", iterations_total=300, serial_iteration_s=1.0, slowdown=Slowdown(1.0, 1.0, 1.0, 1.0))
    workload = Workload(name="w", apps=(AppTrace(name="a", arrival_s=0.0, jobs=(job,)),))
    here = cluster((K80, 4), (V100, 1))
    (app,) = Simulation(workload, Settings(cluster=here, policy="themis", seed=0, costs=FREE)).run().apps
    # One GPU is all it can use, and the best one takes 100 s.
    assert app.rho["themis"] == pytest.approx(1.0)


def test_a_job_that_no_type_can_run_is_refused():
    with pytest.raises(InputError, match="can run on no device type of cluster c; give its speed"):
        completion_s(cluster((CPU, 2)))


def test_a_gang_that_no_single_type_can_hold_is_refused():
    with pytest.raises(InputError, match="can never run on cluster c"):
        completion_s(cluster((K80, 2), (V100, 2)), gpus=3)
