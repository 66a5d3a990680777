"""An agent host within the test's process, and app masters that answer rounds by the agent but run nothing."""

from __future__ import annotations

import asyncio

from am.agent_host import AgentHost
from am.app import App
from am.journal import Journal
from am.journal_store import EmptyJournal
from am.negotiator import Negotiator
from rm_plugin.service.host_process import HostLostError
from rm_plugin.service.session import Session
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, Slowdown, TunerSpec
from themis.wire import themis_pb2 as pb

TUNERS = (
    TunerSpec(name="single"),
    TunerSpec(name="successive_halving", settings={"eta": 2}),
    TunerSpec(name="asynchronous_halving"),
    TunerSpec(name="performance_curve"),
)
ESTIMATES = (
    Estimate(),
    Estimate(serial_iteration_s=2.0),
    Estimate(serial_iteration_s=0.5, slowdown=Slowdown(1.0, 1.1, 1.5, 2.0)),
)


def specs():
    """Apps of every tuner and estimate, with shapes and lengths that differ."""
    for number, tuner in enumerate(TUNERS):
        for place, estimate in enumerate(ESTIMATES):
            shapes = JobShape(tasks=1 + place), JobShape(tasks=2, min_tasks=2), JobShape(tasks=2, gpus_per_task=2)
            yield AppSpec(
                name=f"app-{number}-{place}",
                user="user",
                tuner=tuner,
                program=ProgramSpec(name="replay" if place else "digits"),
                replay=bool(place),
                jobs=tuple(
                    JobSpec(
                        job_id=f"job-{index}",
                        shape=shapes[index % 3],
                        iterations_total=100 * (number + 1) + 10 * index,
                        speed_by_device={"v100": 2.0} if place == 2 else {},
                    )
                    for index in range(1 if tuner.name == "single" else 4)
                ),
                estimate=estimate,
            )


class InlineHost:
    """The host without its process. It forgets everything and fails at each request while `losses` is above 0."""

    def __init__(self):
        self.losses = 0
        self.requests = []
        self._host = AgentHost()

    async def ask(self, request):
        await asyncio.sleep(0)
        if self.losses > 0:
            self.losses -= 1
            self._host = AgentHost()
            raise HostLostError("lost by the test")
        self.requests.append(request)
        return pb.HostReply.FromString(self._host.answer(request).SerializeToString())

    async def close(self):
        self._host = AgentHost()


async def negotiate(rm, entry, session: Session, folder):
    """Answer the rounds of an app as its app master does, until the session ends. It starts no job."""
    negotiator = None
    number = 0
    async for message in session.outgoing():
        body = message.WhichOneof("body")
        if body == "registered":
            app = App(message.registered, folder, str(folder), Journal(EmptyJournal()), rm.clock)
            app.search.remeasure()
            negotiator = Negotiator(app, dict)
        elif body in ("ask_rho", "offer"):
            assert negotiator is not None
            reply = negotiator.report(message.ask_rho) if body == "ask_rho" else negotiator.bid(message.offer)
            number += 1
            reply.id = number
            await rm.manager.sessions.receive(entry, session, reply)
