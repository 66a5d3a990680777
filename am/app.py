"""An app as its master knows it: jobs and search, leases, the cluster, and the views that the agent reasons about."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from am.agent.model.fairness import Valuer, declaration_of, fluid_phases, rho_by_definition
from am.agent.model.finish_time import finish_time_s
from am.agent.model.views import AppView, ClusterView, HeldGang
from am.app_view import (
    app_view,
    at_once_gpus,
    held_gang,
    is_bound,
    make_cluster_view,
    phase_views,
    reference_job,
    renewable_gpus,
    whole_view,
)
from am.checkpoints.store import CheckpointStore
from am.checkpoints.uri import open_store
from am.jobs.planner import Holdings
from am.jobs.search_state import SearchState
from am.journal import Journal
from themis.apps import CodeArchive
from themis.choices import BundleRule
from themis.clock import Clock
from themis.cluster import GpuId
from themis.code_archive import CODE_ARCHIVE
from themis.durations import median_with_cuts
from themis.errors import InputError, MissingHereError
from themis.fluid_cluster import Declaration, FluidPhase
from themis.leases import Lease, renewable_until_s
from themis.lifecycle import LeaseState
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message, cluster_from_message, lease_from_message

_STARTS_REMEMBERED = 9
PRIOR_RESTART_S = {True: 0.5, False: 8.0}
"""Seconds from the start of a job's tasks to its first step before any was measured: replayed, trained."""


def kept_code(code: CodeArchive | None, content: bytes, folder: Path) -> Path | None:
    """Write the archive of an app's code to the app's folder, or use that of an earlier attempt there.

    Args:
        code: The hash; None if no code travels with the app.
        content: What the ResourceManager sent; empty if it does not have the archive any more.
        folder: The app's folder.

    Raises:
        MissingHereError: There is no archive with this hash.
    """
    if code is None:
        return None
    path = folder / CODE_ARCHIVE
    if not content and path.is_file():
        content = path.read_bytes()
    if CodeArchive.of(content).sha256 != code.sha256:
        raise MissingHereError("the app's code is not there", value=code.sha256, remedy="submit the app again")
    path.write_bytes(content)
    return path


