"""A development cluster that ends with the process that started it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from themis.python_programs import module_command
from themis_lab.devcluster.cluster import DevCluster, new_identity
from themis_lab.devcluster.configuration import MARK
from themis_lab.devcluster.spec import ClusterSpec


@contextmanager
def own_cluster(spec: ClusterSpec, folder: Path, say: Callable[[str], None]) -> Iterator[DevCluster]:
    """Run Hadoop's daemons for as long as the block runs. They end with this process, even if it is killed.

    Raises:
        HadoopMissingError: There is no Java, or there are no jars and no way to fetch them.
        DevClusterError: They do not become ready.
    """
    identity = new_identity()
    with _ended_with_us(identity):
        cluster = DevCluster.start(spec, folder, say=say, identity=identity)
        try:
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def _ended_with_us(identity: str) -> Iterator[None]:
    """While the block runs, kill all processes of a development cluster if this process dies."""
    reaper = subprocess.Popen(
        module_command("themis_lab.testbed.reaper", identity, MARK),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C at the terminal is for the driver.
        start_new_session=True,
    )
    try:
        yield
    finally:
        reaper.communicate()
