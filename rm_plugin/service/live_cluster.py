"""The cluster as it lives: machines come and go, leases end, GPUs are closed; each change is written down and told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.service.entries import AppEntries
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.round_runner import RoundRunner
from themis.clock import Clock
from themis.cluster import Cluster, GpuId
from themis.config.rm_settings import RmSettings
from themis.leases import LeaseChange, LeaseChangeKind
from themis.lifecycle import LeaseState
from themis.wire import themis_pb2 as pb
from themis.wire.values import cluster_to_message, leases_to_message

LOG = logging.getLogger("themis.rm")


class LiveCluster:
    """The arbiter's machines and leases, but for what rounds grant, with what every change of them entails.

    It goes into the store, the apps that it concerns are told, and it may be a reason for a round.

    Args:
        settings: `unfit_s` and `validate_state` are heeded.
        arbiter: Whose cluster and leases are changed.
        entries: The apps to tell.
        recorder: Writes it down.
        clock: Tells when.
        rounds: Gives the rounds, which are there later than this, as they tell their own grants by `notify`.
    """

    def __init__(
        self,
        *,
        settings: RmSettings,
        arbiter: Arbiter,
        entries: AppEntries,
        recorder: Recorder,
        clock: Clock,
        rounds: Callable[[], RoundRunner],
    ) -> None:
        self._settings = settings
        self._arbiter = arbiter
        self._entries = entries
        self._recorder = recorder
        self._clock = clock
        self._rounds = rounds
        self._unfit_until_s: dict[GpuId, float] = {}
        self._update_version = 0

    # ---- leases ----

    def release(self, app_id: str, message: pb.Release) -> None:
        """An app gives leases back; those that are not its own stay."""
        mine = {lease.lease_id for lease in self._arbiter.table.of_app(app_id)}
        ids = mine & set(message.lease_ids)
        if not ids:
            return
        now_s = self._clock.now_s()
        changes = self._arbiter.release(ids, now_s=now_s, reason=message.reason)
        if message.no_room:
            # Whoever was given them now would fare no better; the watch over the machines closes them for a while.
            gpus = [change.lease.gpu for change in changes if change.kind is LeaseChangeKind.RELEASED]
            self._unfit_until_s |= dict.fromkeys(gpus, now_s + self._settings.unfit_s)
        self.leases_ended(changes)

    def release_unheld(self, app_id: str, held: Collection[int]) -> None:
        """Leases that were ending and that a new attempt does not run on are given back at once."""
        leases = self._arbiter.table.of_app(app_id)
        gone = [lease.lease_id for lease in leases if lease.state is LeaseState.EXPIRING and lease.lease_id not in held]
        self.release(app_id, pb.Release(lease_ids=gone, reason="not used by the new attempt"))

    def leave(self, app_id: str, reason: str) -> None:
        """An app is about to end: it gets nothing any more, and keeps what its tasks run on until they end."""
        changes = self._arbiter.leave(app_id, now_s=self._clock.now_s(), reason=reason)
        if changes:
            self.leases_ended(changes)

    def revoke(self, lease_ids: Iterable[int], reason: str) -> None:
        """End leases that nothing runs on any more."""
        changes = self._arbiter.revoke(lease_ids, now_s=self._clock.now_s(), reason=reason)
        if changes:
            self.leases_ended(changes)

    def leases_ended(self, changes: list[LeaseChange]) -> None:
        """Write changes down and tell them, unless that is done (none), and see to what GPUs that came free entail."""
        self._recorder.record_leases(changes)
        self.notify(changes)
        if self._settings.validate_state:
            self._arbiter.validate()
        self._rounds().lease_ends_moved()
        if self._arbiter.table.free_gpus():
            self._rounds().trigger("gpus free")

    def notify(self, changes: Iterable[LeaseChange]) -> None:
        """Tell the apps that lease changes concern what they hold now."""
        now_s = self._clock.now_s()
        for app_id in sorted({change.lease.app_id for change in changes}):
            entry = self._entries.get(app_id)
            held = [lease for lease in self._arbiter.table.of_app(app_id) if lease.state is not LeaseState.RESERVED]
            if held and entry.started_at_s is None:
                entry.started_at_s = now_s
            if entry.session is not None:
                entry.session.send(pb.RmMessage(leases=self.lease_update(app_id)))

    def lease_update(self, app_id: str) -> pb.LeaseUpdate:
        """All that an app holds, under a version of its own."""
        self._update_version += 1
        return leases_to_message(self._update_version, self._arbiter.table.of_app(app_id))

    # ---- machines ----

    def machine_lost(self, machine_id: str, reason: str) -> None:
        """A machine is gone, with all that ran on it: its leases end."""
        LOG.warning("%s: %s", machine_id, reason)
        changes = self._arbiter.machine_lost(machine_id, now_s=self._clock.now_s(), reason=reason)
        detail = {"machine_id": machine_id, "reason": reason}
        self._recorder.record("machine_lost", detail=detail, leases=changes)
        self.leases_ended([])
        self.notify(changes)
        self._tell_cluster()

    def machines_back(self, machine_ids: Iterable[str]) -> None:
        """Machines that were lost are there again. Between rounds only."""
        back = list(machine_ids)
        for machine_id in back:
            LOG.info("%s is back", machine_id)
            self._arbiter.machine_back(machine_id)
            self._recorder.record("machine_back", detail={"machine_id": machine_id})
        if back:
            self._tell_cluster()
            self._rounds().trigger("gpus free")

    def refit(self, cluster: Cluster, joined: Iterable[str]) -> None:
        """The cluster has other machines from now on, some for the first time. Between rounds only."""
        self._arbiter.refit(cluster)
        for machine_id in joined:
            LOG.info("%s joined with %d GPUs", machine_id, cluster.machine(machine_id).gpus)
            detail = {"machine_id": machine_id, "gpus": cluster.machine(machine_id).gpus}
            self._recorder.record("machine_joined", detail=detail)
        self._recorder.keep_cluster(cluster)
        self._tell_cluster()
        self._rounds().trigger("gpus free")

    def close_gpus(self, gpus: frozenset[GpuId]) -> None:
        """Exactly these GPUs are not given out from now on. Between rounds only."""
        opened = self._arbiter.table.closed - gpus
        self._arbiter.close_gpus(gpus)
        if opened:
            self._rounds().trigger("gpus free")

    def unfit_gpus(self, now_s: float) -> list[GpuId]:
        """GPUs where the engine had no room a while ago."""
        self._unfit_until_s = {gpu: until_s for gpu, until_s in self._unfit_until_s.items() if until_s > now_s}
        return list(self._unfit_until_s)

    def before_round(self) -> None:
        """GPUs that came back since the last look at the machines, as the engine had no room there, are closed."""
        closed = self._arbiter.table.closed
        unfit = frozenset(gpu for gpu in self.unfit_gpus(self._clock.now_s()) if gpu in self._arbiter.cluster.gpu_set)
        if not unfit <= closed:
            self._arbiter.close_gpus(closed | unfit)

    def _tell_cluster(self) -> None:
        update = pb.ClusterUpdate(
            cluster=cluster_to_message(self._arbiter.cluster), gpus_available=self._arbiter.gpus_available
        )
        for entry in self._entries.active():
            if entry.session is not None:
                entry.session.send(pb.RmMessage(cluster=update))
