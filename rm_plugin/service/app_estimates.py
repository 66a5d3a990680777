"""When each active app gets GPUs and ends, why it waits, and its rho so far, for commands, pages and REST.

One forecast of all apps (`rm_plugin.arbiter.estimates`) serves all requests. A request makes a new one if the last one
is older than `_FRESH_S` and than `_TIMES_ITS_COST` times the time that it took: with 1000 apps it takes 1 to 3 s. So
with more than `_AT_ONCE_APPS` a worker process makes it, and requests get the last one meanwhile. The forecast uses the
newest heartbeats: the remaining work of each app, and the cost of a start.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import msgspec
from msgspec.structs import replace

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.arbiter.estimates import UNKNOWN, AppNow, ClusterNow, Estimate, estimate_of, order_of
from rm_plugin.arbiter.prospects import NO_PROSPECTS, Prospects, Question, packed_prospects, prospects_of
from rm_plugin.policies.due_dates import has_overrun
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.fluid_fairness import FluidFairness
from rm_plugin.service.worker import end_worker, start_worker
from themis.clock import Clock
from themis.config.rm_settings import RmSettings
from themis.rho import HEADLINE
from themis.values import Value
from themis.web.formatting import counted, duration
from themis.wire.values import phases_from_messages

LOG = logging.getLogger("themis.rm")

_FRESH_S = 1.0
_TIMES_ITS_COST = 20.0
"""A forecast is reused for this multiple of its own cost, so that forecasts take at most 5 % of the time."""

_AT_ONCE_APPS = 100
"""The most apps whose forecast is made at once: it takes some 30 ms."""

_MAX_APPS = 5_000
"""The most apps of a forecast, the first ones submitted: its time grows faster than their number. Others have none."""

_NICENESS = 10
"""By how much the worker's priority is below that of the service."""

MAX_AHEAD = 20


class Waiting(Value, frozen=True, kw_only=True):
    """Why an app has no more GPUs.

    Attributes:
        reason: The reason, a clause.
        rank: Its place among the apps that could use more GPUs, in the order in which the policy is expected to serve
            them; 1 is served first. None before its app master has reported.
        of: How many apps could use more.
        ahead: The apps before it in their order, at most `MAX_AHEAD`.
    """

    reason: str
    rank: int | None = None
    of: int = 0
    ahead: tuple[str, ...] = ()


