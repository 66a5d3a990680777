"""The state that the pages show: the ResourceManager's, and the index of its event log."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.visibility import visible_entry
from rm_plugin.service.web.event_index import EventIndex
from rm_plugin.service.web.usage_history import UsageHistory, UsageSample
from themis.cluster import GpuId, Machine
from themis.identity import Identity
from themis.leases import Lease
from themis.values import Value
from themis.wire import themis_pb2 as pb


class GpuState(StrEnum):
    """The state of a GPU; every GPU is in exactly one."""

    LEASED = "leased"
    FREE = "free"
    CLOSED = "closed"
    LOST = "lost"


class MachineState(StrEnum):
    """The state of a machine. CLOSED means that the arbiter grants none of its GPUs any more."""

    AVAILABLE = "available"
    CLOSED = "closed"
    LOST = "lost"


class PageState(Value, frozen=True):
    """Read access to the ResourceManager, for its pages, REST interface and metrics.

    `reader` is who reads the page; None: a reader who is not known. `action_token` is the text by which the page asks
    for changes in the reader's name; empty if it may not.
    """

    manager: ResourceManager
    policy: str
    event_index: EventIndex
    usage: UsageHistory
    reader: Identity | None = None
    action_token: str = ""

    def seen(self, entry: AppEntry, *, whole: bool = True) -> AppEntry:
        """Return an app as the reader may see it; without `whole`, for a list."""
        return visible_entry(entry, self.reader, whole=whole)

    def controls(self, entry: AppEntry) -> bool:
        """Whether the reader may see everything of an app."""
        return self.reader is not None and self.reader.controls(entry.owner)

    @property
    def now_s(self) -> float:
        """The present time, in seconds since the epoch."""
        return self.manager.clock.now_s()

    # ---- the cluster ----

    @property
    def device_noun(self) -> str:
        """What a device of the cluster is called: a GPU, unless some are CPU nodes."""
        return self.manager.arbiter.cluster.device_noun

    @property
    def devices_label(self) -> str:
        """The heading of a number of devices."""
        return f"{self.device_noun}s"

    def gpu_state(self, gpu: GpuId) -> GpuState:
        """Return the state of a GPU."""
        table = self.manager.arbiter.table
        if gpu.machine_id in table.lost:
            return GpuState.LOST
        if gpu in table.live:
            return GpuState.LEASED
        return GpuState.CLOSED if gpu in table.closed else GpuState.FREE

    def gpus_by_state(self) -> dict[GpuState, int]:
        """Count the GPUs by state."""
        table, gpus = self.manager.arbiter.table, self.manager.arbiter.cluster.gpus
        leased, free, lost = len(table.live), table.free_count, gpus - table.gpus_available
        return {
            GpuState.LEASED: leased,
            GpuState.FREE: free,
            GpuState.CLOSED: gpus - leased - free - lost,
            GpuState.LOST: lost,
        }

    def machine_state(self, machine: Machine) -> MachineState:
        """Return the state of a machine."""
        arbiter = self.manager.arbiter
        if machine.machine_id in arbiter.table.lost:
            return MachineState.LOST
        closed = arbiter.table.closed
        shut = bool(closed) and all(gpu in closed for gpu in arbiter.cluster.gpus_of(machine.machine_id))
        return MachineState.CLOSED if shut else MachineState.AVAILABLE

    def is_emulated(self, machine: Machine) -> bool:
        """Whether the machine's GPUs are emulated: declared in the settings, without cards."""
        device = self.manager.arbiter.cluster.devices.get(machine.device)
        return device is not None and device.emulated

    # ---- apps ----

    def leases_of(self, entry: AppEntry) -> list[Lease]:
        """Return an app's leases, reserved ones included, ordered by GPU."""
        return [] if entry.ended else self.manager.arbiter.table.of_app(entry.app_id)

    def gpus_held(self, entry: AppEntry) -> int:
        """Count the GPUs that an app holds now."""
        return 0 if entry.ended else len(self.manager.arbiter.table.live_of(entry.app_id))

    def gpu_time_s(self, entry: AppEntry) -> float:
        """Return the GPU time of an app so far, in GPU seconds."""
        if not entry.is_admitted:
            return entry.gpu_time_s
        return self.manager.arbiter.attained_gpu_s(entry.app_id, self.now_s)

    def rho(self, entry: AppEntry) -> float | None:
        """Return finish-time fairness by `fluid`, or None if it is unknown."""
        rho = self.manager.estimates.rho(entry)
        return rho if math.isfinite(rho) else None

    def max_rho(self) -> float | None:
        """Return the largest rho of the active apps by `fluid`, or None if none is known."""
        return self.manager.estimates.max_rho()

    def sample_usage(self) -> None:
        """Add the present moment to the usage over time."""
        gpus, rho = self.gpus_by_state(), self.max_rho()
        there = sum(gpus.values()) - gpus[GpuState.LOST]
        self.usage.add(UsageSample(self.now_s, gpus[GpuState.LEASED], there, math.nan if rho is None else rho))


def jobs_of(entry: AppEntry) -> Iterable[pb.JobStatus]:
    """Return the jobs as the app master last reported them, or as submitted if it has not reported yet."""
    return entry.jobs or [
        pb.JobStatus(job_id=job.job_id, target_iteration=job.iterations_total) for job in entry.spec.jobs
    ]
