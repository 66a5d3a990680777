"""The service of a chaos run on a development cluster of Hadoop."""

from __future__ import annotations

import contextlib
import getpass
import os
from pathlib import Path
from unittest import mock

from embedded_service import EmbeddedService

from am.checkpoints import open_store
from themis_lab.devcluster.cluster import DevCluster
from themis_lab.devcluster.spec import RESOURCE_MANAGER, ClusterSpec

NODE_GPUS = (4, 4)


class YarnService(EmbeddedService):
    """A ResourceManager with the engine `yarn`; its tasks are containers of two nodes."""

    on_yarn = True
    # YARN starts the next attempt once it takes a node or an app master for lost, as after a stop of its own. The node
    # ends the former one with its next heartbeat.
    masters_overlap_s = 5.0

    def __init__(self, folder: Path) -> None:
        self.cluster = DevCluster.start(ClusterSpec(gpus=NODE_GPUS), folder / "hadoop")
        # The GPUs are declared as real ones, so that their numbers are in the tasks' environment.
        fast = {"heartbeat_s": 0.2, "poll_s": 0.3, "emulated": False, "task_memory_mb": 512, "am_memory_mb": 512}
        settings = {
            "engine": "yarn", "cluster": None, "yarn": fast, "unfit_s": 5,
            "lease": {"duration_s": 20, "checkpoint_lead_s": 4, "grace_s": 15}, "am_expiry_s": 10,
        }  # fmt: skip
        super().__init__(folder, settings, self.cluster.exports)

    def close(self) -> None:
        super().close()
        self.cluster.stop()

    def cut_node(self, pick: float) -> None:
        nodes = list(self.cluster.node_gpus)
        node = nodes[int(pick * len(nodes))]
        self.cluster.kill_node(node)
        self.cluster.restore()

    def newest_checkpoint(self, app_id: str, job_id: str) -> int:
        # Histories and logs come from the machines of app masters. One that is cut off takes the last seconds with it.
        uri = f"hdfs:///user/{getpass.getuser()}/themis/{self.run_id}/apps/{app_id}/checkpoints"
        with mock.patch.dict(os.environ, self.cluster.exports):
            return open_store(uri).latest_iteration(job_id) or 0

    def stopped_yarn(self) -> contextlib.AbstractContextManager[None]:
        (pid,) = (pid for name, pid in self.cluster.daemons().items() if name == RESOURCE_MANAGER and pid)
        return self.stopped(pid)
