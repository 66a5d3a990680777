"""What a run's engine needs in addition to the ResourceManager: nothing, or real Hadoop daemons on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import field
from rich.console import Console

from themis.cluster import Cluster
from themis.errors import UnknownNameError
from themis.values import Value
from themis_lab.devcluster.spec import ClusterSpec
from themis_lab.testbed.own_cluster import own_cluster
from themis_lab.testbed.run_folder import RunFolder

ENGINES = ("local", "yarn")

_YARN = {
    "emulated": True,
    "heartbeat_s": 0.2,
    "poll_s": 0.5,
    "am_memory_mb": 512,
    "task_memory_mb": 1024,
}
_NODE_MEMORY_MB = 64 * 1024
"""The memory that each node declares. The machine has less, but emulated tasks need no more on YARN than without it."""


class EngineSetting(Value, frozen=True, kw_only=True):
    """Further settings of the ResourceManager, and variables of its environment."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def running_engine(name: str, cluster: Cluster, folder: RunFolder, console: Console) -> Iterator[EngineSetting]:
    """Run what the engine needs for as long as the block runs.

    For `yarn` this is a development cluster whose nodes are the machines of the cluster file, by name, device type and
    number of GPUs. Its daemons end with this process, however it ends.

    Raises:
        UnknownNameError: No such engine.
        HadoopMissingError: There is no Java, or there are no jars and no way to fetch them.
    """
    if name not in ENGINES:
        raise UnknownNameError("engine of the testbed", name, ENGINES)
    if name == "local":
        yield EngineSetting()
        return
    spec = ClusterSpec(
        gpus=tuple(machine.gpus * cluster.devices[machine.device].is_gpu for machine in cluster.machines),
        devices=tuple(machine.device for machine in cluster.machines),
        names=tuple(machine.machine_id for machine in cluster.machines),
        memory_mb=_NODE_MEMORY_MB,
    )
    with own_cluster(spec, folder.hadoop, lambda line: console.print(line, markup=False)) as hadoop:
        yield EngineSetting(settings={"engine": "yarn", "yarn": _YARN}, environment=hadoop.exports)
