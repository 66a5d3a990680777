"""Processes in granted containers: start, stop, look (Hadoop's `NMClient`).

Needs the tokens that `AmClient` was given, so it works in the same process only, after `AmClient.register`; it then
also serves containers of earlier attempts. Every call blocks: for a container's node that is unavailable at most
`connect_wait_s`, then UnreachableError. Any thread may call, for different containers at the same time.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from themis.errors import UnreachableError
from themis.hadoop.client_configuration import DEFAULT_CONNECT_WAIT_S, yarn_configuration
from themis.hadoop.errors import ContainerStateError, YarnError
from themis.hadoop.java_errors import NODE_REFUSES_TOKEN, typed_errors
from themis.hadoop.records import container_status, java_class, launch_context
from themis.hadoop.values import Container, ContainerStatus, ProcessLaunch


class NmClient:
    """Connections to NodeManagers, made as needed.

    Args:
        connect_wait_s: How long a call waits for a NodeManager that is unavailable.
    """

    def __init__(self, *, connect_wait_s: float = DEFAULT_CONNECT_WAIT_S) -> None:
        configuration = yarn_configuration(connect_wait_s)
        with typed_errors("starting YARN's client for NodeManagers"):
            self._client = java_class("org.apache.hadoop.yarn.client.api.NMClient").createNMClient()
            self._client.init(configuration)
            # Closing must not end tasks: the next attempt takes them over.
            self._client.cleanupRunningContainersOnStop(False)
            self._client.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; processes live on."""
        with typed_errors("closing the client"):
            self._client.stop()

    def start(self, container: Container, launch: ProcessLaunch) -> None:
        """Start the process; returns when the NodeManager has taken the order, before its files are there.

        A command that fails ends the container with the shell's code, reported by `AmClient.allocate`.

        Raises:
            UnreachableError: No answer. The process may have been started all the same: stop it or wait for its end.
            YarnError: The NodeManager refuses it: an expired grant (10 minutes), or it was started before.
        """
        with typed_errors(
            "starting a process", f"{container.container_id} on {container.node_id}", bad_token=NODE_REFUSES_TOKEN
        ):
            self._client.startContainer(container.raw, launch_context(launch))

    def stop(self, container: Container) -> None:
        """SIGTERM the process, and SIGKILL it `yarn.nodemanager.sleep-delay-before-sigkill.ms` (250 ms) later.

        Returns when the NodeManager has taken the order. The process is gone once `AmClient.allocate` reports the end:
        only then its GPUs are free. One that is over already is no error as long as its node remembers it.

        Raises:
            UnreachableError: No answer; when its node is lost, `AmClient.allocate` will report the end.
            YarnError: The node does not know it.
        """
        with typed_errors(
            "stopping a process", f"{container.container_id} on {container.node_id}", bad_token=NODE_REFUSES_TOKEN
        ):
            self._client.stopContainer(container.raw.getId(), container.raw.getNodeId())

    def has(self, container: Container) -> bool:
        """Whether the NodeManager knows the container: it started it, at some time, and has not forgotten it.

        Raises:
            UnreachableError: No answer.
            ContainerStateError: It does not accept our token, and so does not answer.
        """
        try:
            self.status(container)
        except (UnreachableError, ContainerStateError):
            raise
        except YarnError:
            return False
        return True

    def status(self, container: Container) -> ContainerStatus:
        """What the NodeManager knows of the process.

        Raises:
            UnreachableError: No answer.
            YarnError: The node does not know it: it never was started there, or ended minutes ago.
        """
        with typed_errors(
            "asking for a process", f"{container.container_id} on {container.node_id}", bad_token=NODE_REFUSES_TOKEN
        ):
            return container_status(self._client.getContainerStatus(container.raw.getId(), container.raw.getNodeId()))
