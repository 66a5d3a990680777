"""Lives of apps on the fluid fair cluster, and final rho by its definitions (docs/explanation/fairness.md).

App masters send what their apps declare with every heartbeat, and at the end by what they measured. The fluid cluster
is computed from the newest declaration of each app, so it is the same after a restart. Its GPUs are those of the
cluster now: machines that were away for a time are not subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rm_plugin.service.entries import AppEntries, AppEntry
from themis.fluid_cluster import FluidCluster, FluidLife, fluid_ideals_s
from themis.lifecycle import AppState
from themis.queues import ONE_QUEUE, Queues
from themis.wire.values import declaration_from_message


class FluidFairness:
    """Lives on the fluid cluster, computed again once an app has arrived, declared itself, ended or was archived.

    So the rho of an app that ended early can still change: its life there goes on, and later arrivals delay its end.

    Args:
        entries: All apps.
        queues: Returns the weights of queues and users.
    """

    def __init__(self, entries: AppEntries, queues: Callable[[], Queues] = lambda: ONE_QUEUE) -> None:
        self._entries = entries
        self._queues = queues
        self._lives: Mapping[str, FluidLife] = {}
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
            self._lives, self._computed_for = lives_of(self._entries, cluster_gpus, queues), state
        return self._lives


def lives_of(entries: Iterable[AppEntry], cluster_gpus: int, queues: Queues = ONE_QUEUE) -> dict[str, FluidLife]:
    """The lives of all apps that declared themselves. An app that failed or was killed leaves when it ended.

    A paused app leaves when it was paused. Once it is resumed, it counts as one that was submitted later by its pauses.
    So does an app that waits for admission.
    """
    changes: list[tuple[float, int, AppEntry]] = []
    for entry in entries:
        changes.append((entry.arrived_at_s, 0, entry))
        left_at_s = entry.paused_at_s if entry.state is AppState.PAUSED else entry.finished_at_s
        left_at_s = entry.waits_since_s if left_at_s is None else left_at_s
        if entry.state is not AppState.FINISHED and left_at_s is not None:
            changes.append((max(entry.arrived_at_s, left_at_s), 1, entry))
    changes.sort(key=lambda change: change[:2])
    cluster = FluidCluster(cluster_gpus, changes[0][0] if changes else 0.0, queues)
    for at_s, leaves, entry in changes:
        declaration = declaration_from_message(entry.declaration)
        if leaves:
            cluster.leave(entry.app_id, at_s)
        else:
            cluster.arrive(entry.app_id, declaration.phases, at_s, owner=entry.owner)
    return cluster.run_out()
