"""The client library: blocking calls of ClientService that return our values and raise our errors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from submarine_client.credentials import Metadata
from submarine_client.link import Link
from submarine_client.rpc_errors import unreachable
from themis.apps import AppSpec
from themis.config.names import login_name
from themis.errors import InputError
from themis.tls import tls_failure
from themis.values import Value
from themis.wire import themis_pb2 as pb
from themis.wire.themis_pb2_grpc import ClientServiceStub
from themis.wire.values import app_to_message

CALL_TIMEOUT_S = 30.0
"""The default time limit of a call, in seconds: enough for a ResourceManager on an overloaded machine.

A call to an address where no process listens fails at once."""

_APPS_A_PAGE = 1000

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Find a restarted ResourceManager within seconds. The minimum backoff keeps its default: gRPC also uses it as the
    # time limit of a connection attempt, which takes over a second on an overloaded machine.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


class Listing(Value, frozen=True, kw_only=True):
    """Some apps, how many more there may be, and the ResourceManager's time, by which the ages of apps are counted."""

    apps: tuple[pb.AppStatus, ...]
    more: int
    now_s: float


class Connection:
    """A connection to one ResourceManager; a context manager. Safe to use from several threads.

    Every call raises UnreachableError if the ResourceManager does not answer, NotFoundError for an unknown app, and
    InputError for a request that the ResourceManager refuses.

    Args:
        address: HOST:PORT of the ResourceManager, or several with commas between.
        timeout_s: The limit of each call in seconds; streams with `follow` have none.
        ca: The file of the authorities to trust; None: see `Credentials`.
    """

    def __init__(self, address: str, *, timeout_s: float = CALL_TIMEOUT_S, ca: str | None = None) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._link = Link(address, ClientServiceStub, _OPTIONS, ca=ca)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Calls in progress are cancelled."""
        self._link.close()

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the ResourceManager accepts connections. Raises UnreachableError after `timeout_s` seconds."""
        try:
            grpc.channel_ready_future(self._link.channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise tls_failure(self.address, self._link.trust) or unreachable(self.address) from None

    def submit(self, spec: AppSpec) -> str:
        """Submit an app and return its id."""
        app_id: str = self.submission(spec).app_id
        return app_id

    def submission(self, spec: AppSpec) -> pb.SubmitReply:
        """Submit an app. Returns its id and the device types that can run it."""
        code = spec.program.code.content if spec.program.code else b""
        reply: pb.SubmitReply = self._call(self._stub.Submit, pb.SubmitRequest(spec=_message(spec), code=code))
        return reply

    def validate(self, spec: AppSpec) -> str:
        """Let the ResourceManager check an app without running it. Returns its summary."""
        summary: str = self._call(self._stub.Validate, pb.SubmitRequest(spec=_message(spec))).summary
        return summary

    def list(self, states: Sequence[str] = ()) -> tuple[pb.AppStatus, ...]:
        """Return the apps in these states, or all apps, in order of submission."""
        return self.first(states).apps

    def first(
        self,
        states: Sequence[str] = (),
        *,
        most: int | None = None,
        wanted: Callable[[pb.AppStatus], bool] | None = None,
        reasons: bool = False,
    ) -> Listing:
        """Return at most `most` apps in order of submission.

        Apps that have not ended go before the others, newer ones before older ones. `wanted` selects apps.
        With `reasons`, one's own apps say why they wait.
        """
        found: dict[str, pb.AppStatus] = {}
        mark, seen = "", 0
        while True:
            limit = min(most or _APPS_A_PAGE, _APPS_A_PAGE)
            request = pb.ListRequest(states=states, after=mark, limit=limit, reasons=reasons)
            reply = self._call(self._stub.List, request)
            seen += len(reply.apps)
            # A ResourceManager without pages sends all apps in order of submission, and no total.
            apps = reply.apps if reply.total else reversed(reply.apps)
            # An app that ends between two pages is on both.
            found |= {app.app_id: app for app in apps if wanted is None or wanted(app)}
            mark = reply.next
            if not mark or (most is not None and len(found) >= most):
                break
        shown = sorted(itertools.islice(found.values(), most), key=_submission)
        more = max(0, reply.total - seen) + len(found) - len(shown)
        # An older ResourceManager does not send its time.
        return Listing(apps=tuple(shown), more=more, now_s=reply.now_s or time.time())

    def show(self, app_id: str, *, environment: bool = False) -> pb.AppStatus:
        """Return one app by its id, or by its name: the running app of this name, else the newest one.

        Args:
            app_id: The id or name.
            environment: Whether the specification has the values of environment variables, which are else hidden.

        Raises:
            NotFoundError: No app has this id or name. The message names a similar one.
            InputError: Several running apps have this name. The message lists their ids.
        """
        status: pb.AppStatus = self._call(self._stub.Show, pb.ShowRequest(app_id=app_id, environment=environment))
        return status

    def kill(self, app_id: str, reason: str = "") -> pb.AppStatus:
        """Kill an app. Returns its status after the request."""
        status: pb.AppStatus = self._call(self._stub.Kill, pb.KillRequest(app_id=app_id, reason=reason))
        return status

    def pause(self, app_id: str, reason: str = "") -> pb.AppStatus:
        """Pause an app. Returns its status after the request."""
        status: pb.AppStatus = self._call(self._stub.Pause, pb.PauseRequest(app_id=app_id, reason=reason))
        return status

    def resume(self, app_id: str) -> pb.AppStatus:
        """Resume a paused app. Returns its status after the request."""
        status: pb.AppStatus = self._call(self._stub.Resume, pb.ResumeRequest(app_id=app_id))
        return status

    def watch(self, app_id: str = "", *, after_sequence: int = 0, follow: bool = True) -> Iterator[pb.Event]:
        """Yield events after `after_sequence`, of one app or of all. With `follow`, wait for new events too."""
        request = pb.WatchRequest(app_id=app_id, after_sequence=after_sequence, follow=follow)
        return self._stream(self._stub.Watch, request, follow=follow)

    def logs(self, app_id: str, job_id: str = "", *, follow: bool = False, tail: int = 0) -> Iterator[pb.LogChunk]:
        """Yield the logs of an app's tasks, or of one job's. A `tail` above 0 limits each log to its last lines.

        With `follow`, wait for more until the app ends.
        """
        request = pb.LogsRequest(app_id=app_id, job_id=job_id, follow=follow, tail_lines=tail)
        return self._stream(self._stub.Logs, request, follow=follow)

    def cluster(self) -> pb.ClusterStatus:
        """Return the cluster, its leased GPUs and the policy."""
        status: pb.ClusterStatus = self._call(self._stub.ClusterInfo, pb.ClusterRequest())
        return status

    def usage(self, month: str = "") -> Sequence[pb.UsageRow]:
        """Return GPU time by month, user, queue and device type; of all months if none is given."""
        rows: Sequence[pb.UsageRow] = self._call(self._stub.Usage, pb.UsageRequest(month=month)).rows
        return rows

    def _call(self, method: Any, request: Any) -> Any:
        with self._link.translated():
            return self._link.call(lambda metadata: method(request, timeout=self._timeout_s, metadata=metadata))

    def _stream(self, method: Any, request: Any, *, follow: bool) -> Iterator[Any]:
        with self._link.translated():
            # A whole log may take longer than `timeout_s`. gRPC itself reports a ResourceManager that never answers.
            timeout_s = None if follow else self._timeout_s * 6

            def begun(metadata: Metadata) -> tuple[Any, list[Any]]:
                """Wait for the first message, or the end: a refused caller is known then."""
                call = method(request, timeout=timeout_s, metadata=metadata)
                return call, list(itertools.islice(call, 1))

            call, first = self._link.call(begun)
            try:
                yield from first
                yield from call
            finally:
                call.cancel()

    @property
    def _stub(self) -> ClientServiceStub:
        return self._link.stub


def _submission(app: pb.AppStatus) -> tuple[float, int, str]:
    """The place of an app in order of submission; ids of apps submitted together have rising numbers."""
    return app.submitted_at_s, len(app.app_id), app.app_id


def _message(spec: AppSpec) -> pb.AppSpec:
    try:
        message = app_to_message(spec)
        # The ResourceManager knows its caller, maybe by another name. The name of another user is the caller's wish.
        if message.user == login_name():
            message.ClearField("user")
        return message
    except ValueError as error:
        raise InputError(
            "a number is too large", value=str(error), remedy="whole numbers have at most 63 bits"
        ) from None
