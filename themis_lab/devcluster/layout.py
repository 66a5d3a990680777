"""The files in a development cluster's folder."""

from __future__ import annotations

from pathlib import Path

from themis.values import Value


class Layout(Value, frozen=True):
    """Paths below the folder of one cluster, which is absolute."""

    root: Path

    @property
    def state(self) -> Path:
        """The started processes and their addresses.

        It exists from before the first process until after the last one.
        """
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
        """Names of the nodes for Java, in the format of /etc/hosts."""
        return self.conf / "hosts"

    @property
    def exclude(self) -> Path:
        """Decommissioned nodes, one name per line."""
        return self.conf / "exclude"

    @property
    def bin(self) -> Path:
        """Hadoop's commands `yarn` and `hdfs`, bound to this cluster."""
        return self.root / "bin"

    @property
    def data(self) -> Path:
        """Data of NameNode, DataNode and ResourceManager."""
        return self.root / "data"

    @property
    def temporary(self) -> Path:
        """Temporary files of the daemons: unpacked libraries, web pages."""
        return self.root / "tmp"

    @property
    def logs(self) -> Path:
        """The daemons' logs."""
        return self.root / "logs"

    @property
    def nodes(self) -> Path:
        """Data of NodeManagers, and the working folders of containers."""
        return self.root / "nodes"

    def log(self, daemon: str) -> Path:
        """Standard output, errors and log of a daemon."""
        return self.logs / f"{daemon}.log"

    def node(self, host: str) -> Path:
        """Data of one NodeManager; containers run below `local`."""
        return self.nodes / host
