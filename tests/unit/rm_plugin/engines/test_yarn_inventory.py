"""Node reports of YARN as machines."""

import asyncio

import pytest
import yaml
from documents import block

from rm_plugin.engines.inventory import NodeState
from rm_plugin.engines.yarn import node_devices
from rm_plugin.engines.yarn_inventory import YarnInventory
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.config.rm_settings import RmSettings, YarnSettings
from themis.hadoop.values import NodeReport, QueueReport
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


def inventory(yarn, overlay=None, **settings):
    devices = node_devices(YarnSettings(emulated=True, **settings), overlay)
    return YarnInventory(yarn, devices, overlay, kept_vcores=2)


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
    assert caplog.text.count("n1 has 4 devices of type v100 in the cluster file and 3 of type v100 in YARN") == 1


def test_lost_node_is_not_asked_for_containers():
    yarn = FakeYarn(report(), report("n2"))
    one = inventory(yarn)
    nodes(one)
    assert one.web_addresses({"n2", "n1", "n7"}) == ("n1:8042", "n2:8042")
    yarn.reports = (report(state=YarnState.LOST), report("n2"))
    nodes(one)
    assert one.web_addresses({"n2", "n1"}) == ("n2:8042",)


TYPES = {"k80": {"speed": 0.3}, "v100": {}, "cpu": {"kind": "cpu"}}


def typed(host, device, prefix="nm.yarn.io", **more):
    return report(host, attributes={f"{prefix}/device": device, "nm.yarn.io/os": "debian"}, **more)


def test_node_attribute_names_the_device_type():
    reports = typed("n1", "k80"), typed("n2", "v100", prefix="rm.yarn.io")
    one = inventory(FakeYarn(*reports), devices=TYPES)
    assert {name: node.machine.device for name, node in nodes(one).items()} == {"n1": "k80", "n2": "v100"}
    devices = {device.name: (device.speed, device.emulated) for device in asyncio.run(one.read()).devices}
    assert devices == {"k80": (0.3, True), "v100": (1.0, True), "cpu": (1.0, False)}


def test_name_of_the_node_attribute_can_be_set():
    yarn = FakeYarn(report(attributes={"nm.yarn.io/gpu-model": "v100"}))
    one = inventory(yarn, devices=TYPES, device_attribute="gpu-model")
    assert nodes(one)["n1"].machine.device == "v100"


def test_cpu_node_is_one_device_without_the_kept_cores():
    (node,) = nodes(inventory(FakeYarn(typed("n1", "cpu", gpus=0, used_gpus=0)), devices=TYPES)).values()
    assert node.machine == Machine(machine_id="n1", rack_id="/r1", slots=(1,), device="cpu", cpus=6, memory_mb=2048)


@pytest.mark.parametrize(("used_vcores", "used"), [(0, 0), (2, 0), (3, 1), (8, 1)])
def test_cpu_node_is_in_use_if_more_than_the_kept_cores_are(used_vcores, used):
    yarn = FakeYarn(typed("n1", "cpu", gpus=0, used_gpus=0, used_vcores=used_vcores))
    assert nodes(inventory(yarn, devices=TYPES))["n1"].used_gpus == used


def test_cluster_file_types_nodes_that_report_no_type():
    known = Machine(machine_id="n1", rack_id="mine", slots=(1,), device="cpu", cpus=4)
    overlay = Cluster(name="o", machines=(known,), devices={"cpu": DeviceType(name="cpu", kind=DeviceKind.CPU)})
    assert nodes(inventory(FakeYarn(report(gpus=0)), overlay))["n1"].machine == known


@pytest.mark.parametrize(
    ("listed", "cpus", "used", "warned"),
    [
        ({}, 6, 0, ""),
        ({"cpus": 6}, 6, 0, ""),
        ({"cpus": 4}, 4, 0, "n1 has 4 cores in the cluster file, and YARN has 8, of which 2 are kept: 4 count"),
        ({"cpus": 32}, 6, 0, "n1 has 32 cores in the cluster file, and YARN has 8, of which 2 are kept: 6 count"),
    ],
)
def test_cpu_node_of_the_cluster_file_has_at_most_the_cores_that_yarn_lends(caplog, listed, cpus, used, warned):
    known = Machine(machine_id="n1", rack_id="mine", slots=(1,), device="cpu", **listed)
    overlay = Cluster(name="o", machines=(known,), devices={"cpu": DeviceType(name="cpu", kind=DeviceKind.CPU)})
    one = inventory(FakeYarn(report(gpus=0, used_gpus=0)), overlay)
    node = nodes(one)["n1"]
    assert (node.machine.cpus, node.machine.rack_id, node.used_gpus) == (cpus, "mine", used)
    assert nodes(one)["n1"] == node
    assert [record.message for record in caplog.records] == ([warned] if warned else [])


