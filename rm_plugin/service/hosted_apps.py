"""The apps for which the agent host answers: accepted apps without an app master, which hold nothing.

What follows from an app's specification, or from the view that its last app master left, comes once, when the app
enters the host: its demands, its phases, its heartbeat. A round then asks for all of them at once, and gets the three
times of each report. The host keeps nothing that is not here, so one that is lost is replaced, and all apps enter the
new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.host_process import AgentHost, HostLostError
from themis.bids import AppReport, Bid
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, report_from_message

LOG = logging.getLogger("themis.rm")

_ENTER_AT_ONCE = 200
"""Apps that enter with one request: a request is answered within a second, and rounds can come between."""

A = TypeVar("A")


class HostedApps:
    """Keeps the host up to date, and asks it. Belongs to the ResourceManager's loop.

    Args:
        host: Answers.
        cluster: Returns the cluster as a registration has it: the same message as long as it stays the same.
        on_entered: Called for each app that the host has evaluated for the first time, with its heartbeat.
        on_failed: Called for each app that the host cannot evaluate. It must take the app out.
    """

    def __init__(
        self,
        host: AgentHost,
        cluster: Callable[[], pb.Registered],
        on_entered: Callable[[AppEntry, pb.Heartbeat], None],
        on_failed: Callable[[AppEntry, str], None],
    ) -> None:
        self._host, self._cluster = host, cluster
        self._on_entered, self._on_failed = on_entered, on_failed
        self._apps: dict[str, AppEntry] = {}
        self._to_enter: dict[str, AppEntry] = {}
        self._suspects: set[str] = set()
        self._to_leave: set[str] = set()
        self._first_reports: dict[str, AppReport] = {}
        self._sent_cluster: pb.Registered | None = None
        self._one_at_a_time = asyncio.Lock()
        self._entering: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def __contains__(self, app_id: object) -> bool:
        return app_id in self._apps

    def __len__(self) -> int:
        return len(self._apps)

    def add(self, entry: AppEntry) -> None:
        """Let the host answer for an app from now on."""
        self._apps[entry.app_id] = self._to_enter[entry.app_id] = entry
        self._enter_soon()

    def discard(self, app_id: str) -> bool:
        """Let the host answer for an app no longer. Returns whether it did."""
        if self._apps.pop(app_id, None) is None:
            return False
        if self._to_enter.pop(app_id, None) is None:
            self._to_leave.add(app_id)
        self._first_reports.pop(app_id, None)
        self._suspects.discard(app_id)
        return True

    async def reports(
        self, question: pb.AskRho, contentions: Mapping[str, float], *, pause_s: float, max_s: float
    ) -> dict[str, AppReport]:
        """Return the reports of apps, each with its N_avg.

        Apps that have not entered after `pause_s` seconds are not asked. There are none of a host that does not answer
        within `max_s` seconds.
        """
        return await self._answers(lambda: self._report(question, contentions), pause_s, max_s)

    async def bids(
        self, offer: pb.Offer, contentions: Mapping[str, float], *, pause_s: float, max_s: float
    ) -> dict[str, Bid]:
        """Return the bids of apps; see `reports`."""
        return await self._answers(lambda: self._bid(offer, contentions), pause_s, max_s)

    def start(self) -> None:
        """Start the host, so that the first app does not wait for it."""
        self._enter_soon()

    async def close(self) -> None:
        """End the host."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._host.close()

    # ---- questions ----

    async def _report(self, question: pb.AskRho, contentions: Mapping[str, float]) -> dict[str, AppReport]:
        request = self._question(contentions)
        request.ask_rho.CopyFrom(question)
        reply = await self._ask(request)
        asked = self._that_answered(request, reply)
        times = zip(asked, reply.rho, reply.t_shared_s, reply.t_ideal_s, strict=True)
        return {
            app_id: replace(
                self._first_reports[app_id],
                round_id=question.round_id,
                rho=rho,
                t_shared_s=t_shared_s,
                t_ideal_s=t_ideal_s,
            )
            for app_id, rho, t_shared_s, t_ideal_s in times
            if app_id in self._apps
        }

    async def _bid(self, offer: pb.Offer, contentions: Mapping[str, float]) -> dict[str, Bid]:
        request = self._question(contentions)
        request.offer.CopyFrom(offer)
        reply = await self._ask(request)
        bids = msgspec.msgpack.decode(reply.bids, type=list[Bid])
        asked = zip(self._that_answered(request, reply), bids, strict=True)
        return {app_id: bid for app_id, bid in asked if app_id in self._apps}

    def _question(self, contentions: Mapping[str, float]) -> pb.HostRequest:
        """Return a question to those of the apps that the host has evaluated."""
        known = {app_id: contention for app_id, contention in contentions.items() if app_id in self._first_reports}
        return pb.HostRequest(app_ids=known.keys(), contentions=known.values())

    def _that_answered(self, request: pb.HostRequest, reply: pb.HostReply) -> Sequence[str]:
        failed = set(reply.failed)
        for app_id in failed & self._apps.keys():
            self._on_failed(self._apps[app_id], "an answer to a round failed")
        return [app_id for app_id in request.app_ids if app_id not in failed]

    async def _answers(
        self, ask: Callable[[], Coroutine[Any, Any, dict[str, A]]], pause_s: float, max_s: float
    ) -> dict[str, A]:
        """Ask what `ask` asks, after the apps have entered. A host that is lost meanwhile is replaced once.

        A host that has not answered within `max_s` seconds goes on, so that the next question finds it ready.
        """
        loop = asyncio.get_running_loop()
        enter_until_s = loop.time() + pause_s

        async def answers() -> dict[str, A]:
            async with self._one_at_a_time:
                for _ in range(2):
                    try:
                        while self._is_outdated or (self._to_enter and loop.time() < enter_until_s):
                            await self._enter_some()
                        return await ask()
                    except HostLostError as error:
                        self._lost(error)
                return {}

        asking = self._spawn(answers())
        done, _ = await asyncio.wait({asking}, timeout=max_s)
        return asking.result() if done else {}

    # ---- what the host knows ----

    @property
    def _is_outdated(self) -> bool:
        sent, now = self._sent_cluster, self._cluster()
        # To compare the messages of thousands of machines takes long, and mostly it is the same one.
        return sent is not now and sent != now

    def _enter_soon(self) -> None:
        if self._entering is None or self._entering.done():
            self._entering = self._spawn(self._enter_all())

    async def _enter_all(self) -> None:
        while self._to_enter or self._is_outdated:
            async with self._one_at_a_time:
                try:
                    await self._enter_some()
                except HostLostError as error:
                    self._lost(error)
                    await asyncio.sleep(1.0)

    async def _enter_some(self) -> None:
        """Let some apps enter; all anew if the cluster has changed."""
        request = pb.HostRequest()
        cluster = self._cluster()
        if self._is_outdated:
            request.cluster.CopyFrom(cluster)
            self._begin_anew()
        others = ((app_id, entry) for app_id, entry in self._to_enter.items() if app_id not in self._suspects)
        some = dict(islice(others, _ENTER_AT_ONCE)) or dict(islice(self._to_enter.items(), 1))
        request.enter.extend(
            [
                pb.HostedApp(
                    app_id=app_id,
                    spec=app_to_message(entry.spec),
                    submitted_at_s=entry.arrived_at_s,
                    view=entry.resting_view,
                )
                for app_id, entry in some.items()
            ]
        )
        try:
            reply = await self._ask(request)
        except HostLostError:
            self._note_lost_with(some)
            raise
        self._sent_cluster = cluster
        self._suspects.difference_update(some)
        for first in reply.entered:
            self._take(first)

    def _note_lost_with(self, some: Mapping[str, AppEntry]) -> None:
        """One of these apps may have ended the host: they enter after all others, one by one.

        An app with which the host is lost for a second time is the one.
        """
        again = self._suspects & some.keys()
        self._suspects = (self._suspects | some.keys()) - again
        for app_id in sorted(again):
            self._on_failed(some[app_id], "the agent host was lost while it evaluated the app")

    def _take(self, first: pb.FirstReport) -> None:
        entry = self._to_enter.pop(first.app_id, None)
        if entry is None:
            # It went while it entered.
            self._to_leave.add(first.app_id)
        elif first.problem:
            self._on_failed(entry, first.problem)
        else:
            self._first_reports[first.app_id] = report_from_message(first.report, first.app_id)
            self._on_entered(entry, first.heartbeat if first.HasField("heartbeat") else entry.heartbeat)

    async def _ask(self, request: pb.HostRequest) -> pb.HostReply:
        leaving, self._to_leave = self._to_leave, set()
        request.leave.extend(sorted(leaving))
        return await self._host.ask(request)

    def _lost(self, error: HostLostError) -> None:
        LOG.warning("%s; another one is started for %d waiting apps", error, len(self._apps))
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._sent_cluster = None
        self._to_enter = dict(self._apps)
        self._to_leave.clear()
        self._first_reports.clear()

    def _spawn(self, work: Coroutine[Any, Any, A]) -> asyncio.Task[A]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
