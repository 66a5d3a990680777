"""An emulated app master: the product's session and agent, without jobs.

It registers, sends heartbeats, answers rounds with the real agent's reports and bids, holds leases, and gives them back
once they are not renewed. What it lacks is work: its only job never makes a step, so no app ends, and a heartbeat
repeats the content of the last one until the leases change.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from functools import lru_cache

from msgspec.structs import replace

from am.agent.model.fairness import declaration_of
from am.agent.model.views import AppView, ClusterView, JobView
from am.app_view import held_gang, make_cluster_view, renewable_gpus
from am.attempt_token import read_token
from am.negotiator import Negotiator
from am.session import RmSession
from themis.apps import AppSpec, Slowdown
from themis.choices import BundleRule
from themis.clock import Clock
from themis.cluster import Cluster, GpuId
from themis.leases import Lease, renewable_until_s
from themis.lifecycle import JobState, LeaseState
from themis.wire import themis_pb2 as pb
from themis.wire.values import (
    app_from_message,
    cluster_from_message,
    declaration_to_message,
    lease_from_message,
    phases_to_messages,
)

GIVE_UP_S = 600.0
"""How long an emulated app master looks for a ResourceManager that is unavailable."""
RESTART_S = 5.0
_SLOWDOWN = Slowdown(1.0, 1.0, 1.1, 1.2)


class EmulatedApp:
    """What an app's agent looks at: one job, which waits for its gang or holds it.

    Args:
        registered: The ResourceManager's answer to the registration.
        clock: This machine's clock, which is the ResourceManager's too.
    """

    def __init__(self, registered: pb.Registered, clock: Clock) -> None:
        self.app_id: str = registered.app_id
        self.spec: AppSpec = app_from_message(registered.spec)
        self.cluster, view = _cluster_of(
            registered.cluster.SerializeToString(deterministic=True), registered.lease_s, registered.bundle_rule
        )
        self.cluster_view: ClusterView = replace(view, active_apps=max(1, registered.active_apps))
        self.leases: dict[GpuId, Lease] = {}
        self.reserved: frozenset[GpuId] = frozenset()
        self._contention = registered.contention
        self._submitted_at_s, self._lead_s = registered.submitted_at_s, registered.checkpoint_lead_s
        self._clock = clock
        job = self.spec.jobs[0]
        self._job = JobView(
            job_id=job.job_id,
            iterations_left=job.iterations_total,
            serial_iteration_s=self.spec.estimate.serial_iteration_s or 1.0,
            slowdown=_SLOWDOWN,
            shape=job.shape,
        )

    def set_contention(self, *, contention: float, active_apps: int) -> None:
        """Note the cluster's contention."""
        self._contention = contention
        self.cluster_view = replace(self.cluster_view, active_apps=max(1, active_apps))

    def view(self, planned: Mapping[str, tuple[GpuId, ...]], round_at_s: float = -math.inf) -> AppView:  # noqa: ARG002
        """The app now; its job holds all its GPUs, reserved ones included."""
        gpus = sorted({gpu for gpu, lease in self.leases.items() if lease.state is LeaseState.GRANTED} | self.reserved)
        until_s = renewable_until_s(round_at_s, self._lead_s)
        renewable = renewable_gpus(gpus, self.leases, self.reserved, until_s) or ()
        return AppView(
            app_id=self.app_id,
            elapsed_s=self._clock.now_s() - self._submitted_at_s,
            contention=max(1.0, self._contention),
            jobs=(self._job,),
            work_total_gpu_s=self._job.serial_work_s,
            demand_max_gpus=self._job.shape.demand_max_gpus,
            held=(held_gang(self._job.job_id, gpus, renewable, self.cluster),) if gpus else (),
            restart_s=RESTART_S,
        )

    def heartbeat(self) -> pb.Heartbeat:
        """What a heartbeat says as long as the leases stay the same."""
        declared = declaration_of(self.view({}), self.cluster_view)
        state = JobState.RUNNING if self.leases else JobState.WAITING
        unmet_gpus = self._job.shape.demand_max_gpus - len(self.leases) - len(self.reserved)
        return pb.Heartbeat(
            jobs=[pb.JobStatus(job_id=self._job.job_id, state=state.value, gpus=len(self.leases))],
            phases=1,
            unmet_gpus=max(0, unmet_gpus),
            declaration=declaration_to_message(declared),
            phases_left=phases_to_messages(declared.phases),
            restart_s=RESTART_S,
        )


