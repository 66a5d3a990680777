"""An app master's talk with YARN's ResourceManager (Hadoop's `AMRMClient`): asks, grants and the heartbeat.

    am = AmClient()
    registration = am.register(host, port, tracking_url)    # containers of earlier attempts come with it
    am.ask(ContainerAsk(allocation_request_id=1, host="gpu-node-2", gpus=2, memory_mb=1024))
    while ...:
        reply = am.allocate(progress)    # well within yarn.am.liveness-monitor.expiry-interval-ms
        for container in reply.granted: nodes.start(container, launch)    # `NmClient`
        for end in reply.ended: ...    # only now its GPUs are free
        for refusal in reply.refused: ...    # larger than any node that YARN knows of at present

Rules:

- One thread calls `allocate` at regular intervals. All other methods may be called from any thread at the same time.
- While the ResourceManager is unreachable, `allocate` blocks for up to `connect_wait_s`, then raises UnreachableError.
  Requests and releases are kept, and sent again by the next call. If the ResourceManager restarted, the client
  registers again by itself. Do not call it on an event loop.
- AttemptGoneError means that YARN has started another attempt or ended the application. Exit without touching any
  container.
- A request for an unknown host, or for more than a host has free, stays pending without an error. The caller must
  withdraw it after a time limit.
- **Never release a container whose process was started.** YARN counts its GPUs as free at once and grants them again
  within 50 ms, while the process still runs: two processes then share a GPU. Call `NmClient.stop`, and wait for its
  `ContainerEnd`.

The process needs what the table in `themis.hadoop.jvm` says.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

import jpype

from themis.errors import InputError
from themis.hadoop.client_configuration import DEFAULT_CONNECT_WAIT_S, yarn_configuration
from themis.hadoop.java_errors import ATTEMPT_GONE, as_typed, typed_errors
from themis.hadoop.records import container, container_end, container_request, gpus_of, java_class, node_report, record
from themis.hadoop.refused_asks import forget_unsent, refused_asks
from themis.hadoop.values import AllocateReply, AskRefusal, Container, ContainerAsk, FinalStatus, Registration

_MIN_ID = 1


class AmClient:
    """One attempt's connection. Starts the JVM if need be.

    Args:
        connect_wait_s: How long a call waits for a ResourceManager that is unavailable.
    """

    def __init__(self, *, connect_wait_s: float = DEFAULT_CONNECT_WAIT_S) -> None:
        configuration = yarn_configuration(connect_wait_s)
        # Java's requests by allocation request id, of asks not granted yet. Held by the lock, as grants and asks race.
        self._asked: dict[int, Any] = {}
        self._lock = threading.Lock()
        with typed_errors("starting YARN's client for app masters"):
            self._client = java_class("org.apache.hadoop.yarn.client.api.AMRMClient").createAMRMClient()
            self._client.init(configuration)
            self._client.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection without a word to YARN, which will take the attempt for dead unless it unregistered."""
        with typed_errors("closing the client"):
            self._client.stop()

    def register(self, host: str, rpc_port: int, tracking_url: str) -> Registration:
        """Register this attempt with YARN, once, before any other call.

        Args:
            host: Where the app master can be reached.
            rpc_port: Its port there; shown in reports.
            tracking_url: Its page, which YARN's proxy fetches; empty for none.

        Raises:
            AttemptGoneError: This attempt is over already.
            UnreachableError: YARN is unavailable.
        """
        with typed_errors("registering the app master", bad_token=ATTEMPT_GONE):
            answer = self._client.registerApplicationMaster(host, rpc_port, tracking_url)
            largest = answer.getMaximumResourceCapability()
            return Registration(
                previous=tuple(container(held) for held in answer.getContainersFromPreviousAttempts()),
                max_memory_mb=int(largest.getMemorySize()),
                max_vcores=int(largest.getVirtualCores()),
                max_gpus=gpus_of(largest),
            )

    def ask(self, wanted: ContainerAsk) -> None:
        """Ask for a container on one host; the next `allocate` sends it.

        One that is larger than any node comes back in `AllocateReply.refused`. So does one that only such nodes could
        meet as have not come back yet to a ResourceManager that was restarted: ask again later.

        Raises:
            InputError: The id is pending already, or below 1 (YARN gives 0 and less to asks without one).
        """
        with self._lock:
            if wanted.allocation_request_id < _MIN_ID or wanted.allocation_request_id in self._asked:
                raise InputError(
                    "an ask needs an allocation request id of its own, from 1", value=wanted.allocation_request_id
                )
            with typed_errors("asking for a container", wanted):
                request = container_request(wanted)
                self._client.addContainerRequest(request)
            self._asked[wanted.allocation_request_id] = request

    def withdraw(self, allocation_request_id: int) -> bool:
        """Take back an ask; False when there is none pending, as it was granted or never made.

        A grant that is on its way already is released when it comes and not reported.
        """
        with self._lock:
            return self._forget(allocation_request_id)

    def allocate(self, progress: float) -> AllocateReply:
        """A heartbeat: sends asks and releases, brings news.

        Args:
            progress: Of the application, in [0, 1]; shown in reports.

        Raises:
            AttemptGoneError: Exit.
            UnreachableError: YARN is unavailable; call again.
        """
        with typed_errors("heartbeat to YARN", bad_token=ATTEMPT_GONE):
            answer, refused = self._heartbeat(progress)
            headroom = answer.getAvailableResources()
            with self._lock:
                granted, unasked = self._matched([container(held) for held in answer.getAllocatedContainers()])
            return AllocateReply(
                granted=granted,
                ended=tuple(container_end(status) for status in answer.getCompletedContainersStatuses()),
                nodes=tuple(node_report(report) for report in answer.getUpdatedNodes()),
                recovered=tuple(container(held) for held in answer.getContainersFromPreviousAttempts()),
                preempted=_preempted(answer.getPreemptionMessage()),
                unasked=unasked,
                refused=refused,
                headroom_gpus=None if headroom is None else max(0, gpus_of(headroom)),
            )

    def release(self, unused: Container) -> None:
        """Give back a granted container in which nothing was ever started; the next `allocate` sends it.

        Never one with a process: see the rules above.
        """
        with typed_errors("releasing a container", unused.container_id):
            self._client.releaseAssignedContainer(unused.raw.getId())

    def unregister(self, status: FinalStatus, diagnostics: str, tracking_url: str = "") -> None:
        """End the application; YARN then kills what is left of its containers. Blocks until YARN has noted it.

        Args:
            status: SUCCEEDED, FAILED or KILLED.
            diagnostics: Why; shown to users.
            tracking_url: Where the application can be looked at from now on.
        """
        final = record("FinalApplicationStatus").valueOf(status.value)
        with typed_errors("unregistering the app master", bad_token=ATTEMPT_GONE):
            self._client.unregisterApplicationMaster(final, diagnostics, tracking_url)

    def _heartbeat(self, progress: float) -> tuple[Any, tuple[AskRefusal, ...]]:
        refused: list[AskRefusal] = []
        while True:
            try:
                return self._client.allocate(progress), tuple(refused)
            except jpype.JException as error:
                # Each refusal takes at least one ask away, so this ends.
                with self._lock:
                    taken = self._drop_refused(error)
                if not taken:
                    raise
                refused += taken

    def _drop_refused(self, error: jpype.JException) -> list[AskRefusal]:
        refused = refused_asks(error, self._asked)
        reason = str(as_typed(error, "heartbeat to YARN"))
        for number in refused:
            self._forget(number)
        forget_unsent(self._client, refused)
        return [AskRefusal(allocation_request_id=number, reason=reason) for number in refused]

    def _matched(self, granted: list[Container]) -> tuple[tuple[Container, ...], tuple[str, ...]]:
        asked, unasked = [], []
        for given in granted:
            # Hadoop keeps asking until the request is removed, and may grant one twice (YARN-1902).
            if self._forget(given.allocation_request_id):
                asked.append(given)
            else:
                self._client.releaseAssignedContainer(given.raw.getId())
                unasked.append(given.container_id)
        return tuple(asked), tuple(unasked)

    def _forget(self, allocation_request_id: int) -> bool:
        request = self._asked.pop(allocation_request_id, None)
        if request is not None:
            self._client.removeContainerRequest(request)
        return request is not None


def _preempted(message: Any) -> tuple[str, ...]:
    if message is None:
        return ()
    contracts = (message.getStrictContract(), message.getContract())
    return tuple(str(one.getId()) for contract in contracts if contract is not None for one in contract.getContainers())
