"""The agent host: answers rounds for all apps without an app master, `python -m am.agent_host`.

These are apps that wait for their first GPUs, of which it has the specification, and resting ones, whose app master has
ended after a long wait, and has left a view of the app.

The ResourceManager starts it and writes requests to its standard input (`HostRequest`). The host evaluates all apps of
a question in one call of the agent. It keeps an outlook for each app: nothing happens to an app that holds no GPUs, so
only the time and N_avg change from round to round.

Example: 1,000 apps enter, with a first report each. A round asks for 1,000 reports, and gets their times from one
evaluation. The app that wins GPUs leaves: its app master reports from then on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from am.agent.bids.bidding import BidMemory, make_bids
from am.agent.bids.reports import make_reports, report_times
from am.agent.model.outlook import Outlook
from am.agent.model.views import ClusterView
from am.app_view import view_from_bytes
from am.jobs.search_state import SearchState
from am.journal import Journal
from am.journal_store import EmptyJournal
from am.searched_app import SearchedApp, registered_cluster
from am.status import LossCurves, heartbeat_message
from themis.bids import Bid
from themis.cluster import Cluster
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message, offer_from_message, report_to_message

LOG = logging.getLogger("themis.am.host")

_LENGTH = struct.Struct(">I")

Floats = NDArray[np.float64]
A = TypeVar("A")


class AgentHost:
    """The apps without an app master. A request is answered without I/O."""

    def __init__(self) -> None:
        self._cluster: Cluster
        self._cluster_view: ClusterView
        self._time_scale = 1.0
        self._outlooks: dict[str, Outlook] = {}
        self._submitted_at_s: dict[str, float] = {}
        self._memory = BidMemory()

    def answer(self, request: pb.HostRequest) -> pb.HostReply:
        """Answer a request."""
        if request.HasField("cluster"):
            self._cluster, self._cluster_view = registered_cluster(request.cluster)
            self._time_scale = request.cluster.time_scale
            self._outlooks.clear()
            self._submitted_at_s.clear()
        for app_id in request.leave:
            self._outlooks.pop(app_id, None)
            self._submitted_at_s.pop(app_id, None)
        reply = pb.HostReply(entered=[self._enter(app) for app in request.enter])
        if request.HasField("ask_rho"):
            self._report(request, reply)
        elif request.HasField("offer"):
            self._bid(request, reply)
        return reply

    def _enter(self, message: pb.HostedApp) -> pb.FirstReport:
        try:
            return self._first_report(message)
        except Exception as error:
            # One app must not end the host of all others. Its app master will say what is wrong with it.
            LOG.warning("%s cannot be evaluated", message.app_id, exc_info=True)
            return pb.FirstReport(app_id=message.app_id, problem=f"{type(error).__name__}: {error}")

    def _first_report(self, message: pb.HostedApp) -> pb.FirstReport:
        spec = app_from_message(message.spec)
        lease_s = self._cluster_view.lease_s
        search = SearchState(spec, Path(), self._time_scale, Journal(EmptyJournal()), lambda _: None, lease_s=lease_s)
        search.fit_cluster(self._cluster)
        search.remeasure()
        app = SearchedApp(
            message.app_id,
            spec,
            search,
            self._cluster_view,
            submitted_at_s=message.submitted_at_s,
            contention=1.0,
            checkpoint_uri=spec.checkpoint_uri,
        )
        if message.view:
            view, heartbeat = view_from_bytes(message.view, spec, search.first_phases), None
        else:
            view = app.view_at(message.submitted_at_s)
            heartbeat = heartbeat_message(app, view, LossCurves(), None)
        outlook = Outlook(view, self._cluster_view)
        report = make_reports([outlook], np.zeros(1), np.ones(1), self._cluster_view, 0)[0]
        self._outlooks[message.app_id] = outlook
        self._submitted_at_s[message.app_id] = message.submitted_at_s
        return pb.FirstReport(app_id=message.app_id, report=report_to_message(report), heartbeat=heartbeat)

    def _report(self, request: pb.HostRequest, reply: pb.HostReply) -> None:
        question = request.ask_rho
        view = self._view_of(question.active_apps)

        def make(app_ids: Sequence[str]) -> list[Floats]:
            moment = self._moment(app_ids, request, question.now_s)
            return list(report_times([self._outlooks[app_id] for app_id in app_ids], *moment, view))

        times = np.array(_all_that_can(make, request.app_ids, reply)).reshape(-1, 3)
        reply.rho.extend(times[:, 0].tolist())
        reply.t_shared_s.extend(times[:, 1].tolist())
        reply.t_ideal_s.extend(times[:, 2].tolist())

    def _bid(self, request: pb.HostRequest, reply: pb.HostReply) -> None:
        offer = offer_from_message(request.offer)
        view = replace(self._view_of(offer.active_apps), lease_s=offer.lease_s)

        def make(app_ids: Sequence[str]) -> list[Bid]:
            moment = self._moment(app_ids, request, offer.now_s)
            return make_bids([self._outlooks[app_id] for app_id in app_ids], *moment, offer, view, self._memory)

        reply.bids = msgspec.msgpack.encode(_all_that_can(make, request.app_ids, reply))

    def _moment(self, app_ids: Sequence[str], request: pb.HostRequest, now_s: float) -> tuple[Floats, Floats]:
        """Seconds since each app was submitted, and N_avg of each."""
        contentions = dict(zip(request.app_ids, request.contentions, strict=True))
        submitted_s = np.array([self._submitted_at_s[app_id] for app_id in app_ids])
        return now_s - submitted_s, np.maximum(1.0, [contentions[app_id] for app_id in app_ids])

    def _view_of(self, active_apps: int) -> ClusterView:
        return replace(self._cluster_view, active_apps=max(1, active_apps))


def _all_that_can(make: Callable[[Sequence[str]], list[A]], app_ids: Sequence[str], reply: pb.HostReply) -> list[A]:
    """Return the answers of all apps, or of those that can be evaluated alone; the others have `failed`."""
    try:
        return make(app_ids)
    except Exception:
        LOG.exception("%d apps cannot be evaluated together", len(app_ids))
    answers: list[A] = []
    for app_id in app_ids:
        try:
            answers += make([app_id])
        except Exception:
            LOG.exception("%s cannot be evaluated", app_id)
            reply.failed.append(app_id)
    return answers


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until their stream ends."""
    host = AgentHost()
    while len(head := requests.read(_LENGTH.size)) == _LENGTH.size:
        request = pb.HostRequest.FromString(requests.read(*_LENGTH.unpack(head)))
        content = host.answer(request).SerializeToString()
        replies.write(_LENGTH.pack(len(content)) + content)
        replies.flush()


def main() -> int:
    """Serve on standard input and output; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # Ctrl-C in a terminal is for the ResourceManager, and the end of the pipe ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The ResourceManager may be killed before it reads a reply.
    with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(sys.stdout.fileno()), "wb") as replies:
        # What a library prints must not get among the replies.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        serve(sys.stdin.buffer, replies)
    return 0


if __name__ == "__main__":
    sys.exit(main())