@lru_cache(maxsize=2)
def _cluster_of(content: bytes, lease_s: float, rule: str) -> tuple[Cluster, ClusterView]:
    """The cluster of a registration: all app masters of a driver share it, as each process would have its own."""
    cluster = cluster_from_message(pb.Cluster.FromString(content))
    return cluster, make_cluster_view(cluster, active_apps=1, lease_s=lease_s, rule=BundleRule(rule))


class EmulatedAppMaster:
    """One attempt of an app. `heartbeats` collects when each was sent, and the seconds until its acknowledgement."""

    def __init__(self, environment: Mapping[str, str], clock: Clock, heartbeats: list[tuple[float, float]]) -> None:
        self._environment = environment
        self._token = read_token(environment)
        self._clock = clock
        self._heartbeats = heartbeats
        self._app: EmulatedApp | None = None
        self._negotiator: Negotiator
        self._beat: pb.Heartbeat
        self._beats: dict[int, float] = {}
        self._session = RmSession(
            environment["THEMIS_RM_ADDRESS"],
            self._register,
            self._on_message,
            clock=clock,
            give_up_s=GIVE_UP_S,
            # Every app master has a connection of its own, as if it were a process of its own.
            options=(("grpc.use_local_subchannel_pool", 1),),
        )

    async def run(self) -> None:
        """Play the app master until cancelled."""
        await self._session.run()

    async def beat(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            if self._app is not None:
                message = pb.AmMessage(heartbeat=self._beat)
                self._session.send(message)
                self._beats[message.id] = self._clock.now_s()
            await asyncio.sleep(self._every_s)

    _every_s = 1.0

    def _register(self) -> pb.Register:
        held = [] if self._app is None else [lease.lease_id for lease in self._app.leases.values()]
        environment = self._environment
        return pb.Register(
            app_id=environment["THEMIS_APP_ID"],
            attempt=int(environment["THEMIS_ATTEMPT"]),
            token=self._token,
            held_lease_ids=held,
            has_code=True,
        )

    def _on_message(self, message: pb.RmMessage) -> None:
        body = message.WhichOneof("body")
        if body == "registered":
            self._app = EmulatedApp(message.registered, self._clock)
            self._every_s = message.registered.heartbeat_s
            self._negotiator = Negotiator(self._app, dict)
            self._beats.clear()
            self._take_leases(self._app, message.registered.leases)
        elif self._app is None:
            return
        elif body == "ask_rho":
            self._session.send(self._negotiator.report(message.ask_rho))
        elif body == "offer":
            self._session.send(self._negotiator.bid(message.offer))
        elif body == "leases":
            self._take_leases(self._app, message.leases)
        elif body == "acknowledge":
            self._every_s = message.acknowledge.heartbeat_s
            sent_s = self._beats.pop(message.acknowledge.of_id, None)
            if sent_s is not None:
                self._heartbeats.append((sent_s, self._clock.now_s() - sent_s))

    def _take_leases(self, app: EmulatedApp, update: pb.LeaseUpdate) -> None:
        leases = [lease_from_message(lease, app.app_id) for lease in update.leases]
        had = bool(app.leases)
        app.leases = {lease.gpu: lease for lease in leases if lease.state is LeaseState.GRANTED}
        app.reserved = frozenset(lease.gpu for lease in leases if lease.state is LeaseState.RESERVED)
        if ended := [lease.lease_id for lease in leases if lease.state is LeaseState.EXPIRING]:
            self._session.send(pb.AmMessage(release=pb.Release(lease_ids=ended, reason="its lease ended")))
        if had != bool(app.leases):
            state = JobState.RUNNING if app.leases else JobState.WAITING
            event = pb.JobEvent(
                job_id=app.spec.jobs[0].job_id,
                kind="job_state",
                time_s=self._clock.now_s(),
                detail=json.dumps({"state": state.value}),
            )
            self._session.send(pb.AmMessage(job_event=event))
        self._beat = app.heartbeat()
