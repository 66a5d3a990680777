"""Cluster files, and the clusters that ship."""

from collections import Counter
from pathlib import Path

import pytest

from themis.cluster import Level
from themis.config.cluster_file import ClusterFile, build_cluster, load_cluster
from themis.config.loader import fit, parse_yaml
from themis.errors import InputError, UnknownNameError

SHIPPED = Path(__file__).resolve().parents[4] / "conf" / "clusters"
DEVICES = "devices: {gpu: {}}\n"
MACHINES = "machines: [{prefix: m, slots: [1], racks: [a]}]\n"


def build(text):
    return build_cluster(fit(ClusterFile, parse_yaml(text, "c.yaml"), "c.yaml"), "c.yaml")


def test_groups_are_numbered_and_dealt_over_racks_in_turn():
    cluster = build(f"name: c\n{DEVICES}machines: [{{prefix: m, count: 3, slots: [2, 1], racks: [a, b]}}]")
    assert [(machine.machine_id, machine.rack_id) for machine in cluster.machines] == [
        ("m00", "a"),
        ("m01", "b"),
        ("m02", "a"),
    ]
    assert {machine.slots for machine in cluster.machines} == {(2, 1)}
    assert cluster.devices["gpu"].speed == 1.0


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (f"name: c\n{DEVICES}machines: []", "machines"),
        (f"name: c\n{DEVICES}machines: [{{prefix: m, slots: [], racks: [a]}}]", r"machines\[0\].slots"),
        (f"name: c\n{DEVICES}machines: [{{prefix: m, slots: [0], racks: [a]}}]", "at least one GPU"),
        (f"name: c\n{DEVICES}machines: [{{prefix: m, slots: [1], racks: []}}]", r"machines\[0\].racks"),
        (f"name: c\n{DEVICES}machines: [{{prefix: '', slots: [1], racks: [a]}}]", r"machines\[0\].prefix"),
        (f"name: c\n{DEVICES}machines: [{{prefix: m, count: 0, slots: [1], racks: [a]}}]", r"machines\[0\].count"),
        (f"name: c\n{DEVICES}machines: [{{prefix: m, slot: [1], racks: [a]}}]", "did you mean 'slots'"),
        *[
            (f"name: c\ndevices: {{gpu: {{speed: {speed}}}}}\n{MACHINES}", "devices.gpu.speed")
            for speed in ("0", "-1", ".nan", ".inf")
        ],
        ("name: c\ndevices: {cpu: {kind: cpu}}\nmachines: [{prefix: m, slots: [2], racks: [a], device: cpu}]",
         "is leased as one device"),
        (f"name: c\n{DEVICES}machines: [{{prefix: m, slots: [1], racks: [a]}}, {{prefix: m, slots: [1], racks: [a]}}]",
         "share one id"),
    ],
)  # fmt: skip
def test_invalid_files_are_refused(text, match):
    with pytest.raises(InputError, match=match):
        build(text)


def test_an_unknown_device_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'gpu'"):
        build(f"name: c\n{DEVICES}machines: [{{prefix: m, slots: [1], racks: [a], device: gpus}}]")


def test_the_testbed_is_the_papers():
    cluster = load_cluster(SHIPPED / "testbed-64.yaml")
    assert cluster.gpus == 64
    assert Counter(machine.gpus for machine in cluster.machines) == {2: 8, 4: 12}
    assert len(cluster.racks) == 3
    assert {machine.slots for machine in cluster.machines} == {(2,), (2, 2)}
    assert all(cluster.devices[machine.device].emulated for machine in cluster.machines)
    assert [cluster.nearest_level_for(gpus) for gpus in (1, 2, 3, 4, 5)] == [
        Level.SLOT,
        Level.SLOT,
        Level.MACHINE,
        Level.MACHINE,
        Level.RACK,
    ]


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_cluster_that_ships_loads_under_its_own_name(path):
    assert load_cluster(path).name == path.stem
