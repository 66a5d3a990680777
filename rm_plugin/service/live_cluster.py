"""Apply changes of machines and ends of leases outside rounds: store them, notify apps, trigger rounds."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.service.budget import Budgets
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.round_runner import RoundRunner
from themis.clock import Clock
from themis.cluster import Cluster, GpuId
from themis.config.rm_settings import RmSettings
from themis.errors import UnknownNameError
from themis.leases import LeaseChange, LeaseChangeKind
from themis.lifecycle import JobState, LeaseState
from themis.wire import themis_pb2 as pb
from themis.wire.values import cluster_to_message, leases_to_message

LOG = logging.getLogger("themis.rm")

CLOSE_EVERY_S = 600.0
"""Seconds in which a user's apps may close as many GPUs as the cluster has, since the engine had no room there."""

UNUSED_S = 1.0
"""GPUs that come back within this time after their grant were not used, as no program starts so fast; nor were those
that come back within a tenth of a lease, if that is shorter."""

UNUSED_EVERY_S = 60.0
"""Seconds in which a user's apps may give back as many GPUs unused as the cluster has, or a lease, if that is shorter.
A pause without further GPUs is no longer either: others are served by the first round in it, and honest jobs that end
at once wait for nothing."""

DRAINED = "drained"
"""Key in the store: the machines that operators drain, as a JSON list."""