class App:
    """The state of one app in one attempt. Times are on the ResourceManager's clock.

    Args:
        registered: The ResourceManager's answer to the registration.
        folder: The app's folder on this machine.
        kept_at: Folder or URI of persistent files: checkpoints, if the app names no other place for them.
        journal: The journal of earlier attempts.
        clock: This machine's clock.
    """

    def __init__(self, registered: pb.Registered, folder: Path, kept_at: str, journal: Journal, clock: Clock) -> None:
        self.app_id = registered.app_id
        self.spec = app_from_message(registered.spec)
        self.cluster = cluster_from_message(registered.cluster)
        self.submitted_at_s = registered.submitted_at_s
        self.checkpoint_lead_s = registered.checkpoint_lead_s
        self.grace_s = registered.grace_s
        self.heartbeat_s = registered.heartbeat_s
        self.time_scale = registered.time_scale
        self.task_log_mb = registered.task_log_mb
        self.folder = folder
        self.code = kept_code(self.spec.program.code, registered.code, folder)
        self.checkpoint_uri = self.spec.checkpoint_uri or f"{kept_at}/checkpoints"
        self.store: CheckpointStore = open_store(self.checkpoint_uri)
        self.search = SearchState(self.spec, folder, self.time_scale, journal, self.store.latest_iteration)
        self.search.fit_cluster(self.cluster)
        self._at_once_gpus = at_once_gpus(self.spec.jobs, self.search.first_phases[0])
        self.leases: dict[GpuId, Lease] = {}
        self.cluster_view: ClusterView = replace(
            make_cluster_view(
                self.cluster,
                active_apps=registered.active_apps,
                lease_s=registered.lease_s,
                rule=BundleRule(registered.bundle_rule),
            ),
            cluster_gpus=registered.gpus_available or self.cluster.gpus,
        )
        self.contention = registered.contention
        self._clock = clock
        self._offset_s = registered.now_s - clock.now_s()
        self._offset_error_s = math.inf
        self._starts: deque[tuple[float, bool]] = deque(maxlen=_STARTS_REMEMBERED)
        self._reserved: frozenset[GpuId] = frozenset()
        self._given_back: set[int] = set()
        self._version = 0
        self._coming: pb.ClusterUpdate | None = None

    def now_s(self) -> float:
        """The present time on the ResourceManager's clock."""
        return self._clock.now_s() + self._offset_s

    def set_clock(self, sent_at_s: float, received_at_s: float, rm_now_s: float) -> None:
        """Set the clock by an answer of the ResourceManager. The quickest answer is the most exact (Cristian)."""
        round_trip_s = received_at_s - sent_at_s
        if round_trip_s < self._offset_error_s:
            self._offset_error_s = round_trip_s
            self._offset_s = rm_now_s - (sent_at_s + received_at_s) / 2

    # ---- leases ----

    def take_leases(self, update: pb.LeaseUpdate) -> None:
        """Replace the app's leases by those of an update. Leases that are not in it have ended.

        Ignores leases in it that the app has given back meanwhile, and updates older than one already processed in this
        session.
        """
        if update.version <= self._version:
            return
        self._version = update.version
        leases = [
            lease_from_message(lease, self.app_id) for lease in update.leases if lease.lease_id not in self._given_back
        ]
        self.leases = {lease.gpu: lease for lease in leases if lease.state is not LeaseState.RESERVED}
        self._reserved = frozenset(lease.gpu for lease in leases if lease.state is LeaseState.RESERVED)

    def take_cluster(self, update: pb.ClusterUpdate) -> None:
        """Note an update of the machines, and apply it if possible."""
        self._coming = update
        self.fit_cluster()

    def fit_cluster(self) -> None:
        """Apply the last update of the machines, once no job runs on a GPU that is not in it."""
        if self._coming is None:
            return
        cluster = cluster_from_message(self._coming.cluster)
        if not all(gpu in cluster.gpu_set for job in self.search.jobs.values() for gpu in job.gpus):
            return
        self.cluster, update, self._coming = cluster, self._coming, None
        self.search.fit_cluster(self.cluster)
        fresh = make_cluster_view(
            self.cluster,
            active_apps=self.cluster_view.active_apps,
            lease_s=self.cluster_view.lease_s,
            rule=self.cluster_view.rule,
        )
        self.cluster_view = replace(fresh, cluster_gpus=update.gpus_available)

    def new_session(self) -> None:
        """Reset the update counter, because a restarted ResourceManager counts from the beginning."""
        self._version = 0

    def give_back(self, gpus: Iterable[GpuId]) -> list[int]:
        """Give GPUs back on which no job runs. Returns the ids of their leases, which the caller must send."""
        ids = [self.leases.pop(gpu).lease_id for gpu in sorted(gpus)]
        self._given_back.update(ids)
        return ids

    def holdings(self) -> Holdings:
        """The GPUs by what the app may do with them."""
        return Holdings.of(self.leases, self._reserved)

    # ---- what a restart costs ----

    def restarted(self, seconds: float) -> None:
        """Note the seconds from the start of a job's tasks to their first step."""
        self._starts.append((seconds, True))

    def start_cut_short(self, seconds: float) -> None:
        """Note the seconds from the start of a job's tasks to their stop, if they made no step.

        Without these, an app whose starts take longer than its leases would never learn what a start costs.
        """
        self._starts.append((seconds, False))

    @property
    def tells_steps(self) -> bool:
        """Whether its jobs log steps: programs of the catalogue do, and any program that has logged one."""
        return bool(self.spec.program.name) or any(whole for _, whole in self._starts)

    @property
    def restart_s(self) -> float:
        """What moving a running job costs: the median of the newest starts, at least a guess before a whole one."""
        prior_s = PRIOR_RESTART_S[self.spec.replay]
        median_s = median_with_cuts(self._starts)
        if median_s is None:
            return prior_s
        return median_s if any(whole for _, whole in self._starts) else max(prior_s, median_s)

    # ---- for the agent ----

    def set_contention(self, *, contention: float, active_apps: int) -> None:
        """Note the cluster's contention, from the ResourceManager."""
        # This comes with every heartbeat. Keep the cluster, because computing it takes seconds for ten thousand GPUs.
        self.contention = contention
        self.cluster_view = replace(self.cluster_view, active_apps=max(1, active_apps))

    def view(self, planned: Mapping[str, tuple[GpuId, ...]], round_at_s: float = -math.inf) -> AppView:
        """The app now, on the gangs that its jobs run on or are planned for.

        Leases that are renewable in a round at `round_at_s` may be lost in it; by default none.
        """
        progress, plan = self.search.progress(), self.search.plan()
        return app_view(
            self.app_id,
            plan,
            phase_views(progress, plan),
            reference_job(progress, plan.stopped),
            elapsed_s=self.now_s() - self.submitted_at_s,
            contention=self.contention,
            work_total_gpu_s=self.search.work_total_gpu_s,
            demand_max_gpus=self._at_once_gpus,
            held=tuple(self._held(planned, renewable_until_s(round_at_s, self.checkpoint_lead_s))),
            restart_s=self.restart_s,
        )

    def _held(self, planned: Mapping[str, tuple[GpuId, ...]], until_s: float) -> Iterator[HeldGang]:
        for job_id in sorted(self.search.plan().targets):
            job = self.search.jobs[job_id]
            gpus = job.gpus if job.running and not job.stop_reason else planned.get(job_id, ())
            renewable = renewable_gpus(gpus, self.leases, self._reserved, until_s)
            if gpus and renewable is not None:
                yield held_gang(job_id, gpus, renewable, self.cluster, bound=is_bound(gpus, self.leases))

    def rho_now(self, view: AppView) -> float:
        """Finish-time fairness if the app kept what it holds."""
        time_s = finish_time_s(view, [gang.at for gang in view.held], self.cluster_view)
        return Valuer.of(view, self.cluster_view).rho(time_s)

    def final_rho(self) -> dict[str, float]:
        """Return the finish-time fairness of the app that ends now, by every definition that it can compute alone."""
        by_definition = rho_by_definition(self._whole_view(), self.now_s() - self.submitted_at_s, self.cluster_view)
        return {definition.value: rho for definition, rho in by_definition.items()}

    def declaration(self) -> Declaration | None:
        """What the app declares to the fluid fair cluster, at the pace that is known by now.

        None while the cluster cannot run the app, because its machines are lost.
        """
        if not self.cluster_view.cluster_gpus:
            return None
        try:
            return declaration_of(self._whole_view(), self.cluster_view)
        except InputError:
            return None

    def phases_left(self, view: AppView) -> tuple[FluidPhase, ...]:
        """What is left of the app's phases, as it declares them. Empty while the cluster cannot run the app."""
        if not (view.jobs and self.cluster_view.cluster_gpus):
            return ()
        try:
            return fluid_phases(view, self.cluster_view)
        except InputError:
            return ()

    def _whole_view(self) -> AppView:
        return whole_view(
            self.app_id,
            self.search.progress(),
            self.search.first_phases,
            contention=self.contention,
            work_total_gpu_s=self.search.work_total_gpu_s,
            demand_max_gpus=self._at_once_gpus,
            restart_s=self.restart_s,
        )
