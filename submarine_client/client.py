"""The client library: blocking calls of ClientService that return our values and raise our errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from submarine_client.rpc_errors import NotFoundError, translated, unreachable
from themis.apps import AppSpec
from themis.errors import InputError, UnknownNameError
from themis.wire import themis_pb2 as pb
from themis.wire.themis_pb2_grpc import ClientServiceStub
from themis.wire.values import app_to_message

CALL_TIMEOUT_S = 30.0
"""The default time limit of a call, in seconds: enough for a ResourceManager on an overloaded machine.

A call to an address where no process listens fails at once."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    # A web proxy does not reach a ResourceManager.
    ("grpc.enable_http_proxy", 0),
    # Find a restarted ResourceManager within seconds. The minimum backoff keeps its default: gRPC also uses it as the
    # time limit of a connection attempt, which takes over a second on an overloaded machine.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


class Client:
    """A connection to one ResourceManager; a context manager. Safe to use from several threads.

    Every call raises UnreachableError if the ResourceManager does not answer, NotFoundError for an unknown app, and
    InputError for a request that the ResourceManager refuses.

    Args:
        address: HOST:PORT of the ResourceManager.
        timeout_s: The limit of each call in seconds; streams with `follow` have none.
    """

    def __init__(self, address: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._stub = ClientServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Calls in progress are cancelled."""
        self._channel.close()

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the ResourceManager accepts connections. Raises UnreachableError after `timeout_s` seconds."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise unreachable(self.address) from None

    def submit(self, spec: AppSpec) -> str:
        """Submit an app and return its id."""
        app_id: str = self._call(self._stub.Submit, pb.SubmitRequest(spec=_message(spec))).app_id
        return app_id

    def validate(self, spec: AppSpec) -> str:
        """Let the ResourceManager check an app without running it. Returns its summary."""
        summary: str = self._call(self._stub.Validate, pb.SubmitRequest(spec=_message(spec))).summary
        return summary

    def list(self, states: Sequence[str] = ()) -> tuple[pb.AppStatus, ...]:
        """Return the apps in these states, or all apps."""
        return tuple(self._call(self._stub.List, pb.ListRequest(states=states)).apps)

    def show(self, app_id: str) -> pb.AppStatus:
        """Return one app."""
        status: pb.AppStatus = self._call(self._stub.Show, pb.ShowRequest(app_id=app_id))
        return status

    def find(self, reference: str) -> pb.AppStatus:
        """Return one app by its id, or by its name if only one app has it.

        Raises:
            UnknownNameError: No app has this id or name. The message names the nearest one.
            InputError: Several apps have this name. The message lists their ids.
        """
        try:
            return self.show(reference)
        except NotFoundError:
            apps = self.list()
        named = [app for app in apps if app.name == reference]
        if not named:
            raise UnknownNameError("app", reference, {known for app in apps for known in (app.app_id, app.name)})
        if len(named) > 1:
            ids = ", ".join(f"{app.app_id} ({app.state})" for app in named)
            raise InputError("several apps have that name", value=reference, remedy=f"name one by its id: {ids}")
        return self.show(named[0].app_id)

    def kill(self, app_id: str, reason: str = "") -> pb.AppStatus:
        """Kill an app. Returns its status after the request."""
        status: pb.AppStatus = self._call(self._stub.Kill, pb.KillRequest(app_id=app_id, reason=reason))
        return status

    def watch(self, app_id: str = "", *, after_sequence: int = 0, follow: bool = True) -> Iterator[pb.Event]:
        """Yield events after `after_sequence`, of one app or of all. With `follow`, wait for new events too."""
        request = pb.WatchRequest(app_id=app_id, after_sequence=after_sequence, follow=follow)
        return self._stream(self._stub.Watch, request, follow=follow)

    def logs(self, app_id: str, job_id: str = "", *, follow: bool = False) -> Iterator[pb.LogChunk]:
        """Yield the logs of an app's tasks, or of one job's. With `follow`, wait for more until the app ends."""
        request = pb.LogsRequest(app_id=app_id, job_id=job_id, follow=follow)
        return self._stream(self._stub.Logs, request, follow=follow)

    def cluster(self) -> pb.ClusterStatus:
        """Return the cluster, its leased GPUs and the policy."""
        status: pb.ClusterStatus = self._call(self._stub.ClusterInfo, pb.ClusterRequest())
        return status

    def _call(self, method: Any, request: Any) -> Any:
        with translated(self.address):
            return method(request, timeout=self._timeout_s)

    def _stream(self, method: Any, request: Any, *, follow: bool) -> Iterator[Any]:
        with translated(self.address):
            # A whole log may take longer than `timeout_s`. gRPC itself reports a ResourceManager that never answers.
            call = method(request, timeout=None if follow else self._timeout_s * 6)
            try:
                yield from call
            finally:
                call.cancel()


def _message(spec: AppSpec) -> pb.AppSpec:
    try:
        return app_to_message(spec)
    except ValueError as error:
        raise InputError(
            "a number is too large", value=str(error), remedy="whole numbers have at most 63 bits"
        ) from None
