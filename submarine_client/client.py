"""The client library: the calls of ClientService, blocking, with the product's own values and errors."""

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
"""How long an answer may take, unless the caller says otherwise: enough for a ResourceManager on a starved machine.

Where nobody listens a call ends at once, whatever this says."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    # A proxy for the web is no way to a ResourceManager.
    ("grpc.enable_http_proxy", 0),
    # A ResourceManager that restarts is found again within seconds. The least backoff stays as it is: gRPC takes it for
    # how long a connection may take to be made, too, and on a starved machine that is a second and more.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


class Client:
    """A connection to one ResourceManager; a context manager. Safe to use from several threads.

    Every call raises UnreachableError when nobody answers, NotFoundError for an app that is not known, InputError for
    whatever the ResourceManager refuses.

    Args:
        address: HOST:PORT of the ResourceManager.
        timeout_s: How long each answer may take; streams that follow have no limit.
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
        """Close the connection; calls in progress are cancelled."""
        self._channel.close()

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the ResourceManager accepts connections; raises UnreachableError after `timeout_s` seconds."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise unreachable(self.address) from None

    def submit(self, spec: AppSpec) -> str:
        """Submit an app; returns its id."""
        app_id: str = self._call(self._stub.Submit, pb.SubmitRequest(spec=_message(spec))).app_id
        return app_id

    def validate(self, spec: AppSpec) -> str:
        """Have the ResourceManager check an app without running it; returns its summary."""
        summary: str = self._call(self._stub.Validate, pb.SubmitRequest(spec=_message(spec))).summary
        return summary

    def list(self, states: Sequence[str] = ()) -> tuple[pb.AppStatus, ...]:
        """The apps in these states, or all."""
        return tuple(self._call(self._stub.List, pb.ListRequest(states=states)).apps)

    def show(self, app_id: str) -> pb.AppStatus:
        """One app."""
        status: pb.AppStatus = self._call(self._stub.Show, pb.ShowRequest(app_id=app_id))
        return status

    def find(self, reference: str) -> pb.AppStatus:
        """One app by its id, or by its name where only one app has it.

        Raises:
            UnknownNameError: There is none; the nearest id or name is named.
            InputError: Several apps have that name; their ids are named.
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
        """End an app; returns it as it is then."""
        status: pb.AppStatus = self._call(self._stub.Kill, pb.KillRequest(app_id=app_id, reason=reason))
        return status

    def watch(self, app_id: str = "", *, after_sequence: int = 0, follow: bool = True) -> Iterator[pb.Event]:
        """Events after `after_sequence`, of one app or of all; with `follow`, goes on as they happen."""
        request = pb.WatchRequest(app_id=app_id, after_sequence=after_sequence, follow=follow)
        return self._stream(self._stub.Watch, request, follow=follow)

    def logs(self, app_id: str, job_id: str = "", *, follow: bool = False) -> Iterator[pb.LogChunk]:
        """What the tasks of an app, or of one job, have written; with `follow`, goes on until the app ends."""
        request = pb.LogsRequest(app_id=app_id, job_id=job_id, follow=follow)
        return self._stream(self._stub.Logs, request, follow=follow)

    def cluster(self) -> pb.ClusterStatus:
        """The cluster, how much of it is leased, and the policy."""
        status: pb.ClusterStatus = self._call(self._stub.ClusterInfo, pb.ClusterRequest())
        return status

    def _call(self, method: Any, request: Any) -> Any:
        with translated(self.address):
            return method(request, timeout=self._timeout_s)

    def _stream(self, method: Any, request: Any, *, follow: bool) -> Iterator[Any]:
        with translated(self.address):
            # A whole log takes longer than an answer; only silence from the start is an error, and gRPC reports that.
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
