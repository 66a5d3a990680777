"""Node reports of YARN as machines."""

import asyncio

import pytest
from msgspec.structs import replace

from rm_plugin.engines.inventory import NodeState
from rm_plugin.engines.yarn_inventory import YarnInventory, refuse_cpu_nodes
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.errors import InputError
from themis.hadoop.values import NodeReport
from themis.hadoop.values import NodeState as YarnState


class FakeYarn:
    def __init__(self, *reports):
        self.reports = reports

    def nodes(self, states):
        assert set(states) == set(YarnState)
        return self.reports


def report(host="n1", state=YarnState.RUNNING, gpus=4, port=45454, **more):
    values = {"rack": "/r1", "used_gpus": 1, "memory_mb": 2048, "used_memory_mb": 0, "vcores": 8, **more}
    return NodeReport(
        node_id=f"{host}:{port}", host=host, state=state, gpus=gpus, http_address=f"{host}:8042", **values
    )


def inventory(yarn, overlay=None):
    return YarnInventory(yarn, DeviceType(name="gpu", emulated=True), overlay)


def nodes(one):
    return {node.machine.machine_id: node for node in asyncio.run(one.read()).nodes}


def test_node_becomes_machine_with_values_of_its_report():
    (node,) = nodes(inventory(FakeYarn(report()))).values()
    assert node.machine == Machine(machine_id="n1", rack_id="/r1", slots=(4,), device="gpu", cpus=8, memory_mb=2048)
    assert (node.state, node.used_gpus, node.reason) == (NodeState.USABLE, 1, "")


@pytest.mark.parametrize(
    ("yarn", "ours"),
    [
        (YarnState.RUNNING, NodeState.USABLE),
        (YarnState.DECOMMISSIONING, NodeState.DRAINING),
        (YarnState.UNHEALTHY, NodeState.LOST),
        (YarnState.LOST, NodeState.LOST),
        (YarnState.DECOMMISSIONED, NodeState.LOST),
        (YarnState.SHUTDOWN, NodeState.LOST),
        (YarnState.REBOOTED, NodeState.LOST),
    ],
)
def test_node_states_map_to_machine_states(yarn, ours):
    node = nodes(inventory(FakeYarn(report(state=yarn, health="bad disk"))))["n1"]
    assert node.state is ours
    assert (node.reason == "") == (ours is NodeState.USABLE)


def test_registering_node_is_not_listed():
    """As after a restart of YARN's ResourceManager, while the node's tasks continue."""
    yarn = FakeYarn(report(), report("n2", state=YarnState.NEW))
    one = inventory(yarn)
    assert nodes(one).keys() == {"n1"}
    assert one.web_addresses({"n1", "n2"}) == ("n1:8042",)
    yarn.reports = (report(port=1, state=YarnState.LOST), report(port=2, state=YarnState.NEW))
    assert nodes(one)["n1"].state is NodeState.LOST
    assert one.web_addresses({"n1"}) == ()


@pytest.mark.parametrize("reports", [(), (report(state=YarnState.NEW),)])
def test_node_not_reported_lost_is_asked_for_its_containers(reports):
    yarn = FakeYarn(report())
    one = inventory(yarn)
    nodes(one)
    yarn.reports = reports
    assert nodes(one) == {}
    assert one.web_addresses({"n1"}) == ("n1:8042",)


def test_node_without_gpus_is_ignored():
    assert nodes(inventory(FakeYarn(report(gpus=0), report("n2")))).keys() == {"n2"}


def test_decommissioning_node_keeps_its_gpus():
    """YARN reports fewer and fewer of its resources."""
    yarn = FakeYarn(report(gpus=4))
    one = inventory(yarn)
    nodes(one)
    yarn.reports = (report(gpus=0, state=YarnState.DECOMMISSIONING),)
    assert (nodes(one)["n1"].machine.gpus, nodes(one)["n1"].state) == (4, NodeState.DRAINING)
    yarn.reports = (report(gpus=2),)
    assert nodes(one)["n1"].machine.gpus == 2


def test_running_report_wins_over_other_report_of_same_host():
    both = (report(port=1, state=YarnState.LOST, gpus=2), report(port=2))
    assert nodes(inventory(FakeYarn(*both)))["n1"].machine.gpus == 4
    assert nodes(inventory(FakeYarn(*reversed(both))))["n1"].state is NodeState.USABLE


def test_overlay_sets_slots_and_racks_if_gpus_agree(caplog):
    known = Machine(machine_id="n1", rack_id="mine", slots=(2, 2), device="v100")
    overlay = Cluster(name="o", machines=(known,), devices={"v100": DeviceType(name="v100")})
    assert nodes(inventory(FakeYarn(report()), overlay))["n1"].machine == known
    assert caplog.text == ""
    one = inventory(FakeYarn(report(gpus=3)), overlay)
    assert nodes(one)["n1"].machine.slots == nodes(one)["n1"].machine.slots == (3,)
    assert caplog.text.count("n1 has 4 GPUs in the cluster file and 3 in YARN") == 1


def test_lost_node_is_not_asked_for_containers():
    yarn = FakeYarn(report(), report("n2"))
    one = inventory(yarn)
    nodes(one)
    assert one.web_addresses({"n2", "n1", "n7"}) == ("n1:8042", "n2:8042")
    yarn.reports = (report(state=YarnState.LOST), report("n2"))
    nodes(one)
    assert one.web_addresses({"n2", "n1"}) == ("n2:8042",)


def test_cpu_nodes_of_an_overlay_are_refused():
    cpu = DeviceType(name="cpu", kind=DeviceKind.CPU)
    node = Machine(machine_id="n1", rack_id="r", slots=(1,), device="cpu")
    refuse_cpu_nodes(None)
    refuse_cpu_nodes(Cluster(name="o", machines=(replace(node, device="gpu"),), devices={"cpu": cpu}))
    with pytest.raises(InputError, match="the engine yarn does not support CPU nodes yet: 'cpu'; leave machines"):
        refuse_cpu_nodes(Cluster(name="o", machines=(node,), devices={"cpu": cpu}))
