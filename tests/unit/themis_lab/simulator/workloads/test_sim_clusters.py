"""Clusters by name, by text and from a file."""

import pytest
from documents import ROOT

from themis.config.cluster_file import load_cluster
from themis.errors import InputError, UnknownNameError
from themis_lab.simulator.clusters import CLUSTERS, MACHINES_A_RACK, cluster_named


@pytest.mark.parametrize(
    ("name", "gpus", "machines"),
    [("testbed", 64, 20), ("paper-168", 168, 38), ("paper-256", 256, 49), ("fig18", 64, 29), ("two-8", 16, 2)],
)
def test_known_clusters(name, gpus, machines):
    cluster = cluster_named(name)
    assert (cluster.name, cluster.gpus, len(cluster.machines)) == (name, gpus, machines)
    assert max(len(rack) for rack in cluster.racks.values()) <= MACHINES_A_RACK
    assert {machine.device for machine in cluster.machines} == set(cluster.devices)


def test_every_known_cluster_is_tested():
    assert set(CLUSTERS) == {"testbed", "paper-168", "paper-256", "fig18", "two-8"}


def test_the_paper_s_machines_have_the_paper_s_slots():
    slots = [machine.slots for machine in cluster_named("paper-168").machines]
    assert slots == [(2, 2, 2, 2)] * 16 + [(1, 1, 1, 1)] * 6 + [(1,)] * 16


def test_the_testbed_is_the_one_of_the_cluster_file():
    def racks(cluster):
        return sorted(sorted(machine.slots for machine in rack) for rack in cluster.racks.values())

    assert racks(cluster_named("testbed")) == racks(load_cluster(ROOT / "conf/clusters/testbed-64.yaml"))


def test_a_text():
    cluster = cluster_named("2x8+3x3+1x4/4")
    assert [machine.slots for machine in cluster.machines] == [(2,) * 4] * 2 + [(1,) * 3] * 3 + [(4,)]
    assert cluster.name == "2x8+3x3+1x4/4"


def test_machines_are_dealt_over_racks_in_turn():
    cluster = cluster_named("9x1")
    assert [machine.rack_id for machine in cluster.machines] == ["rack0", "rack1"] * 4 + ["rack0"]


def test_a_file():
    path = ROOT / "conf/clusters/small-8.yaml"
    assert cluster_named(str(path)) == load_cluster(path)


@pytest.mark.parametrize("text", ["2x", "2x8+", "0x8", "2x0", "2x8/3", "2x8/0", "999999x8", "16*8", "16"])
def test_texts_that_do_not_fit(text):
    with pytest.raises(InputError, match=r"; "):
        cluster_named(text)


def test_unknown_names_and_files():
    with pytest.raises(UnknownNameError, match="did you mean 'paper-256'"):
        cluster_named("paper-265")
    with pytest.raises(InputError, match="cannot read"):
        cluster_named("none/such.yaml")
