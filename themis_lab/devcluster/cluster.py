"""A development cluster as an object: start, inspect, damage, repair and stop it."""

from __future__ import annotations

import random
import secrets
import shlex
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from themis.errors import UnknownNameError
from themis.hadoop.errors import HadoopMissingError
from themis.hadoop.jars import JARS_VARIABLE, jar_folder, java_program
from themis.interruption import OneInterruption
from themis_lab.devcluster import web
from themis_lab.devcluster.addresses import Port, free_addresses
from themis_lab.devcluster.configuration import configuration_files
from themis_lab.devcluster.daemon_set import DaemonSet
from themis_lab.devcluster.daemons import Deployment, Programs, format_command, refresh_nodes_command
from themis_lab.devcluster.folder import check_free, locked, make_folders, remove
from themis_lab.devcluster.layout import Layout
from themis_lab.devcluster.readiness import Say, wait_until_none, what_is_missing
from themis_lab.devcluster.recovery import drop_broken_store
from themis_lab.devcluster.spec import NAMENODE, RESOURCE_MANAGER, ClusterSpec, node_manager
from themis_lab.devcluster.state import read_state
from themis_lab.devcluster.tools import tool_scripts

START_LIMIT_S = 120.0
STOP_GRACE_S = 5.0
SHARED_FOLDERS = ("/tmp", "/themis")
"""Folders in HDFS that everyone may write to, made at the start."""
_NODE_LIMIT_S = 60.0


def _silent(_: str) -> None:
    pass


