"""Node reports of YARN as machines."""

import asyncio

import pytest

from rm_plugin.engines.inventory import NodeState
from rm_plugin.engines.yarn_inventory import YarnInventory
from themis.cluster import Cluster, DeviceType, Machine
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


def test_a_node_is_a_machine_with_what_its_report_tells():
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
def test_states(yarn, ours):
    node = nodes(inventory(FakeYarn(report(state=yarn, health="bad disk"))))["n1"]
    assert node.state is ours
    assert (node.reason == "") == (ours is NodeState.USABLE)


def test_a_node_that_yarn_just_registers_is_not_lost_but_not_mentioned():
    """As after a restart of YARN's ResourceManager: the node's tasks run all the while."""
    yarn = FakeYarn(report(), report("n2", state=YarnState.NEW))
    one = inventory(yarn)
    assert nodes(one).keys() == {"n1"}
    assert one.web_addresses({"n1", "n2"}) == ("n1:8042",)
    yarn.reports = (report(port=1, state=YarnState.LOST), report(port=2, state=YarnState.NEW))
    assert nodes(one)["n1"].state is NodeState.LOST
    assert one.web_addresses({"n1"}) == ()


@pytest.mark.parametrize("reports", [(), (report(state=YarnState.NEW),)])
def test_a_node_of_which_yarn_does_not_say_that_it_is_lost_is_asked_what_runs_on_it(reports):
    yarn = FakeYarn(report())
    one = inventory(yarn)
    nodes(one)
    yarn.reports = reports
    assert nodes(one) == {}
    assert one.web_addresses({"n1"}) == ("n1:8042",)


def test_a_node_without_gpus_is_none_of_ours():
    assert nodes(inventory(FakeYarn(report(gpus=0), report("n2")))).keys() == {"n2"}


def test_a_node_that_is_decommissioned_keeps_the_gpus_that_it_had():
    """YARN tells less and less of its resources."""
    yarn = FakeYarn(report(gpus=4))
    one = inventory(yarn)
    nodes(one)
    yarn.reports = (report(gpus=0, state=YarnState.DECOMMISSIONING),)
    assert (nodes(one)["n1"].machine.gpus, nodes(one)["n1"].state) == (4, NodeState.DRAINING)
    yarn.reports = (report(gpus=2),)
    assert nodes(one)["n1"].machine.gpus == 2


def test_of_two_reports_of_one_host_the_running_one_counts():
    both = (report(port=1, state=YarnState.LOST, gpus=2), report(port=2))
    assert nodes(inventory(FakeYarn(*both)))["n1"].machine.gpus == 4
    assert nodes(inventory(FakeYarn(*reversed(both))))["n1"].state is NodeState.USABLE


def test_an_overlay_tells_slots_and_racks_where_its_gpus_agree(caplog):
    known = Machine(machine_id="n1", rack_id="mine", slots=(2, 2), device="v100")
    overlay = Cluster(name="o", machines=(known,), devices={"v100": DeviceType(name="v100")})
    assert nodes(inventory(FakeYarn(report()), overlay))["n1"].machine == known
    assert caplog.text == ""
    one = inventory(FakeYarn(report(gpus=3)), overlay)
    assert nodes(one)["n1"].machine.slots == nodes(one)["n1"].machine.slots == (3,)
    assert caplog.text.count("n1 has 4 GPUs in the cluster file and 3 in YARN") == 1


def test_nobody_is_asked_what_runs_on_a_node_that_is_lost():
    yarn = FakeYarn(report(), report("n2"))
    one = inventory(yarn)
    nodes(one)
    assert one.web_addresses({"n2", "n1", "n7"}) == ("n1:8042", "n2:8042")
    yarn.reports = (report(state=YarnState.LOST), report("n2"))
    nodes(one)
    assert one.web_addresses({"n2", "n1"}) == ("n2:8042",)
