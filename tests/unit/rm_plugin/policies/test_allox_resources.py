"""Memory and cores in AlloX' dominant share: what machines declare, what jobs request, what samples measured."""

from msgspec.structs import replace
from oef_round_cases import CLUSTER, demand, round_of

from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.allox_policy import AlloxMemory
from rm_plugin.policies.oef.profiling import Profile, ProfileState
from rm_plugin.policies.registry import make_policy
from themis.apps import AppSpec, Estimate, JobSpec, ProgramSpec, TaskResources, TunerSpec
from themis.bids import SampleTimes
from themis.cluster import DeviceKind
from themis_lab.simulator.observer import History
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workloads.mix import from_specs


def value(memory_mb=0, vcores=1, machine_mb=1024, cpus=8, memory=None, cluster=CLUSTER):
    """What one job adds to its user's progress on 4 K80 and 4 V100, two machines."""
    machines = tuple(replace(machine, memory_mb=machine_mb, cpus=cpus) for machine in cluster.machines)
    jobs = {"a": [demand(2.0, job="j", gpus=1, work_left_gpu_s=100.0)]}
    frame = round_of(jobs, alpha=1.0, memory=memory, profiling_runs=memory is not None)
    apps = tuple(replace(app, resources=TaskResources(memory_mb=memory_mb, vcores=vcores)) for app in frame.apps)
    frame = replace(frame, apps=apps, cluster=replace(cluster, machines=machines))
    return make_policy("allox").decide(frame).memory.running["a"]["j"].value


def test_job_that_requests_little_counts_by_its_device():
    assert value(memory_mb=64) == 1 / 4


def test_job_that_requests_half_of_all_memory_counts_by_that():
    assert value(memory_mb=1024) == 1 / 2


def test_memory_counts_only_if_every_machine_declares_it():
    assert value(memory_mb=1024, machine_mb=0) == 1 / 4


def test_memory_that_a_sample_was_seen_to_use_counts_instead_of_the_request():
    done = Profile(state=ProfileState.DONE, types=("k80", "v100"), rates=(1.0, 2.0), job_id="j")
    sample = SampleTimes(device="v100", work_gpu_s=(1.0, 2.0), seconds=(0.5, 1.0), memory_mb=1536.0)
    assert value(memory_mb=1024, memory=AlloxMemory(profiles={"a": done}, samples={"a": (sample,)})) == 3 / 4


def test_job_that_requests_half_of_all_cores_counts_by_that():
    assert value(vcores=8) == 1 / 2


def test_machines_with_fewer_cores_than_gpus_have_not_declared_them():
    assert value(vcores=3, cpus=3) == 1 / 4


def test_cores_of_a_cpu_node_are_in_its_unit():
    nodes = {name: replace(device, kind=DeviceKind.CPU) for name, device in CLUSTER.devices.items()}
    assert value(vcores=8, cluster=replace(CLUSTER, devices=nodes)) == 1 / 4


def test_dominant_share_of_a_mix_is_the_same_in_the_simulator():
    """A simulated app has the resources of its group file. Without a run of another job the policy sees the same."""
    resources = TaskResources(memory_mb=1024, vcores=2)
    spec = AppSpec(
        name="a",
        user="u",
        program=ProgramSpec(name="digits"),
        tuner=TunerSpec(name="single"),
        jobs=(JobSpec(job_id="j", iterations_total=100),),
        resources=resources,
        estimate=Estimate(serial_iteration_s=1.0),
    )
    machines = tuple(replace(machine, memory_mb=1024, cpus=8) for machine in CLUSTER.machines)
    history = History()
    settings = Settings(cluster=replace(CLUSTER, machines=machines), policy="allox", rounds=RoundSettings(alpha=1.0))
    Simulation(from_specs(arrivals=[(0.0, spec)], name="mix", time_scale=1.0, seed=1), settings, observer=history).run()
    (running,) = history.results[0].decision.memory.running.values()
    assert [job.value for job in running.values()] == [1 / 2]