class DevCluster:
    """The daemons of a cluster that `start` started, in this process or an earlier one.

    Attributes:
        deployment: What was decided before the start: specification, addresses, paths.
    """

    def __init__(self, deployment: Deployment, daemons: DaemonSet) -> None:
        self.deployment = deployment
        self._daemons = daemons

    @classmethod
    def start(
        cls,
        spec: ClusterSpec,
        folder: Path,
        *,
        say: Say = _silent,
        limit_s: float = START_LIMIT_S,
        identity: str = "",
    ) -> DevCluster:
        """Start a cluster and wait until it is ready. If that fails or is interrupted, only logs remain.

        Args:
            spec: What it shall be like.
            folder: For all that it writes; must be empty or not be there.
            say: Called with a line about each step.
            limit_s: How long the daemons may take, in seconds, the fetching of jars not counted.
            identity: Value of the mark `MARK` (configuration.py) in the environment of all daemons. A process that must
                end them after the death of this one finds them by it. By default a new one.

        Raises:
            InputError: The folder is in use.
            HadoopMissingError: No Java, or no jars and no way to fetch them.
            DevClusterError: A daemon ended or is not ready in time; the end of its log is in the message.
        """
        layout = Layout(folder.absolute())
        check_free(layout)
        programs = Programs(java=java_program(), jars=_jars(spec.version, say))
        with OneInterruption() as interruption, locked(layout):
            # Looked at again: another start may have been faster.
            check_free(layout)
            deployment = _deployment(spec, layout, programs, identity or new_identity())
            cluster = cls(deployment, DaemonSet(deployment, {}))
            try:
                cluster._start_all(say, limit_s)
            except BaseException:
                interruption.shield()
                cluster._daemons.end_all(grace_s=0.0)
                remove(layout, keep_logs=True)
                raise
        return cluster

    @classmethod
    def attach(cls, folder: Path) -> DevCluster:
        """The cluster in that folder, whatever is left of it.

        Raises:
            InputError: There is none.
        """
        deployment, processes = read_state(folder)
        return cls(deployment, DaemonSet(deployment, processes))

    def stop(self, *, grace_s: float = STOP_GRACE_S, keep_logs: bool = False) -> None:
        """Stop all processes, including containers, and remove the folder.

        Args:
            grace_s: Between SIGTERM and SIGKILL, in seconds.
            keep_logs: Leave the folder with the daemons' logs in it.
        """
        with locked(self.deployment.layout):
            self._daemons.end_all(grace_s)
            remove(self.deployment.layout, keep_logs=keep_logs)

    # ---- what it is --------------------------------------------------------------------------------------------------

    @property
    def conf_dir(self) -> Path:
        """The value for HADOOP_CONF_DIR."""
        return self.deployment.layout.conf

    @property
    def hosts_file(self) -> Path:
        """The value for Java's `-Djdk.net.hosts.file`: the nodes' names are known nowhere else."""
        return self.deployment.layout.hosts

    @property
    def bin_dir(self) -> Path:
        """Folder with Hadoop's commands `yarn` and `hdfs`, bound to this cluster."""
        return self.deployment.layout.bin

    @property
    def rm_web(self) -> str:
        """URL of the ResourceManager's pages and REST service, without a final slash."""
        return f"http://{self.deployment.addresses.at_master(Port.RM_WEB)}"

    @property
    def namenode_web(self) -> str:
        """URL of the NameNode's pages and of WebHDFS, without a final slash."""
        return f"http://{self.deployment.addresses.at_master(Port.NAMENODE_WEB)}"

    @property
    def fs_uri(self) -> str:
        """The default file system: `hdfs://host:port`."""
        return f"hdfs://{self.deployment.addresses.at_master(Port.NAMENODE)}"

    @property
    def node_gpus(self) -> Mapping[str, int]:
        """GPUs that each node declares, by host."""
        return dict(zip(self.deployment.spec.hosts, self.deployment.spec.gpus, strict=True))

    @property
    def node_addresses(self) -> Mapping[str, str]:
        """IP address of each node, by host."""
        return {host: self.deployment.addresses.node(index) for index, host in enumerate(self.deployment.spec.hosts)}

    @property
    def exports(self) -> Mapping[str, str]:
        """Environment variables by which clients find the cluster."""
        kerberos = self.deployment.spec.kerberos
        option = {"THEMIS_HADOOP_JVM_OPTIONS": shlex.quote(kerberos.java_option)} if kerberos else {}
        who = option or {"HADOOP_USER_NAME": self.deployment.spec.user}
        return {
            "HADOOP_CONF_DIR": str(self.conf_dir),
            "THEMIS_HADOOP_HOSTS_FILE": str(self.hosts_file),
            JARS_VARIABLE: str(self.deployment.programs.jars),
            **who,
        }

    # ---- how it is ---------------------------------------------------------------------------------------------------

    def daemons(self) -> Mapping[str, int | None]:
        """Process id of each daemon by name; None if it does not run."""
        return self._daemons.pids()

    def nodes(self) -> Mapping[str, web.NodeReport]:
        """The ResourceManager's report on each node, by host. Empty if it does not answer."""
        try:
            return web.node_reports(self.rm_web)
        except web.NoAnswerError:
            return {}

    def hdfs(self) -> web.HdfsState:
        """The state of HDFS."""
        return web.hdfs_state(self.namenode_web)

    def is_ready(self) -> bool:
        """Whether all daemons run, all nodes are in service with their GPUs, and HDFS can be written."""
        every = dict.fromkeys(self.deployment.spec.daemons, 0.0)
        up = self._daemons.running() == every.keys()
        return up and what_is_missing(self.deployment.spec, every, self.hdfs(), self.nodes()) is None

    def wait_for_node(self, host: str, *states: str, limit_s: float = _NODE_LIMIT_S) -> None:
        """Return when the ResourceManager reports the node in one of these states, for example `LOST`.

        Raises:
            DevClusterError: It does not come to be within `limit_s` seconds.
        """
        self._check_host(host)

        def missing() -> str | None:
            report = self.nodes().get(host)
            state = report.state if report else "unknown"
            return None if state in states else state

        wait_until_none(missing, limit_s=limit_s, trouble=f"{host} does not become {' or '.join(states)}", say=_silent)

    # ---- what is done to it ------------------------------------------------------------------------------------------

    def kill(self, daemon: str) -> None:
        """Send SIGKILL to a daemon only. Containers of a killed NodeManager continue as orphans."""
        self._daemons.kill(self._known(daemon))

    def kill_node(self, host: str) -> None:
        """Simulate a power cut: send SIGKILL to the node's NodeManager and to all processes in its containers."""
        self._check_host(host)
        self._daemons.kill_node(host)

    def start_daemon(self, daemon: str, *, limit_s: float = START_LIMIT_S) -> None:
        """Start a stopped daemon with its former ports and folders, and wait until it is ready.

        Raises:
            DevClusterError: It ends or is not ready in time.
        """
        if self._known(daemon) not in self._daemons.running():
            self._bring_up([daemon], limit_s)

    def decommission(self, host: str, *, graceful_s: int | None = None) -> None:
        """Take a node out of service through the list of excluded nodes. Its NodeManager then ends by itself.

        Args:
            host: The node.
            graceful_s: Maximum seconds for which its containers may continue; None ends them at once.
        """
        self._check_host(host)
        self._exclude(self._excluded() | {host}, graceful_s)
        states = {web.DECOMMISSIONED} if graceful_s is None else {web.DECOMMISSIONED, web.DECOMMISSIONING}
        self.wait_for_node(host, *states)

    def recommission(self, host: str) -> None:
        """Take a node back into service, and start its NodeManager if it has ended. Returns when it runs."""
        self._check_host(host)
        self._exclude(self._excluded() - {host}, None)
        daemon = node_manager(host)

        def missing() -> str | None:
            report = self.nodes().get(host)
            if report is not None and report.state == web.RUNNING:
                return None
            if report is not None and report.state == web.DECOMMISSIONED and daemon in self._daemons.running():
                # It was asked to end, perhaps a moment ago, and needs some time.
                self._daemons.end(daemon, STOP_GRACE_S)
            self.start_daemon(daemon)
            return report.state if report else "unknown"

        wait_until_none(missing, limit_s=2 * _NODE_LIMIT_S, trouble=f"{host} does not come back", say=_silent)

    def restore(self) -> None:
        """Restart everything that was killed or decommissioned, and wait until the cluster is ready."""
        away = self._excluded()
        present = set(self.deployment.spec.daemons) - {node_manager(host) for host in away}
        self._bring_up(present - self._daemons.running(), START_LIMIT_S)
        for host in sorted(away):
            self.recommission(host)

    # ---- how that is done --------------------------------------------------------------------------------------------

    def _start_all(self, say: Say, limit_s: float) -> None:
        deployment = self.deployment
        make_folders(
            deployment.layout,
            configuration_files(deployment.spec, deployment.addresses, deployment.layout),
            tool_scripts(deployment),
        )
        # From here on `stop` finds all started processes by the mark, even if this process is killed.
        self._daemons.save()
        say(f"starting Hadoop on {deployment.addresses.network}.*, logs in {deployment.layout.logs}")
        # The ResourceManager takes longest; meanwhile an empty file system is created.
        self._daemons.spawn(RESOURCE_MANAGER)
        self._daemons.run(format_command(deployment), NAMENODE, "the NameNode cannot format its folder")
        for daemon in deployment.spec.daemons:
            if daemon != RESOURCE_MANAGER:
                self._daemons.spawn(daemon)
        self._wait_ready(dict.fromkeys(deployment.spec.daemons, 0.0), limit_s, say)
        if deployment.spec.kerberos is None:
            trouble = "HDFS's folders cannot be made"
            wait_until_none(self._folders_missing, limit_s=limit_s, trouble=trouble, say=_silent)
        say("ready")

    def _folders_missing(self) -> str | None:
        """Make HDFS's folders. Returns the reason of a failure; on a busy machine this is a slow answer."""
        user = self.deployment.spec.user
        try:
            web.make_folder(self.namenode_web, f"/user/{user}", user, "755")
            for shared in SHARED_FOLDERS:
                web.make_folder(self.namenode_web, shared, user, "1777")
        except web.NoAnswerError as error:
            return str(error)
        return None

    def _bring_up(self, daemons: Collection[str], limit_s: float) -> None:
        """Start these daemons, and wait until they and all other running ones are ready."""
        # Daemons of decommissioned nodes are about to end.
        leaving = {node_manager(host) for host in self._excluded()}
        others = self._daemons.running() - leaving
        started_s = time.time()
        for host in self.deployment.spec.hosts:
            if node_manager(host) in daemons:
                drop_broken_store(self.deployment.layout.node(host))
        for daemon in daemons:
            self._daemons.spawn(daemon)
        self._wait_ready(dict.fromkeys(others, 0.0) | dict.fromkeys(daemons, started_s), limit_s, _silent)

    def _wait_ready(self, since_s: Mapping[str, float], limit_s: float, say: Say) -> None:
        def missing() -> str | None:
            self._daemons.check_running(since_s)
            return what_is_missing(self.deployment.spec, since_s, self.hdfs(), self.nodes())

        wait_until_none(missing, limit_s=limit_s, trouble="the development cluster does not become ready", say=say)

    def _excluded(self) -> set[str]:
        return set(self.deployment.layout.exclude.read_text(encoding="utf-8").split())

    def _exclude(self, hosts: set[str], graceful_s: int | None) -> None:
        text = "".join(f"{host}\n" for host in sorted(hosts))
        self.deployment.layout.exclude.write_text(text, encoding="utf-8")
        command = refresh_nodes_command(self.deployment, graceful_s)
        self._daemons.run(command, "rmadmin", "the ResourceManager does not read the list of nodes again")

    def _known(self, daemon: str) -> str:
        if daemon not in self.deployment.spec.daemons:
            raise UnknownNameError("daemon", daemon, self.deployment.spec.daemons)
        return daemon

    def _check_host(self, host: str) -> None:
        if host not in self.deployment.spec.hosts:
            raise UnknownNameError("node", host, self.deployment.spec.hosts)


def new_identity() -> str:
    """An identity that no other cluster has."""
    return secrets.token_hex(8)


def _deployment(spec: ClusterSpec, layout: Layout, programs: Programs, identity: str) -> Deployment:
    addresses = free_addresses(len(spec.gpus), random.Random())
    return Deployment(identity=identity, spec=spec, addresses=addresses, layout=layout, programs=programs)


def _jars(version: str | None, say: Say) -> Path:
    try:
        return jar_folder(version)
    except HadoopMissingError:
        say("fetching Hadoop's jars with Maven, once")
        return jar_folder(version, fetch=True)
