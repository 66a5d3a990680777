"""An app as its master knows it: jobs and search, leases, the cluster, and the views that the agent reasons about."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from am.agent.model.fairness import rho_by_definition
from am.agent.model.views import AppView, HeldGang
from am.app_view import held_gang, is_bound, make_cluster_view, renewable_gpus
from am.checkpoints.store import CheckpointStore
from am.checkpoints.uri import open_store
from am.jobs.planner import Holdings
from am.jobs.search_state import SearchState
from am.journal import Journal
from am.searched_app import SearchedApp, registered_cluster
from themis.apps import CodeArchive
from themis.clock import Clock
from themis.cluster import GpuId
from themis.code_archive import CODE_ARCHIVE
from themis.config.app_limits import check_pattern
from themis.durations import median_with_cuts
from themis.errors import MissingHereError
from themis.leases import Lease, renewable_until_s
from themis.lifecycle import LeaseState
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message, cluster_from_message, lease_from_message

_STARTS_REMEMBERED = 9
_DRIFT = 1e-4
"""By how much of the time that passes two clocks may drift apart; quartz clocks that nothing corrects do by half."""


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
    # In a container of YARN the folder does not exist yet.
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class App(SearchedApp):
    """The state of one app in one attempt. Times are on the ResourceManager's clock.

    Args:
        registered: The ResourceManager's answer to the registration.
        folder: The app's folder on this machine.
        kept_at: Folder or URI of persistent files: checkpoints, if the app names no other place for them.
        journal: The journal of earlier attempts.
        clock: This machine's clock.
    """

    def __init__(self, registered: pb.Registered, folder: Path, kept_at: str, journal: Journal, clock: Clock) -> None:
        spec = app_from_message(registered.spec)
        check_pattern(spec.metric, spec.name)
        self.cluster, cluster_view = registered_cluster(registered)
        self._clock = clock
        self._offset_s, self._offset_at_s, self._offset_error_s = 0.0, 0.0, math.inf
        self._set_times(registered)
        self.time_scale = registered.time_scale
        self.task_log_mb = registered.task_log_mb
        self.folder = folder
        self.code = kept_code(spec.program.code, registered.code, folder)
        checkpoint_uri = spec.checkpoint_uri or f"{kept_at}/checkpoints"
        self.store: CheckpointStore = open_store(checkpoint_uri)
        search = SearchState(
            spec, folder, self.time_scale, journal, self.store.latest_iteration, lease_s=cluster_view.lease_s
        )
        search.fit_cluster(self.cluster)
        super().__init__(
            registered.app_id,
            spec,
            search,
            cluster_view,
            submitted_at_s=registered.submitted_at_s,
            contention=registered.contention,
            checkpoint_uri=checkpoint_uri,
        )
        self.leases: dict[GpuId, Lease] = {}
        self._starts: deque[tuple[float, bool]] = deque(maxlen=_STARTS_REMEMBERED)
        self._reserved: frozenset[GpuId] = frozenset()
        self._given_back: set[int] = set()
        self._version = 0
        self._coming: pb.ClusterUpdate | None = None

    def now_s(self) -> float:
        """The present time on the ResourceManager's clock."""
        return self._clock.now_s() + self._offset_s

    def set_clock(self, sent_at_s: float, received_at_s: float, rm_now_s: float) -> None:
        """Set the clock by an answer of the ResourceManager. The quickest answer is the most exact (Cristian).

        Ignores an answer that arrived before its question, because the clock of this machine was set back meanwhile.

        Example: an answer took 2 ms. A minute later the two clocks may have drifted apart by `_DRIFT` * 60 s = 6 ms, so
        an answer that takes 5 ms is more exact by then.
        """
        round_trip_s = received_at_s - sent_at_s
        drifted_s = _DRIFT * (received_at_s - self._offset_at_s)
        if 0.0 <= round_trip_s < self._offset_error_s + drifted_s:
            self._offset_error_s, self._offset_at_s = round_trip_s, received_at_s
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
        """Apply the last update of the machines. Those on which jobs still run stay until these jobs have stopped."""
        if self._coming is None:
            return
        update, cluster = self._coming, cluster_from_message(self._coming.cluster)
        running = {gpu for job in self.search.jobs.values() for gpu in job.gpus}
        leaving = {gpu.machine_id for gpu in running - cluster.gpu_set}
        if leaving:
            staying = [machine for machine in cluster.machines if machine.machine_id not in leaving]
            old = [machine for machine in self.cluster.machines if machine.machine_id in leaving]
            cluster = replace(cluster, machines=(*staying, *old), devices={**self.cluster.devices, **cluster.devices})
        else:
            self._coming = None
        self.cluster = cluster
        self.search.fit_cluster(self.cluster)
        view = self.cluster_view
        fresh = make_cluster_view(cluster, active_apps=view.active_apps, lease_s=view.lease_s, rule=view.rule)
        self.cluster_view = replace(fresh, cluster_gpus=update.gpus_available)

    def registered_again(self, message: pb.Registered) -> None:
        """Take what a restarted ResourceManager says: its machines and settings may have changed."""
        # It counts updates anew.
        self._version = 0
        self._set_times(message)
        _, view = registered_cluster(message)
        self.cluster_view = replace(self.cluster_view, lease_s=view.lease_s, rule=view.rule)
        self.search.lease_s = view.lease_s
        self.take_cluster(pb.ClusterUpdate(cluster=message.cluster, gpus_available=message.gpus_available))
        self.take_leases(message.leases)

    def _set_times(self, registered: pb.Registered) -> None:
        # Another ResourceManager may have another clock: a standby's machine, or a start after the clock was set.
        self._offset_at_s = self._clock.now_s()
        self._offset_s = registered.now_s - self._offset_at_s
        self._offset_error_s = math.inf
        self.checkpoint_lead_s = registered.checkpoint_lead_s
        self.grace_s = registered.grace_s
        self.heartbeat_s = registered.heartbeat_s

    def give_back(self, gpus: Iterable[GpuId]) -> list[int]:
        """Give GPUs back on which no job runs. Returns the ids of their leases, which the caller must send."""
        ids = [self.leases.pop(gpu).lease_id for gpu in sorted(gpus)]
        self._given_back.update(ids)
        return ids

    def holdings(self) -> Holdings:
        """The GPUs by what the app may do with them."""
        return Holdings.of(self.leases, self._reserved)

    @property
    def holds_nothing(self) -> bool:
        """Whether it has no leases, and no job of it runs."""
        return not self.leases and not self._reserved and not any(job.running for job in self.search.jobs.values())

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
        """Whether its jobs log steps: programs of the catalogue do, and any program that has logged one.

        Steps that an earlier attempt logged count too.
        """
        return bool(self.spec.program.name) or any(job.profile.logged for job in self.search.jobs.values())

    @property
    def restart_s(self) -> float:
        """What moving a running job costs: the median of the newest starts, at least a guess before a whole one."""
        prior_s = super().restart_s
        median_s = median_with_cuts(self._starts)
        if median_s is None:
            return prior_s
        return median_s if any(whole for _, whole in self._starts) else max(prior_s, median_s)

    # ---- for the agent ----

    def view(self, planned: Mapping[str, tuple[GpuId, ...]], round_at_s: float = -math.inf) -> AppView:
        """The app now, on the gangs that its jobs run on or are planned for.

        Leases that are renewable in a round at `round_at_s` may be lost in it; by default none.
        """
        held = tuple(self._held(planned, renewable_until_s(round_at_s, self.checkpoint_lead_s)))
        return self.view_at(self.now_s(), held)

    def _held(self, planned: Mapping[str, tuple[GpuId, ...]], until_s: float) -> Iterator[HeldGang]:
        for job_id in sorted(self.search.plan().targets):
            job = self.search.jobs[job_id]
            gpus = job.gpus if job.running and not job.stop_reason else planned.get(job_id, ())
            renewable = renewable_gpus(gpus, self.leases, self._reserved, until_s)
            if gpus and renewable is not None:
                yield held_gang(job_id, gpus, renewable, self.cluster, bound=is_bound(gpus, self.leases))

    def final_rho(self) -> dict[str, float]:
        """Return the finish-time fairness of the app that ends now, by every definition that it can compute alone.

        Empty if all machines are lost, because the cluster could not run the app then.
        """
        if not self.cluster_view.cluster_gpus:
            return {}
        by_definition = rho_by_definition(self._whole_view(), self.now_s() - self.submitted_at_s, self.cluster_view)
        return {definition.value: rho for definition, rho in by_definition.items()}