class AppEstimates:
    """Estimates of the active apps. Belongs to the ResourceManager's loop.

    Args:
        settings: Names the policy and the length of leases.
        arbiter: Holds the leases.
        entries: All apps.
        fairness: Each app's progress on the fluid fair cluster.
        clock: The wall clock.
        waits_for: Returns what the engine or the policy says that an app waits for; empty if they say nothing.
    """

    def __init__(
        self,
        settings: RmSettings,
        arbiter: Arbiter,
        entries: AppEntries,
        fairness: FluidFairness,
        clock: Clock,
        waits_for: Callable[[AppEntry], str],
    ) -> None:
        self._settings, self._arbiter, self._entries = settings, arbiter, entries
        self._fairness, self._clock, self._waits_for = fairness, clock, waits_for
        self._order = order_of(settings.policy)
        self._made_at_s, self._cost_s = -math.inf, 0.0
        self._apps: Mapping[str, AppNow] = {}
        self._prospects = NO_PROSPECTS
        self._worker: ProcessPoolExecutor | None = None
        self._making: asyncio.Future[bytes] | None = None

    def estimate(self, entry: AppEntry) -> Estimate | None:
        """The estimate of an app. None if it has ended or is paused, or its app master has not reported yet.

        The end is NaN while what the app declares rests on a guess of its pace: that guess is no forecast.
        """
        self._refresh()
        made, app = self._prospects.forecasts.get(entry.app_id), self._apps.get(entry.app_id)
        if not entry.is_active or made is None or app is None:
            return None
        # The leases beside it in a status are those of now.
        app = replace(app, held_gpus=len(self._arbiter.table.live_of(entry.app_id)))
        lease_s = self._settings.lease.duration_s
        estimate = estimate_of(app, made, now_s=self._made_at_s, lease_s=lease_s, order=self._order)
        return replace(estimate, end_s=UNKNOWN) if entry.heartbeat.provisional else estimate

    def rho(self, entry: AppEntry) -> float:
        """Rho by `fluid`: the final one of an ended app, else one with the estimated end.

        NaN if it is unknown, also while what the app declares rests on a guess of its pace.
        """
        if entry.ended:
            return self._fairness.final_rho(entry, self._arbiter.cluster.gpus).get(HEADLINE, math.nan)
        self._refresh()
        return self._prospects.rho.get(entry.app_id, math.nan) if _has_rho(entry) else math.nan

    def max_rho(self) -> float | None:
        """The largest finite rho of the active apps; None if none is known."""
        self._refresh()
        return max(self._finite_rhos(), default=None)

    def _finite_rhos(self) -> Iterator[float]:
        for app_id, rho in self._prospects.rho.items():
            entry = self._entries.find(app_id) if math.isfinite(rho) else None
            if entry is not None and _has_rho(entry):
                yield rho

    def close(self) -> None:
        """End the worker, also one that makes a forecast."""
        if self._making is not None:
            self._making.cancel()
        worker, self._worker = self._worker, None
        if worker is not None:
            end_worker(worker)

    def waiting(self, entry: AppEntry) -> Waiting | None:
        """Why an app has no more GPUs. None if it has ended, is paused or can use no more."""
        return self.waiting_of([entry]).get(entry.app_id)

    def waiting_of(self, entries: Iterable[AppEntry]) -> dict[str, Waiting]:
        """Why each of some apps has no more GPUs, without those that have ended, are paused or can use no more."""
        wanting = [entry for entry in entries if self._can_use_more(entry)]
        if not wanting:
            return {}
        self._refresh()
        forecasts = self._prospects.forecasts
        others = filter(None, map(self._entries.find, forecasts))
        waiting = [other.app_id for other in others if other.is_active and other.heartbeat.unmet_gpus > 0]
        # The model knows the mean demand of a phase. An app that holds it may want more now, and counts as last.
        waiting.sort(key=lambda app_id: forecasts[app_id].rank or math.inf)
        places = {app_id: place for place, app_id in enumerate(waiting)}
        found = {}
        for entry in wanting:
            place = places.get(entry.app_id)
            found[entry.app_id] = Waiting(
                reason=self._reason(entry, place or 0),
                rank=None if place is None else place + 1,
                of=len(waiting),
                ahead=() if place is None else tuple(waiting[: min(place, MAX_AHEAD)]),
            )
        return found

    def _can_use_more(self, entry: AppEntry) -> bool:
        if not entry.is_active or (entry.heartbeat.jobs and entry.heartbeat.unmet_gpus <= 0):
            return False
        # With all of its GPUs, its app master starts, and has not said yet that the app has what it can use.
        return len(self._arbiter.table.live_of(entry.app_id)) < entry.spec.demand_max_gpus

    def _reason(self, entry: AppEntry, ahead: int) -> str:
        """The first reason that applies: engine or policy, no report, no free GPUs, too few, the order of service."""
        if stated := self._waits_for(entry):
            return stated
        if not entry.heartbeat.jobs:
            return "its app master has not reported yet"
        policy, table, noun = self._settings.policy, self._arbiter.table, self._arbiter.cluster.device_noun
        free = table.free_count
        if not free:
            end_s = table.next_end_s()
            due = "" if end_s is None else f"; the next leases end in {duration(max(0.0, end_s - self._clock.now_s()))}"
            return f"no {noun} is free: all {table.gpus_available} are leased{due}"
        smallest = min(shape.demand_min_gpus for shape in entry.shapes.values())
        holds = bool(table.live_of(entry.app_id))
        if not holds and free < smallest:
            return f"{counted(free, noun)} free, and its smallest gang needs {smallest}"
        if ahead:
            return f"{counted(free, noun)} free, and {policy} serves {counted(ahead, 'app')} before it"
        if holds:
            return f"{counted(free, noun)} free; more would not pay for a restart, or come with the next round"
        return f"{counted(free, noun)} free; the next round may place it"

    def _refresh(self) -> None:
        now_s = self._clock.now_s()
        is_fresh = abs(now_s - self._made_at_s) < max(_FRESH_S, _TIMES_ITS_COST * self._cost_s)
        if is_fresh or self._making is not None:
            return
        apps = {
            entry.app_id: self._app_now(entry)
            for entry in self._entries.active(_MAX_APPS)
            if entry.is_admitted and entry.heartbeat.phases_left
        }
        in_order, cluster_gpus = list(apps.values()), self._arbiter.cluster.gpus
        now = ClusterNow(
            gpus=self._arbiter.gpus_available,
            now_s=now_s,
            lease_s=self._settings.lease.duration_s,
            lease_end_s=self._arbiter.lease_end_s(now_s),
            order=self._order,
            settings=self._arbiter.round_settings,
        )
        if len(apps) <= _AT_ONCE_APPS:
            self._take(now_s, apps, prospects_of(in_order, self._fairness.lives(cluster_gpus), now))
            return
        question = Question(apps=in_order, stays=self._fairness.stays(), cluster_gpus=cluster_gpus, now=now)
        work = partial(packed_prospects, msgspec.msgpack.encode(question))
        try:
            self._making = asyncio.get_running_loop().run_in_executor(self._started_worker(), work)
            self._making.add_done_callback(partial(self._made, now_s, apps))
        except (OSError, BrokenProcessPool) as error:
            self._failed(now_s, error)

    def _started_worker(self) -> Executor:
        if self._worker is None:
            self._worker = start_worker(_NICENESS)
        return self._worker

    def _made(self, at_s: float, apps: Mapping[str, AppNow], making: asyncio.Future[bytes]) -> None:
        self._making = None
        if making.cancelled():
            return
        if (error := making.exception()) is not None:
            self._failed(at_s, error)
        else:
            self._take(at_s, apps, msgspec.msgpack.decode(making.result(), type=Prospects))

    def _failed(self, at_s: float, error: BaseException) -> None:
        LOG.error("a forecast of the apps failed", exc_info=error)
        # Another one starts a new worker, as this one may have died.
        self.close()
        self._take(at_s, {}, NO_PROSPECTS)

    def _take(self, at_s: float, apps: Mapping[str, AppNow], made: Prospects) -> None:
        """Take what was made from these apps at a time."""
        self._made_at_s, self._apps, self._prospects = at_s, apps, made
        self._cost_s = self._clock.now_s() - at_s

    def _app_now(self, entry: AppEntry) -> AppNow:
        leases, heartbeat = self._arbiter.table.live_of(entry.app_id), entry.heartbeat
        return AppNow(
            app_id=entry.app_id,
            submitted_at_s=entry.arrived_at_s,
            phases_left=phases_from_messages(heartbeat.phases_left),
            whole_time_s=math.fsum(phase.time_s for phase in entry.declaration.phases),
            smallest_gang=min(shape.demand_min_gpus for shape in entry.shapes.values()),
            largest_gang=max(shape.demand_max_gpus for shape in entry.shapes.values()),
            held_gpus=len(leases),
            lease_end_s=max((lease.expires_at_s for lease in leases), default=0.0),
            attained_gpu_s=self._arbiter.attained_gpu_s(entry.app_id, self._clock.now_s()),
            restart_s=heartbeat.restart_s,
            owner=entry.owner,
            overran=has_overrun(self._arbiter.policy_memory, entry.app_id),
        )


def _has_rho(entry: AppEntry) -> bool:
    return entry.is_active and not entry.heartbeat.provisional
