"""Nodes under a node label: Themis uses those of its label only, and its containers ask for it."""

import os
import subprocess

import psutil
import pytest
from themis_on_yarn import ThemisOnYarn

_QUEUES = "yarn.scheduler.capacity.root"


@pytest.fixture(scope="module")
def labelled_cluster(cluster, tmp_path_factory):
    """gpu-node-3 has the label `gpu`, and all queues may use it. Afterwards no node has a label."""
    site, queues = cluster.conf_dir / "yarn-site.xml", cluster.conf_dir / "capacity-scheduler.xml"
    former = {path: path.read_text() for path in (site, queues)}
    labels = {
        f"{_QUEUES}.accessible-node-labels": "gpu",
        f"{_QUEUES}.accessible-node-labels.gpu.capacity": "100",
        **{f"{_QUEUES}.{queue}.accessible-node-labels": "gpu" for queue in ("default", "research")},
        **{f"{_QUEUES}.{queue}.accessible-node-labels.gpu.capacity": "50" for queue in ("default", "research")},
        f"{_QUEUES}.default.accessible-node-labels.gpu.maximum-capacity": "100",
    }
    store = {
        "yarn.node-labels.enabled": "true",
        "yarn.node-labels.fs-store.root-dir": f"file://{tmp_path_factory.mktemp('labels')}/store",
    }

    def restart():
        cluster.kill("resourcemanager")
        cluster.start_daemon("resourcemanager")

    def administer(*words):
        command = [str(cluster.bin_dir / "yarn"), "rmadmin", *words]
        subprocess.run(command, env={**os.environ, **cluster.exports}, check=True, capture_output=True)

    try:
        for path, properties in ((site, store), (queues, labels)):
            added = "".join(f"<property><name>{n}</name><value>{v}</value></property>" for n, v in properties.items())
            path.write_text(former[path].replace("</configuration>", f"{added}</configuration>"))
        restart()
        administer("-addToClusterNodeLabels", "gpu(exclusive=true)")
        administer("-replaceLabelsOnNode", "gpu-node-3=gpu")
        yield cluster
    finally:
        for path, text in former.items():
            path.write_text(text)
        restart()


@pytest.mark.parametrize(("label", "hosts"), [("gpu", {"gpu-node-3"}), ("", {"gpu-node-1", "gpu-node-2"})])
def test_app_runs_on_the_nodes_of_its_label(labelled_cluster, tmp_path, label, hosts):
    with ThemisOnYarn(labelled_cluster, tmp_path, node_label=label) as themis:
        machines = {machine.machine_id for machine in themis.client.cluster().cluster.machines}
        assert machines == hosts
        app_id = themis.submit(jobs=2, job={"tasks": 1, "gpus_per_task": 1, "iterations": 80})
        themis.until(lambda: themis.gpus_in_use().total() == 2, "its jobs run", 90)
        (master,) = themis.app_masters(app_id)
        assert {*themis.gpus_in_use(), psutil.Process(master).environ()["NM_HOST"]} <= hosts
        assert themis.wait_until_ended(app_id).state == "FINISHED"
