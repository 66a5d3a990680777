"""What lies where in a development cluster's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below the folder of one cluster, which is absolute."""

    root: Path

    @property
    def state(self) -> Path:
        """What was started, and where: there from before the first process until after the last one."""
        return self.root / "devcluster.json"

    @property
    def lock(self) -> Path:
        """Locked while the cluster is started or stopped."""
        return self.root / "lock"

    @property
    def conf(self) -> Path:
        """Hadoop's configuration, which HADOOP_CONF_DIR names."""
        return self.root / "conf"

    @property
    def hosts(self) -> Path:
        """Names of the nodes for Java, in the manner of /etc/hosts."""
        return self.conf / "hosts"

    @property
    def exclude(self) -> Path:
        """Nodes that are decommissioned, a name a line."""
        return self.conf / "exclude"

    @property
    def bin(self) -> Path:
        """Hadoop's commands `yarn` and `hdfs`, bound to this cluster."""
        return self.root / "bin"

    @property
    def data(self) -> Path:
        """What NameNode, DataNode and ResourceManager keep."""
        return self.root / "data"

    @property
    def temporary(self) -> Path:
        """What daemons leave in a temporary folder: unpacked libraries, web pages."""
        return self.root / "tmp"

    @property
    def logs(self) -> Path:
        """What the daemons say."""
        return self.root / "logs"

    @property
    def nodes(self) -> Path:
        """What NodeManagers keep, and the working folders of containers."""
        return self.root / "nodes"

    def log(self, daemon: str) -> Path:
        """Standard output, errors and log of a daemon."""
        return self.logs / f"{daemon}.log"

    def node(self, host: str) -> Path:
        """What one NodeManager keeps; containers run below `local`."""
        return self.nodes / host