class LiveCluster:
    """Changes the arbiter's machines and leases, except for the grants of rounds.

    Every change goes into the store. Then the affected apps get a message, and a round may follow. Methods that take a
    `Change` belong to its decision: they add what to write, and the effects that follow the write.

    Args:
        settings: `unfit_s` says how long GPUs without free capacity in the engine stay closed.
        arbiter: Holds the cluster and the leases.
        entries: The apps to notify.
        changes: Writes changes of machines.
        clock: The present time.
        rounds: Returns the round runner. It is made after this object, since it calls `notify` for its grants.
    """

    def __init__(
        self,
        *,
        settings: RmSettings,
        arbiter: Arbiter,
        entries: AppEntries,
        changes: Changes,
        clock: Clock,
        rounds: Callable[[], RoundRunner],
    ) -> None:
        self._settings = settings
        self._arbiter = arbiter
        self._entries = entries
        self._changes = changes
        self._clock = clock
        self._rounds = rounds
        self._unfit_until_s: dict[GpuId, float] = {}
        # By user, in parts of the cluster. By app, a user could begin anew with each app.
        self._closings = Budgets(1.0, 1.0 / CLOSE_EVERY_S)
        self._unused = Budgets(1.0, 1.0 / min(UNUSED_EVERY_S, settings.lease.duration_s))
        self._update_version = 0
        self._message: tuple[Cluster, pb.Cluster] | None = None
        self._registered: tuple[pb.Cluster, int, pb.Registered] | None = None
        self.drained: frozenset[str] = frozenset()
        """Machines that an operator drains: their leases end and are not renewed."""
        self.limits: tuple[str, ...] = ()
        """Limits of the engine that keep GPUs from all apps now, in words."""

    # ---- leases ----

    def release(self, change: Change, app_id: str, message: pb.Release) -> None:
        """End the leases that an app gives back; ids of other apps' leases are ignored."""
        mine = {lease.lease_id: lease for lease in self._arbiter.table.of_app(app_id)}
        ids = mine.keys() & set(message.lease_ids)
        if not ids:
            return
        newest_s = change.now_s - min(UNUSED_S, self._settings.lease.duration_s / 10)
        held = [mine[lease_id] for lease_id in ids if mine[lease_id].state is LeaseState.GRANTED]
        if unused := sum(lease.granted_at_s > newest_s for lease in held):
            change.then(lambda: self._note_unused(self._entries.get(app_id), unused))
        ended = self._arbiter.release(ids, now_s=change.now_s, reason=message.reason)
        if message.no_room and self._settings.engine != "local":
            gpus = [each.lease.gpu for each in ended if each.kind is LeaseChangeKind.RELEASED]
            self._record_refusal(change, self._entries.get(app_id), message, gpus)
        self.leases_ended(change, ended)

    def _record_refusal(self, change: Change, entry: AppEntry, message: pb.Release, gpus: list[GpuId]) -> None:
        """Close GPUs on which the engine had no room, or give the app no more than it can get there.

        Processes of this machine always have room. Other engines may lack it, which only the app meets.
        """
        headroom_gpus, unfit_s = _headroom_gpus(message), self._settings.unfit_s
        limit = entry.grant_limit.after_refusal(
            message.reason,
            asked_gpus=len(gpus),
            held_gpus=len(self._arbiter.table.live_of(entry.app_id)),
            headroom_gpus=headroom_gpus,
            now_s=change.now_s,
            unfit_s=unfit_s,
        )
        change.set(entry, grant_limit=limit)
        if limit.gpus is not None:
            pause_s = limit.until_s - change.now_s
            change.then(lambda: asyncio.get_running_loop().call_later(pause_s, self._rounds().trigger, "demand"))
        if (headroom_gpus is None or headroom_gpus >= len(gpus)) and self._may_close(entry, gpus, change.now_s):
            # Another app would find no free capacity there either, so these GPUs are closed for `unfit_s` seconds.
            change.then(lambda: self._close_unfit(gpus))

    def _note_unused(self, entry: AppEntry, gpus: int) -> None:
        """Count GPUs that came back before a task can have run on them.

        Until the next round they are idle. Without a bound, the app that comes first could give all GPUs back in each
        round, and no other app would ever have one.
        """
        budget, now_s = self._unused.of(_user(entry)), self._clock.now_s()
        budget.spend(self._share(gpus), now_s)
        if pause_s := budget.wait_s(now_s):
            LOG.warning("%s gives back GPUs unused too often: no more for %.1f s", _user(entry), pause_s)
            asyncio.get_running_loop().call_later(pause_s, self._rounds().trigger, "demand")

    def grantable_gpus(self, entry: AppEntry) -> int | None:
        """Return the most GPUs that an app can be granted now. None without a limit.

        It is what the engine is believed to grant. While its user's apps give back too much unused, it is what it has.
        """
        now_s = self._clock.now_s()
        limit = entry.grant_limit.at(now_s)
        if not self._unused.of(_user(entry)).wait_s(now_s):
            return limit
        held = len(self._arbiter.table.live_of(entry.app_id))
        return held if limit is None else min(held, limit)

    def unused_reason(self, entry: AppEntry) -> str:
        """Return, for users, that an app gets no GPUs since too many came back unused. Empty otherwise."""
        pause_s = self._unused.of(_user(entry)).wait_s(self._clock.now_s())
        if not pause_s:
            return ""
        return f"too many GPUs of this user's apps came back unused: no more for {max(1.0, pause_s):.0f} s"

    def note_grants(self, entry: AppEntry) -> None:
        """End the limit of an app whose newest heartbeat shows that the engine grants it more."""
        limit, heartbeat = entry.grant_limit, entry.heartbeat
        if limit.gpus is None:
            return
        entry.grant_limit = limit.after_heartbeat(
            running_gpus=sum(job.gpus for job in heartbeat.jobs if job.state == JobState.RUNNING.value),
            headroom_gpus=_headroom_gpus(heartbeat),
            now_s=self._clock.now_s(),
        )
        if entry.grant_limit is not limit and self._arbiter.table.has_free_gpus:
            self._rounds().trigger("demand")

    def _may_close(self, entry: AppEntry, gpus: Collection[GpuId], now_s: float) -> bool:
        """Whether GPUs are closed because an app says that the engine has no room there.

        A user has a budget of such reports: one whose apps always send them must not close the machines for others.
        """
        if self._closings.take(_user(entry), now_s, self._share(len(gpus))):
            return True
        LOG.warning("%s says too often that the engine has no room: %d GPUs stay open", entry.app_id, len(gpus))
        return False

    def _share(self, gpus: int) -> float:
        """Return the part of the cluster that these GPUs are."""
        return gpus / max(1, self._arbiter.cluster.gpus)

    def release_unheld(self, change: Change, app_id: str, held: Collection[int]) -> None:
        """Release expiring leases that a new attempt does not run on."""
        leases = self._arbiter.table.of_app(app_id)
        gone = [lease.lease_id for lease in leases if lease.state is LeaseState.EXPIRING and lease.lease_id not in held]
        self.release(change, app_id, pb.Release(lease_ids=gone, reason="not used by the new attempt"))

    def leave(self, change: Change, app_id: str, reason: str) -> None:
        """Stop giving GPUs to an app that is about to end or pause; it keeps those that its tasks run on until then."""
        won = [lease.lease_id for lease in self._arbiter.table.of_app(app_id) if lease.state is LeaseState.RESERVED]
        ended = self._arbiter.release(won, now_s=change.now_s, reason=reason)
        # Its reserved leases are released by then, so this only prevents further grants.
        change.then(lambda: self._arbiter.leave(app_id, now_s=self._clock.now_s(), reason=reason))
        if ended:
            self.leases_ended(change, ended)

    def revoke(self, change: Change, lease_ids: Iterable[int], reason: str) -> None:
        """End leases on whose GPUs nothing of the app runs any more."""
        ended = self._arbiter.revoke(lease_ids, now_s=change.now_s, reason=reason)
        if ended:
            self.leases_ended(change, ended)

    def leases_ended(self, change: Change, ended: list[LeaseChange], *, but_for: str = "") -> None:
        """Write ends of leases; then notify the affected apps except `but_for`, and offer the free GPUs."""
        change.leases(ended)
        change.then(lambda: self.notify([each for each in ended if each.lease.app_id != but_for]))
        change.then(self._gpus_came_free)

    def _gpus_came_free(self) -> None:
        self._rounds().lease_ends_moved()
        if self._arbiter.table.has_free_gpus:
            self._rounds().trigger("gpus free")

    def _close_unfit(self, gpus: list[GpuId]) -> None:
        self._unfit_until_s |= dict.fromkeys(gpus, self._clock.now_s() + self._settings.unfit_s)

    def notify(self, changes: Iterable[LeaseChange]) -> None:
        """Send the affected apps all leases that they hold now."""
        now_s = self._clock.now_s()
        for app_id in sorted({change.lease.app_id for change in changes}):
            entry = self._entries.get(app_id)
            if entry.started_at_s is None and self._arbiter.table.live_of(app_id):
                entry.started_at_s = now_s
            if entry.session is not None:
                entry.session.send(pb.RmMessage(leases=self.lease_update(app_id)))

    def lease_update(self, app_id: str) -> pb.LeaseUpdate:
        """Return all leases of an app as a message with a new version number."""
        self._update_version += 1
        return leases_to_message(self._update_version, self._arbiter.table.of_app(app_id))

    # ---- machines ----

    async def machine_lost(self, machine_id: str, reason: str) -> None:
        """End all leases on a machine that is lost."""
        LOG.warning("%s: %s", machine_id, reason)

        def lose(change: Change) -> None:
            ended = self._arbiter.machine_lost(machine_id, now_s=change.now_s, reason=reason)
            change.event("machine_lost", detail={"machine_id": machine_id, "reason": reason})
            self.leases_ended(change, ended)
            change.then(self._send_cluster)

        await self._changes.make_surely(lose)

    async def machines_back(self, machine_ids: Iterable[str]) -> None:
        """Return lost machines to the cluster. Call it between rounds only."""
        back = list(machine_ids)
        if not back:
            return

        def regain(change: Change) -> None:
            for machine_id in back:
                change.event("machine_back", detail={"machine_id": machine_id})
                change.then(partial(self._machine_back, machine_id))
            change.then(self._machines_came)

        await self._changes.make_surely(regain)

    async def refit(self, cluster: Cluster, joined: Iterable[str]) -> None:
        """Replace the machines of the cluster; `joined` are new. Call it between rounds only."""
        new = list(joined)
        for machine_id in new:
            LOG.info("%s joined with %d %ss", machine_id, cluster.machine(machine_id).gpus, cluster.device_noun)

        def fit(change: Change) -> None:
            for machine_id in new:
                detail = {"machine_id": machine_id, "gpus": cluster.machine(machine_id).gpus}
                change.event("machine_joined", detail=detail)
            change.cluster(cluster)
            change.then(lambda: self._arbiter.refit(cluster))
            change.then(self._machines_came)

        await self._changes.make_surely(fit)

    async def drain(self, machine_id: str, *, drained: bool, by: str = "") -> None:
        """Drain a machine, or open it again. The next look at the machines closes or opens its GPUs.

        `by` is the administrator who asks.

        Raises:
            UnknownNameError: The cluster has no such machine.
            StoreError: The change cannot be written; nothing changed.
        """
        known = [machine.machine_id for machine in self._arbiter.cluster.machines]
        if machine_id not in known:
            raise UnknownNameError("machine", machine_id, known)

        def turn(change: Change) -> None:
            if (machine_id in self.drained) == drained:
                return
            detail = {"machine_id": machine_id, **({"user": by} if by else {})}
            if drained:
                machines = self.drained | {machine_id}
                change.event("machine_drained", detail=detail)
            else:
                machines = self.drained - {machine_id}
                change.event("machine_opened", detail=detail)
            change.keep(DRAINED, json.dumps(sorted(machines)))
            change.then(lambda: setattr(self, "drained", machines))

        await self._changes.make(turn)

    def _machine_back(self, machine_id: str) -> None:
        LOG.info("%s is back", machine_id)
        self._arbiter.machine_back(machine_id)

    def _machines_came(self) -> None:
        self._send_cluster()
        self._rounds().trigger("gpus free")

    def close_gpus(self, gpus: frozenset[GpuId]) -> None:
        """Close exactly these GPUs: rounds do not give them out. Call it between rounds only."""
        opened = self._arbiter.table.closed - gpus
        self._arbiter.close_gpus(gpus)
        if opened:
            self._rounds().trigger("gpus free")

    def unfit_gpus(self, now_s: float) -> list[GpuId]:
        """Return the GPUs where the engine lacked free capacity less than `unfit_s` seconds ago."""
        self._unfit_until_s = {gpu: until_s for gpu, until_s in self._unfit_until_s.items() if until_s > now_s}
        return list(self._unfit_until_s)

    def before_round(self) -> None:
        """Close GPUs that apps gave back for lack of free capacity since the last look at the machines."""
        closed = self._arbiter.table.closed
        unfit = frozenset(gpu for gpu in self.unfit_gpus(self._clock.now_s()) if gpu in self._arbiter.cluster.gpu_set)
        if not unfit <= closed:
            self._arbiter.close_gpus(closed | unfit)

    def cluster_message(self) -> pb.Cluster:
        """Return the machines as a message, which is made once for each cluster: every registration contains it."""
        cluster = self._arbiter.cluster
        if self._message is None or self._message[0] is not cluster:
            self._message = cluster, cluster_to_message(cluster)
        return self._message[1]

    def registered(self) -> pb.Registered:
        """Return what a registration says of the cluster, as a message that is made once for each state of it."""
        machines, gpus = self.cluster_message(), self._arbiter.gpus_available
        if self._registered is None or self._registered[0] is not machines or self._registered[1] != gpus:
            message = pb.Registered(
                cluster=machines,
                lease_s=self._settings.lease.duration_s,
                time_scale=self._settings.time_scale,
                bundle_rule=self._settings.auction.bundle_rule.value,
                gpus_available=gpus,
            )
            self._registered = machines, gpus, message
        return self._registered[2]

    def _send_cluster(self) -> None:
        update = pb.ClusterUpdate(cluster=self.cluster_message(), gpus_available=self._arbiter.gpus_available)
        for entry in self._entries.active():
            if entry.session is not None:
                entry.session.send(pb.RmMessage(cluster=update))


def _user(entry: AppEntry) -> str:
    """Return the user of an app; an app without one has its own."""
    return entry.owner.user or entry.app_id


def _headroom_gpus(message: pb.Release | pb.Heartbeat) -> int | None:
    """Return the headroom in a message. None if the engine does not report it."""
    return message.headroom_gpus if message.HasField("headroom_gpus") else None
