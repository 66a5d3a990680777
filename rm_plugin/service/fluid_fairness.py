"""Lives of apps on the fluid fair cluster, and final rho by its definitions (docs/explanation/fairness.md).

App masters send what their apps declare with every heartbeat, and at the end by what they measured. The fluid cluster
is computed from the newest declaration of each app, so it is the same after a restart. Its GPUs are those of the
cluster now: machines that were away for a time are not subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rm_plugin.arbiter.prospects import Stay, lives_of_stays
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.store import app_number
from themis.fluid_cluster import FluidLife, fluid_ideals_s
from themis.lifecycle import AppState
from themis.queues import ONE_QUEUE, Queues
from themis.wire.values import declaration_from_message


class FluidFairness:
    """Lives on the fluid cluster, computed again once an app has arrived, declared itself, ended or was archived.

    So the rho of an app that ended early can still change: its life there goes on, and later arrivals delay its end.

    Args:
        entries: All apps, whose changes nothing else reads.
        queues: Returns the weights of queues and users.
    """

    def __init__(self, entries: AppEntries, queues: Callable[[], Queues] = lambda: ONE_QUEUE) -> None:
        self._entries = entries
        self._queues = queues
        self._lives: Mapping[str, FluidLife] = {}
        # What was known of each app at its last change, in order of submission.
        self._stays: dict[str, Stay] = {}
        self._computed_for: tuple[int, int, Queues] | None = None

    def final_rho(self, entry: AppEntry, cluster_gpus: int) -> dict[str, float]:
        """Rho by definition of an app that finished, empty for others. Those without a declaration lack the fluid ones.

        Args:
            entry: The app.
            cluster_gpus: GPUs of the cluster.
        """
        final = dict(entry.finish.rho)
        if not final or entry.finished_at_s is None or not entry.finish.HasField("declaration"):
            return final
        life = self.lives(cluster_gpus).get(entry.app_id)
        if life is None:
            return final
        took_s = entry.finished_at_s - entry.arrived_at_s
        ideals_s = fluid_ideals_s(declaration_from_message(entry.finish.declaration), life)
        return {definition.value: took_s / ideal_s for definition, ideal_s in ideals_s.items() if ideal_s > 0.0} | final

    def lives(self, cluster_gpus: int) -> Mapping[str, FluidLife]:
        """The lives of all apps that declared themselves, as far as nothing changes any more."""
        queues = self._queues()
        state = (self._entries.version, cluster_gpus, queues)
        if state != self._computed_for:
            self._lives, self._computed_for = lives_of_stays(self.stays(), cluster_gpus, queues), state
        return self._lives

    def stays(self) -> list[Stay]:
        """What the fluid cluster has to know of all apps that have declared themselves."""
        for app_id in sorted(self._entries.changed, key=lambda each: (app_number(each), each)):
            entry = self._entries.find(app_id)
            if entry is None:
                self._stays.pop(app_id, None)
            else:
                self._stays[app_id] = _stay(entry)
        self._entries.changed.clear()
        return [stay for stay in self._stays.values() if stay.phases]


def _stay(entry: AppEntry) -> Stay:
    """An app on the fluid cluster. One that failed or was killed leaves when it ended.

    A paused app leaves when it was paused. Once it is resumed, it counts as one that was submitted later by its pauses.
    So does an app that waits for admission.
    """
    left_at_s = entry.paused_at_s if entry.state is AppState.PAUSED else entry.finished_at_s
    left_at_s = entry.waits_since_s if left_at_s is None else left_at_s
    if entry.state is AppState.FINISHED:
        left_at_s = None
    return Stay(
        app_id=entry.app_id,
        owner=entry.owner,
        phases=declaration_from_message(entry.declaration).phases,
        arrived_at_s=entry.arrived_at_s,
        left_at_s=left_at_s,
    )
