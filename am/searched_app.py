"""An app with its search, as the agent sees it: in its app master, or in the agent host before it has one."""

from __future__ import annotations

from msgspec.structs import replace

from am.agent.model.fairness import Valuer, declaration_of, fluid_phases
from am.agent.model.finish_time import finish_time_s
from am.agent.model.views import AppView, ClusterView, HeldGang
from am.app_view import app_view, at_once_gpus, make_cluster_view, phase_views, reference_job, whole_view
from am.jobs.search_state import SearchState
from themis.apps import AppSpec
from themis.choices import BundleRule
from themis.cluster import Cluster
from themis.errors import InputError
from themis.fluid_cluster import Declaration, FluidPhase
from themis.wire import themis_pb2 as pb
from themis.wire.values import cluster_from_message

PRIOR_RESTART_S = {True: 0.5, False: 8.0}
"""Seconds from the start of a job's tasks to its first step before any was measured: replayed, trained."""


def registered_cluster(registered: pb.Registered) -> tuple[Cluster, ClusterView]:
    """The cluster of a registration, and as the agent sees it."""
    cluster = cluster_from_message(registered.cluster)
    view = make_cluster_view(
        cluster,
        active_apps=registered.active_apps,
        lease_s=registered.lease_s,
        rule=BundleRule(registered.bundle_rule),
    )
    return cluster, replace(view, cluster_gpus=registered.gpus_available or cluster.gpus)


class SearchedApp:
    """The jobs and the tuner of an app, and the cluster around it. Times are on the ResourceManager's clock.

    Args:
        app_id: The app's id.
        spec: Its specification.
        search: The state of its search, fitted to the cluster.
        cluster_view: The cluster.
        submitted_at_s: When it was submitted, in seconds since the epoch.
        contention: N_avg so far.
        checkpoint_uri: Where its checkpoints lie; empty if that is not known yet.
    """

    def __init__(
        self,
        app_id: str,
        spec: AppSpec,
        search: SearchState,
        cluster_view: ClusterView,
        *,
        submitted_at_s: float,
        contention: float,
        checkpoint_uri: str,
    ) -> None:
        self.app_id = app_id
        self.spec = spec
        self.search = search
        self.cluster_view = cluster_view
        self.submitted_at_s = submitted_at_s
        self.contention = contention
        self.checkpoint_uri = checkpoint_uri
        self._at_once_gpus = at_once_gpus(spec.jobs, search.first_phases[0])

    @property
    def restart_s(self) -> float:
        """What moving a running job costs, in seconds: a guess before any was started."""
        return PRIOR_RESTART_S[self.spec.replay]

    def set_contention(self, *, contention: float, active_apps: int) -> None:
        """Note the cluster's contention, from the ResourceManager."""
        # This comes with every heartbeat. Keep the cluster, because computing it takes seconds for ten thousand GPUs.
        self.contention = contention
        self.cluster_view = replace(self.cluster_view, active_apps=max(1, active_apps))

    def view_at(self, now_s: float, held: tuple[HeldGang, ...] = ()) -> AppView:
        """The app at a time, with the gangs that it holds."""
        progress, plan = self.search.progress(), self.search.plan()
        return app_view(
            self.app_id,
            plan,
            phase_views(progress, plan),
            reference_job(progress, plan.stopped),
            elapsed_s=now_s - self.submitted_at_s,
            contention=self.contention,
            work_total_gpu_s=self.search.work_total_gpu_s,
            demand_max_gpus=self._at_once_gpus,
            held=held,
            restart_s=self.restart_s,
        )

    def rho_now(self, view: AppView) -> float:
        """Finish-time fairness if the app kept what it holds."""
        time_s = finish_time_s(view, [gang.at for gang in view.held], self.cluster_view)
        return Valuer.of(view, self.cluster_view).rho(time_s)

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
