"""An in-process ResourceManager that answers clients from a script: what each app's status is at each look."""

# gRPC names the methods.
# ruff: noqa: N802

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from free_ports import free_port

from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc


class FakeService(rpc.ClientServiceServicer):
    """Holds apps as lists of statuses: each Show takes the next one, the last stays."""

    def __init__(self) -> None:
        self.apps: dict[str, list[pb.AppStatus]] = {}
        self.submitted: list[pb.AppSpec] = []
        self.killed: list[tuple[str, str]] = []
        self.killed_state = "KILLED"
        self.paused: list[tuple[str, str]] = []
        self.resumed: list[str] = []
        self.log_requests: list[pb.LogsRequest] = []
        self.list_requests: list[pb.ListRequest] = []
        self.chunks: list[pb.LogChunk] = []
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self.then = ["FINISHED"]
        self.shows = 0
        self.has_pages = True
        self.now_s = 0.0
        self.runs_on = ""
        self.page_url = ""
        self.events = [
            pb.Event(sequence=sequence, kind="app_state", app_id="a-1", detail="{}") for sequence in range(1, 4)
        ]
        self.cluster = pb.ClusterStatus(gpus=8, policy="themis")

    def add(self, app_id: str, *states: str, name: str = "app", **values) -> None:
        self.apps[app_id] = [
            pb.AppStatus(**{"app_id": app_id, "name": name, "state": state, "gpus": int(state == "RUNNING")} | values)
            for state in states
        ]

    def Submit(self, request, context):
        if self.refuse:
            context.abort(*self.refuse)
        self.submitted.append(request.spec)
        app_id = f"app-{len(self.submitted):04d}"
        self.add(app_id, *self.then, name=request.spec.name, tuner=request.spec.tuner.name, spec=request.spec)
        return pb.SubmitReply(app_id=app_id, runs_on=self.runs_on, page_url=self.page_url)

    def Validate(self, request, context):
        return pb.ValidateReply(summary=f"{len(request.spec.jobs)} jobs fit the cluster")

    def List(self, request, context):
        self.list_requests.append(request)
        if not self.has_pages:
            return pb.ListReply(apps=[statuses[0] for statuses in self.apps.values()])
        apps = [statuses[0] for statuses in reversed(self.apps.values())]
        wanted = [app for app in apps if not request.states or app.state in request.states]
        begin = int(request.after or 0)
        end = begin + (request.limit or len(wanted))
        mark = str(end) if end < len(wanted) else ""
        return pb.ListReply(apps=wanted[begin:end], next=mark, total=len(wanted), now_s=self.now_s)

    def Show(self, request, context):
        self.shows += 1
        named = [statuses for statuses in self.apps.values() if statuses[0].name == request.app_id]
        statuses = self.apps.get(request.app_id) or (named[0] if named else None)
        if statuses is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown app: {request.app_id!r}")
        shown = pb.AppStatus()
        shown.CopyFrom(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        if not request.environment:
            for variable in shown.spec.program.environment if shown.HasField("spec") else ():
                shown.spec.program.environment[variable] = "(hidden)"
        return shown

    def Kill(self, request, context):
        if self.refuse:
            context.abort(*self.refuse)
        self.killed.append((request.app_id, request.reason))
        return pb.AppStatus(app_id=request.app_id, state=self.killed_state)

    def Pause(self, request, context):
        if self.refuse:
            context.abort(*self.refuse)
        self.paused.append((request.app_id, request.reason))
        return pb.AppStatus(app_id=request.app_id, state="RUNNING")

    def Resume(self, request, context):
        self.resumed.append(request.app_id)
        return pb.AppStatus(app_id=request.app_id, state="ACCEPTED")

    def Watch(self, request, context):
        yield from self.events[request.after_sequence :]

    def Logs(self, request, context):
        self.log_requests.append(request)
        yield from self.chunks

    def ClusterInfo(self, request, context):
        return self.cluster


class FakeRm:
    """The service on a port of its own; it can go away and come back on the same port."""

    def __init__(self) -> None:
        self.service = FakeService()
        self.port = free_port("127.0.0.1")
        self._server: grpc.Server | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        rpc.add_ClientServiceServicer_to_server(self.service, self._server)
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None
