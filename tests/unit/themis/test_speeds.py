"""`themis.speeds`: the speed of a job on a device type, and the speeds that policies see."""

import math

import pytest

from themis.apps import JobSpec
from themis.cluster import Allocation, Cluster, DeviceKind, DeviceType, Machine
from themis.errors import InputError
from themis.speeds import NOWHERE, SAME_SPEED, Speeds, speed_on, speeds_in

V100 = DeviceType(name="v100", speed=3.0)
CPU = DeviceType(name="cpu", kind=DeviceKind.CPU, speed=0.5)


def job(**speeds):
    return JobSpec(job_id="j", iterations_total=1, speed_by_device=speeds)


def cluster(*types):
    machines = [Machine(machine_id=f"m{n}", rack_id="r", slots=(2,), device=each.name) for n, each in enumerate(types)]
    return Cluster(name="c", machines=tuple(machines), devices={each.name: each for each in types})


def test_a_jobs_own_speed_counts_before_the_types():
    assert speed_on(job(), V100) == 3.0
    assert speed_on(job(v100=4.5), V100) == 4.5


def test_a_job_without_its_own_speed_cannot_run_on_a_cpu_node():
    assert speed_on(job(), CPU) == 0.0
    assert speed_on(job(cpu=0.2), CPU) == 0.2


def test_speeds_are_fastest_first_without_types_that_cannot_run_the_job():
    k80 = DeviceType(name="k80")
    assert speeds_in(job(), cluster(k80, CPU, V100)) == Speeds((("v100", 3.0), ("k80", 1.0)))
    assert speeds_in(job(cpu=0.2), cluster(k80, CPU)) == Speeds((("k80", 1.0), ("cpu", 0.2)))


def test_a_cluster_where_every_type_has_speed_1_needs_no_speeds():
    assert speeds_in(job(), cluster(DeviceType(name="a"), DeviceType(name="b"))) is SAME_SPEED
    assert SAME_SPEED.on("any") == 1.0


def test_a_job_without_its_device_types_has_no_speed():
    assert speeds_in(job(), cluster(CPU)) is NOWHERE
    assert NOWHERE.on("cpu") == 0.0


def test_a_cluster_of_cpu_nodes_names_types_as_a_cluster_of_several_does():
    assert cluster(CPU).has_types
    assert cluster(V100, CPU).has_types
    assert not cluster(V100, V100).has_types


def test_a_type_that_is_absent_cannot_run_the_job():
    assert Speeds.of([("a", 2.0), ("b", 0.0)]).on("b") == 0.0
    assert Speeds.of([("a", 2.0)]).only("a") == Speeds((("a", 2.0),))


def test_a_cluster_counts_devices_by_type_and_in_reference_units():
    mixed = cluster(DeviceType(name="k80"), V100, V100.__class__(name="idle", speed=9.0))
    assert mixed.gpus_by_device == {"k80": 2, "v100": 2, "idle": 2}
    assert mixed.reference_gpus == 2 * (1.0 + 3.0 + 9.0)
    assert mixed.device_of(Allocation((("m1", 1),))) == "v100"
    with pytest.raises(InputError, match="one device type"):
        mixed.device_of(Allocation((("m0", 1), ("m1", 1))))


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan, math.inf, 1e-10, 1e10])
def test_an_unusable_speed_is_refused(speed):
    with pytest.raises(InputError, match="speed"):
        DeviceType(name="gpu", speed=speed)
    with pytest.raises(InputError, match="speed"):
        job(gpu=speed)


def test_devices_are_gpus_unless_some_are_cpu_nodes():
    assert cluster(V100).device_noun == cluster(V100, DeviceType(name="k80")).device_noun == "GPU"
    assert cluster(V100, CPU).device_noun == "device"
