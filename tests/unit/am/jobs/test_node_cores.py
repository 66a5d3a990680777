"""Cores of CPU nodes on a machine that emulates several."""

import pytest

from am.jobs.node_cores import assigned_cores, device_of, node_cores
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine


def cluster(*cpus, kind=DeviceKind.CPU):
    machines = [Machine(machine_id="g0", rack_id="r", slots=(2,), device="gpu", cpus=9)]
    machines += [
        Machine(machine_id=f"c{number}", rack_id="r", slots=(1,), device="cpu", cpus=count)
        for number, count in enumerate(cpus)
    ]
    devices = {"gpu": DeviceType(name="gpu", emulated=True), "cpu": DeviceType(name="cpu", kind=kind)}
    return Cluster(name="c", machines=tuple(machines), devices=devices)


def test_cpu_node_has_the_cores_that_it_declares():
    assert [node_cores(cluster(3, 1), name) for name in ("g0", "c0", "c1")] == [0, 3, 1]


def test_cpu_nodes_have_cores_of_their_own_while_these_last():
    assert [assigned_cores(cluster(2, 1, 3), f"c{number}", (4, 5, 6, 7, 8, 9)) for number in range(3)] == [
        (4, 5), (6,), (7, 8, 9),
    ]  # fmt: skip


@pytest.mark.parametrize(("cpus", "wanted"), [((2, 2, 2), [(0, 1), (2, 3), (0, 1)]), ((3, 3), [(0, 1, 2), (0, 1, 3)])])
def test_more_nodes_than_cores_share_them_in_turn(cpus, wanted):
    assert [assigned_cores(cluster(*cpus), f"c{number}", range(4)) for number in range(len(cpus))] == wanted


def test_node_larger_than_the_machine_has_all_of_its_cores():
    assert assigned_cores(cluster(8), "c0", (2, 3)) == (2, 3)


def test_machine_with_gpus_and_engine_with_cores_of_its_own_assign_none():
    assert assigned_cores(cluster(2), "g0", range(8)) == ()
    assert assigned_cores(cluster(2, kind=DeviceKind.GPU), "c0", range(8)) == ()
    assert assigned_cores(cluster(2), "c0", ()) == ()


def test_type_that_the_cluster_does_not_describe_is_one_of_gpus_without_a_card():
    undescribed = Cluster(name="c", machines=(Machine(machine_id="g0", rack_id="r", slots=(2,), cpus=9),))
    assert (device_of(undescribed, "g0").is_gpu, device_of(undescribed, "g0").emulated) == (True, True)
    assert node_cores(undescribed, "g0") == 0
