"""The fluid fair cluster: an ideal cluster whose GPUs all apps share max-min fairly, in infinitely small parts.

It answers one question: when would an app end if every app had its fair share at every moment? It knows only what apps
declare as they arrive. So no real schedule can change the answer, and the answer can rank policies.

The model:
    An app is a row of phases. A phase takes `time_s` on the whole cluster, and more GPUs than its `gpus` do not make it
    faster. On fewer GPUs it takes longer in proportion. At every moment app i of weight w_i has
    min(gpus_i, w_i * level) GPUs. The level is the same for all apps: the largest with which the GPUs suffice.

Example: 4 GPUs; app a arrives at 0 s with 100 s of work for 4 GPUs, app b at 50 s with 50 s for 1 GPU.
    a has all GPUs until 50 s, then 3 of them: b cannot use more than 1. b ends at 100 s. By then a has used
    200 + 150 = 350 of its 400 GPU seconds, and with all GPUs it ends at 112.5 s. N of a is
    (50 + 2 * 50 + 12.5) / 112.5.

How it works:
    An app is *full* if it has all that its phase can use, else *shared*. Full apps end at known times. Shared apps end
    at known values of virtual time, which advances by `level` per second. So an event changes two sums and a heap, not
    every app: O((1 + c) log n), where c counts the apps that turn from full to shared or back. Each app can turn at
    most twice in an event.

Apps of one user share the weight of that user (`themis.queues`), so the weight of an app changes as others of its user
come and go. Such apps have a virtual time of their own, which advances by their common weight times the cluster's. So
also then an event changes a few sums and a heap; each takes time in proportion to the number of users.

On a cluster of several device types every app shares in its own reference units: half of the cluster is half of the
speed that this app would have on all of it. A GPU then stands for an average GPU of the cluster, as this app sees it.

Source: generalized processor sharing (Parekh and Gallager, 1993), the fair sojourn protocol (Friedman and Henderson,
2003) and its use for Hadoop, HFSP (Pastorelli et al., 2013).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from themis.errors import InputError, InvariantError, UnknownNameError
from themis.queues import NO_OWNER, ONE_QUEUE, AppOwner, Queues, Tenant
from themis.rho import RhoDefinition
from themis.sums import sum_in_order
from themis.values import Value

_ROUNDING = 1e-12
"""What is left of a phase counts as nothing up to this share: sums of GPU time are rounded."""


class FluidPhase(Value, frozen=True):
    """A phase of an app: its seconds on the whole cluster, and the GPUs at which it stops getting faster."""

    time_s: float
    gpus: float

    def __post_init__(self) -> None:
        # False for NaN too.
        if not (0.0 <= self.time_s < math.inf and 0.0 < self.gpus < math.inf):
            value = f"time_s {self.time_s:g}, gpus {self.gpus:g}"
            raise InputError("a phase needs a time of 0 or more and GPUs, both finite", value=value)

    @property
    def work_gpu_s(self) -> float:
        """GPU seconds that the phase uses."""
        return self.time_s * self.gpus


class Declaration(Value, frozen=True, kw_only=True):
    """What an app declares as it arrives.

    Attributes:
        phases: Its phases in their order.
        cluster_time_s: Seconds of its whole work at S = 1, spread perfectly over the GPUs that it can use.
        share_demand: The largest share of the cluster that it can use, 0 to 1.
    """

    phases: tuple[FluidPhase, ...]
    cluster_time_s: float
    share_demand: float

    @property
    def whole_time_s(self) -> float:
        """T(R): seconds alone on the whole cluster."""
        return math.fsum(phase.time_s for phase in self.phases)


class FluidLife(Value, frozen=True, kw_only=True):
    """An app's life on the fluid cluster.

    Attributes:
        arrived_s: When it arrived.
        ends_s: When it ends. Infinite if the cluster has no GPUs left.
        contention: N, the mean number of apps during its life, itself included. With weights it is the mean of the
            weight of all apps over its own, so its share is still 1/N.
    """

    arrived_s: float
    ends_s: float
    contention: float

    @property
    def time_s(self) -> float:
        """Seconds from arrival to end."""
        return self.ends_s - self.arrived_s


def fluid_ideals_s(declaration: Declaration, life: FluidLife) -> dict[RhoDefinition, float]:
    """t_ideal in seconds by each definition of the fluid cluster.

    Example: an app of 400 s alone, 300 s if its work were perfectly divisible. It can use half of the cluster. On the
    fluid cluster it takes 900 s with N = 3. The ideals are 900 s, 400 * 3 / 2 = 600 s and 300 * 3 = 900 s.
    """
    return {
        RhoDefinition.FLUID: life.time_s,
        RhoDefinition.ISOLATED_FLUID: declaration.whole_time_s * max(1.0, life.contention * declaration.share_demand),
        RhoDefinition.THEMIS_FLUID: declaration.cluster_time_s * life.contention,
    }


class FluidApp(Value, frozen=True, kw_only=True):
    """A live app of a stored fluid cluster.

    Attributes:
        app_id: The app.
        weight: Its weight among the apps of its user.
        arrived_s: When it arrived.
        weight_s_before: The integral of the weight of all apps, over that of its user's apps, until it arrived.
        phases: All its phases.
        phases_done: How many of them it has finished.
        used_gpu_s: GPU seconds that its current phase has had.
        owner: Whose app it is.
    """

    app_id: str
    weight: float
    arrived_s: float
    weight_s_before: float
    phases: tuple[FluidPhase, ...]
    phases_done: int
    used_gpu_s: float
    owner: AppOwner = NO_OWNER


class FluidState(Value, frozen=True, kw_only=True):
    """A fluid cluster at a moment, to be stored: its GPUs, the integral of weight over time, and its live apps."""

    gpus: float
    now_s: float
    weight_s: float = 0.0
    apps: tuple[FluidApp, ...] = ()


@dataclass(slots=True, eq=False)
class _App:
    """A live app. `end` is a time if the app is full, else a virtual time of its tenant.

    `before_s` is the integral of the weight of all apps, over that of the apps of its tenant, at its arrival.
    `entry` is the number of its newest entries in the heaps; older entries are stale.
    """

    app_id: str
    owner: AppOwner
    tenant: Tenant
    weight: float
    arrived_s: float
    before_s: float
    phases: Sequence[FluidPhase]
    done: int = 0
    full: bool = False
    end: float = 0.0
    entry: int = 0

    @property
    def gpus(self) -> float:
        """GPUs that its current phase can use."""
        return self.phases[self.done].gpus

    @property
    def threshold(self) -> float:
        """The level of its tenant from which on it is full."""
        return self.gpus / self.weight


@dataclass(slots=True)
class _Heap:
    """Live apps by a key, the smallest first. Stale entries are dropped when they come up, or if they are the most."""

    entries: list[tuple[float, int, _App]] = field(default_factory=list)
    live: int = 0

    def add(self, key: float, app: _App) -> None:
        heapq.heappush(self.entries, (key, app.entry, app))
        self.live += 1
        if len(self.entries) > 2 * self.live + 64:
            self.entries = [entry for entry in self.entries if entry[1] == entry[2].entry]
            heapq.heapify(self.entries)

    def first(self) -> tuple[float, _App | None]:
        """The smallest key and its app; infinity and None without any."""
        while self.entries and self.entries[0][1] != self.entries[0][2].entry:
            heapq.heappop(self.entries)
        return (self.entries[0][0], self.entries[0][2]) if self.entries else (math.inf, None)


@dataclass(slots=True)
class _Group:
    """The full apps, or the shared ones: a sum over them (of GPUs, or of weights), by end, and by threshold."""

    total: float = 0.0
    by_end: _Heap = field(default_factory=_Heap)
    by_threshold: _Heap = field(default_factory=_Heap)

    def add(self, amount: float, end: float, threshold: float, app: _App) -> None:
        self.total += amount
        self.by_end.add(end, app)
        self.by_threshold.add(threshold, app)

    def drop(self, amount: float) -> None:
        """An app left; its entries are stale already. The sum of none is exact again."""
        self.by_end.live -= 1
        self.by_threshold.live -= 1
        self.total = self.total - amount if self.by_end.live else 0.0


@dataclass(slots=True)
class _Share:
    """The apps of a tenant. The level of the cluster times `rate` is that of its apps.

    The virtual time of its apps, and the integral of the weight of all apps over theirs, advance at paces that change
    with `rate` only. Each is known at the last change: `virtual` when that of the cluster was `virtual_then`, and
    `contention_s` when that of the cluster was `weight_s_then`.
    """

    apps: int = 0
    weight: float = 0.0
    rate: float = 1.0
    virtual: float = 0.0
    virtual_then: float = 0.0
    contention_s: float = 0.0
    weight_s_then: float = 0.0
    full: _Group = field(default_factory=_Group)
    shared: _Group = field(default_factory=_Group)

    def virtual_at(self, virtual: float) -> float:
        """The virtual time of its apps at this virtual time of the cluster."""
        return self.virtual + (virtual - self.virtual_then) * self.rate

    def contention_at(self, weight_s: float) -> float:
        """The integral of the weight of all apps over that of its apps, at this integral of the cluster."""
        return self.contention_s + (weight_s - self.weight_s_then) / self.rate

    def turn(self, rate: float, virtual: float, weight_s: float) -> None:
        """Change the rate."""
        self.virtual, self.virtual_then = self.virtual_at(virtual), virtual
        self.contention_s, self.weight_s_then = self.contention_at(weight_s), weight_s
        self.rate = rate


class FluidCluster:
    """The apps of a fluid fair cluster over time. Pure state: every change takes the time, which never runs back.

    Args:
        gpus: GPUs of the cluster.
        now_s: The time at which it starts.
        queues: The weights of queues and users.
    """

    def __init__(self, gpus: float, now_s: float = 0.0, queues: Queues = ONE_QUEUE) -> None:
        self._queues = queues
        self._gpus = _checked_gpus(gpus)
        self._now_s = now_s
        self._virtual = 0.0
        self._level = math.inf
        self._weight = 0.0
        self._weight_s = 0.0
        self._entries = 0
        self._apps: dict[str, _App] = {}
        self._shares: dict[Tenant, _Share] = {}
        self.ended: dict[str, FluidLife] = {}

    @classmethod
    def restored(cls, state: FluidState, queues: Queues = ONE_QUEUE) -> FluidCluster:
        """The cluster of a stored state. Apps that had ended are not in it."""
        cluster = cls(state.gpus, state.now_s, queues)
        cluster._weight_s = state.weight_s
        used_gpu_s = {}
        for each in state.apps:
            tenant, phases = queues.tenant(each.owner), each.phases
            app = _App(
                *(each.app_id, each.owner, tenant, each.weight, each.arrived_s, each.weight_s_before),
                *(phases, each.phases_done),
            )
            cluster._enter(app)
            used_gpu_s[each.app_id] = each.used_gpu_s
        cluster._reweigh()
        for app in list(cluster._apps.values()):
            cluster._next_phase(app, used_gpu_s[app.app_id])
        cluster._rebalance()
        return cluster

    def state(self) -> FluidState:
        """Its live apps now, to be stored."""
        apps = []
        for app in self._apps.values():
            share = self._shares[app.tenant]
            # A restored share starts with the integral of the cluster (`turn` from a rate of 1).
            correction_s = self._weight_s - share.contention_at(self._weight_s)
            apps.append(
                FluidApp(
                    app_id=app.app_id,
                    weight=app.weight,
                    arrived_s=app.arrived_s,
                    weight_s_before=app.before_s + correction_s,
                    phases=tuple(app.phases),
                    phases_done=app.done,
                    used_gpu_s=max(0.0, app.phases[app.done].work_gpu_s - self._left_gpu_s(app)),
                    owner=app.owner,
                )
            )
        return FluidState(gpus=self._gpus, now_s=self._now_s, weight_s=self._weight_s, apps=tuple(apps))

    @property
    def now_s(self) -> float:
        """The time that it has reached."""
        return self._now_s

    @property
    def live(self) -> tuple[str, ...]:
        """Ids of the apps that have not ended, in the order of their arrival."""
        return tuple(self._apps)

    def arrive(
        self,
        app_id: str,
        phases: Sequence[FluidPhase],
        now_s: float,
        weight: float = 1.0,
        owner: AppOwner = NO_OWNER,
    ) -> None:
        """An app arrives.

        Args:
            app_id: The app.
            phases: What it declares.
            now_s: The time.
            weight: Its weight among the apps of its user; among all apps without a user if it has none.
            owner: Whose app it is.

        Raises:
            InputError: The id is known already, or the weight is no positive number.
        """
        if app_id in self._apps or app_id in self.ended:
            raise InputError("an app arrives once on the fluid cluster", value=app_id, remedy="use redeclare")
        if not 0.0 < weight < math.inf:
            raise InputError("the weight of an app must be a positive number", value=weight)
        self.advance(now_s)
        app = _App(app_id, owner, self._queues.tenant(owner), weight, now_s, 0.0, tuple(phases))
        self._enter(app)
        self._reweigh()
        app.before_s = self._shares[app.tenant].contention_at(self._weight_s)
        self._next_phase(app)
        self._rebalance()

    def redeclare(self, app_id: str, phases: Sequence[FluidPhase], now_s: float) -> None:
        """An app declares all its phases again, for example because its jobs were measured.

        Phases that it has finished here stay finished. The GPU time that its current phase had counts for the new one.
        An app that has ended here stays ended.
        """
        self.advance(now_s)
        if app_id in self.ended:
            return
        app = self._known(app_id)
        used_gpu_s = max(0.0, app.phases[app.done].work_gpu_s - self._take_out(app))
        app.phases = tuple(phases)
        self._next_phase(app, used_gpu_s)
        self._rebalance()

    def leave(self, app_id: str, now_s: float) -> None:
        """An app is withdrawn, for example because its user killed it. It has no end here."""
        self.advance(now_s)
        if app_id not in self.ended:
            app = self._known(app_id)
            self._take_out(app)
            self._forget(app)
            self._rebalance()

    def forget(self, app_id: str, now_s: float) -> None:
        """Forget an app if it is known, so that it may arrive again: it was paused, and comes back."""
        self.advance(now_s)
        if app_id in self._apps:
            self.leave(app_id, now_s)
        self.ended.pop(app_id, None)

    def resize(self, gpus: float, now_s: float) -> None:
        """Machines came or went: the cluster has this many GPUs from now on."""
        self.advance(now_s)
        self._gpus = _checked_gpus(gpus)
        self._rebalance()

    def advance(self, now_s: float) -> None:
        """Let time pass. Apps that end by then are in `ended`."""
        if now_s < self._now_s:
            raise InvariantError("time ran backwards on the fluid cluster", value=(self._now_s, now_s))
        while True:
            due_s, app = self._next_end()
            if app is None or due_s > now_s:
                break
            self._pass_until(max(due_s, self._now_s))
            self._take_out(app)
            app.done += 1
            self._next_phase(app)
            self._rebalance()
        self._pass_until(now_s)

    def play(self, until_s: float) -> None:
        """Let time pass until nothing happens any more before `until_s`. The apps that end by then are in `ended`."""
        while math.isfinite(due_s := self._next_end()[0]) and due_s <= until_s:
            self.advance(max(due_s, self._now_s))

    def run_out(self) -> dict[str, FluidLife]:
        """Let time pass until nothing happens any more. Returns the lives of all apps, some without an end."""
        self.play(math.inf)
        stuck = {
            app_id: FluidLife(arrived_s=app.arrived_s, ends_s=math.inf, contention=self._contention(app))
            for app_id, app in self._apps.items()
        }
        return self.ended | stuck

    # ---- inside ----

    def _known(self, app_id: str) -> _App:
        if app_id not in self._apps:
            raise UnknownNameError("app on the fluid cluster", app_id, self._apps)
        return self._apps[app_id]

    def _contention(self, app: _App) -> float:
        share, life_s = self._shares[app.tenant], self._now_s - app.arrived_s
        lived_s = share.contention_at(self._weight_s) - app.before_s
        mean = lived_s / life_s if life_s > 0.0 else self._weight / share.rate
        return max(1.0, mean / app.weight)

    def _enter(self, app: _App) -> None:
        self._apps[app.app_id] = app
        share = self._shares.setdefault(app.tenant, _Share())
        share.apps, share.weight = share.apps + 1, share.weight + app.weight

    def _reweigh(self) -> None:
        """An app came or went: find the rates of all tenants. The caller rebalances."""
        rates = self._queues.app_weights({tenant: share.weight for tenant, share in self._shares.items()})
        for tenant, share in self._shares.items():
            if share.rate != rates[tenant]:
                share.turn(rates[tenant], self._virtual, self._weight_s)
        self._weight = sum_in_order(share.weight * share.rate for share in self._shares.values())

    def _next_end(self) -> tuple[float, _App | None]:
        """When the next phase ends, and its app; infinity and None if none ends."""
        first: tuple[float, _App | None] = (math.inf, None)
        for share in self._shares.values():
            full = share.full.by_end.first()
            if full[0] < first[0]:
                first = full
            virtual, shared = share.shared.by_end.first()
            if shared is not None and self._level > 0.0:
                left = max(0.0, virtual - share.virtual_at(self._virtual))
                due_s = self._now_s + left / (self._level * share.rate)
                if due_s < first[0]:
                    first = due_s, shared
        return first

    def _pass_until(self, now_s: float) -> None:
        """Time without events."""
        passed_s = now_s - self._now_s
        self._now_s = now_s
        self._weight_s += self._weight * passed_s
        if any(share.shared.by_end.live for share in self._shares.values()):
            self._virtual += self._level * passed_s
        else:
            # Without shared apps virtual time is not needed, and the level may be infinite.
            self._virtual = 0.0
            for share in self._shares.values():
                share.virtual = share.virtual_then = 0.0

    def _next_phase(self, app: _App, used_gpu_s: float = 0.0) -> None:
        """Start the next phase that has work left, or end the app. The app is in no group."""
        while app.done < len(app.phases):
            work_gpu_s = app.phases[app.done].work_gpu_s
            left_gpu_s = work_gpu_s - used_gpu_s
            if left_gpu_s > _ROUNDING * work_gpu_s:
                self._put(app, left_gpu_s, full=not self._overfills(self._shares[app.tenant], app.threshold))
                return
            app.done, used_gpu_s = app.done + 1, 0.0
        life = FluidLife(arrived_s=app.arrived_s, ends_s=self._now_s, contention=self._contention(app))
        self.ended[app.app_id] = life
        self._forget(app)

    def _forget(self, app: _App) -> None:
        del self._apps[app.app_id]
        share = self._shares[app.tenant]
        share.apps, share.weight = share.apps - 1, share.weight - app.weight
        if not share.apps:
            del self._shares[app.tenant]
        self._reweigh()

    def _put(self, app: _App, left_gpu_s: float, *, full: bool) -> None:
        """Add an app to its group."""
        self._entries += 1
        app.entry, app.full = self._entries, full
        share = self._shares[app.tenant]
        if full:
            app.end = self._now_s + left_gpu_s / app.gpus
            # The largest threshold first: this app turns shared first.
            share.full.add(app.gpus, app.end, -app.threshold, app)
        else:
            app.end = share.virtual_at(self._virtual) + left_gpu_s / app.weight
            share.shared.add(app.weight, app.end, app.threshold, app)

    def _left_gpu_s(self, app: _App) -> float:
        """GPU seconds that the current phase of an app in a group has left."""
        if app.full:
            return max(0.0, app.end - self._now_s) * app.gpus
        return max(0.0, app.end - self._shares[app.tenant].virtual_at(self._virtual)) * app.weight

    def _take_out(self, app: _App) -> float:
        """Take an app out of its group. Returns the GPU seconds that its phase has left."""
        self._entries += 1
        app.entry = self._entries
        share = self._shares[app.tenant]
        if app.full:
            share.full.drop(app.gpus)
        else:
            share.shared.drop(app.weight)
        return self._left_gpu_s(app)

    def _rebalance(self) -> None:
        """Find the level, and let apps turn from full to shared and back until it fits them.

        Both kinds of turns raise the level. So one pass of each is enough: an app that turned full stays below it.
        """
        self._level = self._level_now()
        for share in self._shares.values():
            while (turning := share.full.by_threshold.first())[1] is not None and self._overfills(share, -turning[0]):
                self._put(turning[1], self._take_out(turning[1]), full=False)
                self._level = self._level_now()
        fits = True
        while fits:
            fits = False
            for share in self._shares.values():
                while (turning := share.shared.by_threshold.first())[1] is not None and not self._overfills(
                    share, turning[0]
                ):
                    self._put(turning[1], self._take_out(turning[1]), full=True)
                    self._level, fits = self._level_now(), True

    def _overfills(self, share: _Share, threshold: float) -> bool:
        """Whether the level is below the threshold of an app of this share."""
        return threshold > self._level * share.rate

    def _level_now(self) -> float:
        """GPUs for each unit of weight of shared apps; 0 if full apps need more than all, else infinity without any."""
        left, weight = self._gpus, 0.0
        for share in self._shares.values():
            left -= share.full.total
            weight += share.shared.total * share.rate
        if weight > 0.0:
            return max(0.0, left) / weight
        return math.inf if left >= 0.0 else 0.0


def _checked_gpus(gpus: float) -> float:
    if not 0.0 <= gpus < math.inf:
        raise InputError("a cluster has 0 or more GPUs", value=gpus)
    return gpus
