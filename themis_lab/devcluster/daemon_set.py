"""The processes of a cluster: which daemons run, and how to start and stop them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from themis.processes import kill_marked
from themis_lab.devcluster.configuration import MARK, NODE_MARK
from themis_lab.devcluster.daemons import Deployment, daemon_command, daemon_environment, hadoop_environment
from themis_lab.devcluster.errors import DevClusterError
from themis_lab.devcluster.processes import KnownProcess, end, kill, spawn, working_below
from themis_lab.devcluster.spec import host_of, node_manager
from themis_lab.devcluster.state import write_state

_SHOWN_LINES = 15


class DaemonSet:
    """The processes of one cluster. Every change is written to the state file at once.

    Args:
        deployment: What the cluster is.
        processes: Its daemons so far, by name; they may have ended.
    """

    def __init__(self, deployment: Deployment, processes: Mapping[str, KnownProcess]) -> None:
        self._deployment = deployment
        self._processes = dict(processes)

    def save(self) -> None:
        """Write the state file."""
        write_state(self._deployment, self._processes)

    def pids(self) -> dict[str, int | None]:
        """Return the process id of each daemon by name, None if it does not run."""
        found = {daemon: self._processes.get(daemon) for daemon in self._deployment.spec.daemons}
        return {name: process.pid if process and process.is_running() else None for name, process in found.items()}

    def running(self) -> frozenset[str]:
        """Names of the daemons that run."""
        return frozenset(daemon for daemon, pid in self.pids().items() if pid is not None)

    def check_running(self, daemons: Iterable[str]) -> None:
        """Check that all of these run.

        Raises:
            DevClusterError: One does not; the end of its log is in the message.
        """
        for daemon in sorted(set(daemons) - self.running()):
            log = self._deployment.layout.log(daemon)
            raise DevClusterError("a daemon ended", value=daemon, remedy=_end_of(log))

    def spawn(self, daemon: str) -> None:
        """Start a daemon, whether or not it runs."""
        layout = self._deployment.layout
        command, environment = daemon_command(self._deployment, daemon), daemon_environment(self._deployment, daemon)
        self._processes[daemon] = spawn(command, environment, layout.root, layout.log(daemon))
        self.save()

    def run(self, command: list[str], log_of: str, trouble: str) -> None:
        """Run one of Hadoop's commands to its end, with its output in the log of that name.

        Raises:
            DevClusterError: It failed; `trouble` says what that means.
        """
        log = self._deployment.layout.log(log_of)
        with log.open("ab") as file:
            done = subprocess.run(
                command,
                env=hadoop_environment(self._deployment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                # Outside the terminal's process group, because this process handles Ctrl-C.
                start_new_session=True,
            )
        if done.returncode != 0:
            raise DevClusterError(trouble, remedy=_end_of(log))

    def end(self, daemon: str, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after `grace_s` seconds."""
        end(self._of([daemon]), grace_s)

    def kill(self, daemon: str) -> None:
        """SIGKILL."""
        kill(self._of([daemon]))

    def kill_node(self, host: str) -> None:
        """SIGKILL to the NodeManager of a node and to all that runs in containers there."""
        self.kill(node_manager(host))
        self._kill_rest({MARK: self._deployment.identity, NODE_MARK: host}, self._deployment.layout.node(host))

    def end_all(self, grace_s: float) -> None:
        """Stop everything that belongs to the cluster, including containers.

        Raises:
            DevClusterError: A process outlives even SIGKILL.
        """
        # NodeManagers first: without their ResourceManager they take much longer to stop.
        node_managers = [daemon for daemon in self._processes if host_of(daemon) is not None]
        end(self._of(node_managers), grace_s)
        end(self._processes.values(), grace_s)
        # Containers of a killed NodeManager, and processes that a killed start did not record.
        self._kill_rest({MARK: self._deployment.identity}, self._deployment.layout.nodes)

    def _kill_rest(self, marks: Mapping[str, str], folder: Path) -> None:
        if left := kill_marked(marks):
            raise DevClusterError("processes do not end, even when killed", value=left)
        # Programs may clear their environment, but rarely leave their working folder too.
        kill(working_below(folder))

    def _of(self, daemons: Iterable[str]) -> list[KnownProcess]:
        return [self._processes[daemon] for daemon in daemons if daemon in self._processes]


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"end of {log}:", *lines[-_SHOWN_LINES:]])