def test_node_attribute_wins_over_the_cluster_file(caplog):
    known = Machine(machine_id="n1", rack_id="mine", slots=(4,), device="v100")
    overlay = Cluster(name="o", machines=(known,), devices={"v100": DeviceType(name="v100")})
    assert nodes(inventory(FakeYarn(typed("n1", "k80")), overlay, devices=TYPES))["n1"].machine.device == "k80"
    assert "n1 has 4 devices of type v100 in the cluster file and 4 of type k80 in YARN" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (report("n1"), "YARN reports no device type of a node: 'n1'; yarn nodeattributes -replace n1:device=TYPE"),
        (typed("n1", "h100"), "n1 has an unknown device type: 'h100'; declare it in yarn.devices"),
        (typed("n1", "v100", gpus=0), "n1 of type v100 does not fit its GPUs: 0"),
        (typed("n1", "cpu"), "n1 of type cpu does not fit its GPUs: 4"),
        (
            report("n1", attributes={"nm.yarn.io/device": "k80", "rm.yarn.io/device": "v100"}),
            "n1 has two device types: ['k80', 'v100']; remove one",
        ),
    ],
)
def test_node_without_a_clear_device_type_is_left_out_with_one_warning(caplog, wrong, message):
    one = inventory(FakeYarn(wrong, typed("n2", "v100")), devices=TYPES)
    assert nodes(one).keys() == nodes(one).keys() == {"n2"}
    assert caplog.text.count(message) == 1


def test_default_type_counts_for_nodes_that_report_none():
    assert nodes(inventory(FakeYarn(report()), devices=TYPES, device="k80"))["n1"].machine.device == "k80"
    assert nodes(inventory(FakeYarn(report()), device="a100"))["n1"].machine.device == "a100"


def test_node_whose_type_becomes_unclear_drains_until_it_is_clear_again():
    yarn = FakeYarn(typed("n1", "v100"))
    one = inventory(yarn, devices=TYPES)
    nodes(one)
    yarn.reports = (typed("n1", "h100"),)
    node = nodes(one)["n1"]
    assert (node.machine.device, node.state) == ("v100", NodeState.DRAINING)
    assert "n1 has an unknown device type: 'h100'" in node.reason
    yarn.reports = (typed("n1", "k80"),)
    node = nodes(one)["n1"]
    assert (node.machine.device, node.state, node.reason) == ("k80", NodeState.USABLE, "")


@pytest.mark.parametrize(
    ("page", "mark"), [("docs/how-to/hadoop.md", "site devices"), ("docs/how-to/devcluster.md", "mixed settings")]
)
def test_device_types_of_the_guides_are_settings(page, mark):
    written = yaml.safe_load(block(page, mark).body)
    settings = RmSettings(engine="yarn", **written)
    types = node_devices(settings.yarn, None).types
    assert {name: device.kind.value for name, device in types.items()} == {"k80": "gpu", "v100": "gpu", "cpu": "cpu"}


class WithQueues(FakeYarn):
    """A YARN with these queues, by path: GPUs that each may use."""

    def __init__(self, *reports, **max_gpus):
        super().__init__(*reports)
        self.max_gpus = max_gpus

    def queues(self, node_label=""):
        return tuple(
            QueueReport(
                name=name, path=f"root.{name}", is_running=True, max_capacity_share=0.5, children=(), max_gpus=gpus
            )
            for name, gpus in self.max_gpus.items()
        )


@pytest.mark.parametrize(
    ("queues", "limits", "found"),
    [
        ((), {"a": 3}, (None, "")),
        (("a",), {"a": 3}, (3, "YARN's queue a may use 3 of 8 GPUs")),
        (("root.a",), {"a": 3}, (3, "YARN's queue a may use 3 of 8 GPUs")),
        (("a", "b"), {"a": 3, "b": 1}, (4, "YARN's queues a, b may use 4 of 8 GPUs")),
        (("a", "b"), {"a": 3, "b": 5}, (None, "")),
        (("a", "b"), {"a": 3}, (None, "")),
        (("a",), {"a": None}, (None, "")),
    ],
)
def test_limit_is_what_the_apps_queues_may_use_together(queues, limits, found):
    yarn = WithQueues(report("n1"), report("n2"), **limits)
    one = YarnInventory(yarn, node_devices(YarnSettings(emulated=True), None), queues=lambda: queues)
    seen = asyncio.run(one.read())
    assert (seen.max_gpus, seen.limit) == found


def test_free_memory_excludes_the_memory_of_containers():
    (node,) = nodes(inventory(FakeYarn(report(memory_mb=2048, used_memory_mb=500)))).values()
    assert node.free_memory_mb == 1548


@pytest.mark.parametrize(("label", "found"), [("", {"n1"}), ("gpu", {"n2"}), ("big", set())])
def test_only_nodes_with_the_label_of_the_settings_are_machines(label, found):
    yarn = FakeYarn(report("n1"), report("n2", labels=frozenset({"gpu"})))
    one = YarnInventory(yarn, node_devices(YarnSettings(emulated=True), None), node_label=label)
    assert set(nodes(one)) == found


def test_node_that_loses_its_label_drains():
    yarn = FakeYarn(report("n1"))
    one = inventory(yarn)
    assert nodes(one)["n1"].state is NodeState.USABLE
    yarn.reports = (report("n1", labels=frozenset({"gpu"})),)
    node = nodes(one)["n1"]
    assert (node.state, node.reason) == (NodeState.DRAINING, "YARN has it under the node label gpu")
    # YARN reports no labels of a lost node.
    yarn.reports = (report("n1", state=YarnState.LOST),)
    assert nodes(one)["n1"].state is NodeState.LOST


def test_limit_of_a_queue_is_that_of_the_label():
    asked = []

    class Yarn(FakeYarn):
        def queues(self, node_label=""):
            asked.append(node_label)
            return ()

    one = YarnInventory(
        Yarn(report("n2", labels=frozenset({"gpu"}))),
        node_devices(YarnSettings(emulated=True), None),
        node_label="gpu",
        queues=lambda: ("a",),
    )
    nodes(one)
    assert asked == ["gpu"]
