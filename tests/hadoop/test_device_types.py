"""GPUs of two types and a CPU node on YARN: types by node attributes, OEF's shares, containers without GPUs."""

import subprocess

import pytest
from themis_on_yarn import ThemisOnYarn

from themis_lab.devcluster.cluster import DevCluster
from themis_lab.devcluster.spec import ClusterSpec
from themis_lab.testbed.audit import audit
from themis_lab.testbed.audit_values import AuditInput, AuditLimits

# No node has a P100 at first.
TYPES = {"k80": {"speed": 0.5}, "p100": {"speed": 2}, "v100": {}, "cpu": {"kind": "cpu"}}
DEVICE_OF = {"gpu-node-1": "k80", "gpu-node-2": "v100", "cpu-node-3": "cpu"}
KEPT_VCORES = 8
LEASE_S = 30.0
# The audit wants tasks within a lease and a round. On a busy machine the first container of a node takes 45 s to start.
AUDITED_LEASE_S = 60.0


@pytest.fixture(scope="module")
def cluster(hadoop_programs, tmp_path_factory):
    """A node of two K80, a node of two V100, a CPU node, and a node of one GPU that reports no type."""
    spec = ClusterSpec(gpus=(2, 2, 0, 1), devices=("k80", "v100", "cpu", ""))
    cluster = DevCluster.start(spec, tmp_path_factory.mktemp("hadoop"))
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def themis(cluster, tmp_path):
    themis = ThemisOnYarn(cluster, tmp_path, devices=TYPES, kept_vcores=KEPT_VCORES)
    lease = {"duration_s": LEASE_S, "checkpoint_lead_s": 3, "grace_s": 15}
    themis.settings |= {"policy": "oef", "lease": lease}
    with themis:
        yield themis


def trained(**changes):
    """An app that trains with TensorFlow, so slowly on GPUs that its tenant has no share of them."""
    return {
        "program": "digits_dense", "arguments": {"batch_size": 64, "optimizer": "momentum", "log_every": 20},
        "jobs": 1, "job": {"tasks": 1, "gpus_per_task": 1, "iterations": 400}, "checkpoint_every": 50,
        "resources": {"memory_mb": 1024, "vcores": 1},
        "estimate": {"serial_iteration_s": 0.01, "speed": {"k80": 1e-7, "v100": 1e-7, "cpu": 2}}, **changes,
    }  # fmt: skip


def replayed(k80, v100, iterations):
    shape = {"tasks": 1, "gpus_per_task": 1, "iterations": iterations}
    return {"job": shape, "estimate": {"serial_iteration_s": 0.1, "speed": {"k80": k80, "v100": v100}}}


def machines(themis):
    """Device types by machine in the ResourceManager's view."""
    themis.until(lambda: "the page is at" in themis.log(), "there is a page")
    racks = themis.page("api/v1/cluster")["racks"]
    return {machine["machine_id"]: machine["device"] for rack in racks for machine in rack["machines"]}


def types(themis, app_id):
    """The device type of each task, as the task has it and as its node has it."""
    return [(task["THEMIS_DEVICE"], DEVICE_OF[task["NM_HOST"]]) for task in themis.tasks(app_id).values()]


def used_vcores(themis, host):
    nodes = themis.yarn_says("nodes")["nodes"]["node"]
    return next(node["usedVirtualCores"] for node in nodes if node["nodeHostName"] == host)


def whole_audit(themis):
    gpus = [f"{host}/{index}" for host in DEVICE_OF for index in range(themis.cluster.node_gpus[host] or 1)]
    limits = AuditLimits(lease_s=AUDITED_LEASE_S, grace_s=15.0, round_s=10.0, policy="oef")
    return audit(AuditInput(events=tuple(themis.events()), gpus=tuple(gpus), limits=limits, device_of=DEVICE_OF))


def test_oef_shares_gpus_of_two_types_and_a_cpu_node_and_keeps_every_promise(themis):
    assert machines(themis) == DEVICE_OF
    assert "YARN reports no device type of a node: 'gpu-node-4'" in themis.log()
    steep = themis.submit(name="steep", user="ann", **replayed(0.5, 2, 1600))
    flat = themis.submit(name="flat", user="bob", **replayed(0.5, 0.6, 500))
    real = themis.submit(name="real", user="cyd", **trained())
    themis.until(lambda: themis.tasks(real), "TensorFlow has started", 120)
    (task,) = themis.tasks(real).values()
    assert (task["NM_HOST"], task["THEMIS_DEVICE"], task["CUDA_VISIBLE_DEVICES"]) == ("cpu-node-3", "cpu", "")
    cores = themis.cluster.deployment.spec.vcores - KEPT_VCORES
    assert task["OMP_NUM_THREADS"] == task["TF_NUM_INTRAOP_THREADS"] == str(cores)
    assert used_vcores(themis, "cpu-node-3") >= cores
    # The app that came first may have the V100s until its leases end.
    wanted = {steep: [("v100", "v100")] * 2, flat: [("k80", "k80")] * 2}
    themis.until(lambda: all(types(themis, app_id) == each for app_id, each in wanted.items()), "OEF's shares", 120)
    ended = [themis.wait_until_ended(app_id) for app_id in (real, steep, flat)]
    assert [app.state for app in ended] == ["FINISHED"] * 3, themis.log()
    assert ended[0].jobs[0].speeds and themis.app(real).attempts == 1
    result = whole_audit(themis)
    assert result.violations == (), result.violations
    assert result.checks["a GPU has one lease at a time"], "the audit had nothing to look at"
    themis.until(lambda: used_vcores(themis, "cpu-node-3") == 0, "YARN has its cores back")


def set_type(themis, host, device):
    """Hadoop's own command; nothing is restarted. With `-add` YARN would keep reporting the former value."""
    command = [str(themis.cluster.bin_dir / "yarn"), "nodeattributes", "-replace", f"{host}:device={device}"]
    done = subprocess.run(command, env=themis.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_node_of_a_new_type_joins_by_its_attribute_and_drains_if_that_becomes_unknown(themis):
    # A job for each GPU.
    app_id = themis.submit(name="long", jobs=5, job={"tasks": 1, "gpus_per_task": 1, "iterations": 100_000})
    themis.until(lambda: set(themis.gpus_in_use()) == {"gpu-node-1", "gpu-node-2"}, "it has the GPUs", 120)
    set_type(themis, "gpu-node-4", "p100")
    themis.until(lambda: machines(themis) == {**DEVICE_OF, "gpu-node-4": "p100"}, "the node joins")
    themis.until(lambda: "gpu-node-4" in themis.gpus_in_use(), "its fifth job runs there", 60)
    set_type(themis, "gpu-node-4", "h100")
    themis.until(lambda: "gpu-node-4 has an unknown device type: 'h100'" in themis.log(), "it is reported")
    themis.until(lambda: "gpu-node-4" not in themis.gpus_in_use(), "the lease there ends and is not renewed", 90)
    assert themis.app(app_id).attempts == 1 and themis.kinds(app_id)["job_restarted"] == 0
    themis.client.kill(app_id, "seen enough")
    assert themis.wait_until_ended(app_id).state == "KILLED"
