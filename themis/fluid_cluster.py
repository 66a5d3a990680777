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
    An app is *full* if it has all that its phase can use, else *shared*. A full app ends at a known time, a shared app
    at a known value of virtual time, which advances by `level` per second.

    So an event changes a few sums and first ends, not every app: O((1 + c) log n), where c counts the apps that turn
    from full to shared or back. Each app can turn at most twice in an event.

    Apps of one user share the weight of that user (`themis.queues`), so the weight of an app changes as others of its
    user, or other users, come and go. `themis.fluid_tree` says how that changes no app's virtual time.

On a cluster of several device types every app shares in its own reference units: half of the cluster is half of the
speed that this app would have on all of it. A GPU then stands for an average GPU of the cluster, as this app sees it.

Source: generalized processor sharing (Parekh and Gallager, 1993), the fair sojourn protocol (Friedman and Henderson,
2003) and its use for Hadoop, HFSP (Pastorelli et al., 2013).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from themis.errors import InputError, InvariantError, UnknownNameError
from themis.fluid_tree import NOTHING, Branch, Total
from themis.queues import NO_OWNER, ONE_QUEUE, ROOT, AppOwner, Queues, Tenant
from themis.rho import RhoDefinition
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
    phases_done: int = 0
    used_gpu_s: float = 0.0
    owner: AppOwner = NO_OWNER


class FluidState(Value, frozen=True, kw_only=True):
    """A fluid cluster at a moment, to be stored: its GPUs, the integral of weight over time, and its live apps."""

    gpus: float
    now_s: float
    weight_s: float = 0.0
    apps: tuple[FluidApp, ...] = ()


@dataclass(slots=True, eq=False)
class _App:
    """A live app. `ends` is a time if the app is full, else a virtual time of its branch.

    `before_s` is the contention of its branch at its arrival, in seconds.
    """

    declared: FluidApp
    branch: Branch[_App]
    before_s: float
    done: int
    full: bool = False
    ends: float = 0.0
    place: int | None = None

    @property
    def gpus(self) -> float:
        """GPUs that its current phase can use."""
        return self.declared.phases[self.done].gpus

    def left_gpu_s(self, now_s: float) -> float:
        """GPU seconds that its current phase has left."""
        if self.full:
            return max(0.0, self.ends - now_s) * self.gpus
        return max(0.0, self.ends - self.branch.clocks()[0]) * self.declared.weight

    def used_gpu_s(self, now_s: float) -> float:
        """GPU seconds that its current phase has had."""
        return max(0.0, self.declared.phases[self.done].work_gpu_s - self.left_gpu_s(now_s))

    def lived_s(self) -> float:
        """The contention of its branch since its arrival, in seconds."""
        return self.branch.clocks()[1] - self.before_s


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
        self._root: Branch[_App] = Branch()
        self._branches: dict[str | Tenant, Branch[_App]] = {ROOT: self._root}
        self._apps: dict[str, _App] = {}
        self.ended: dict[str, FluidLife] = {}

    @classmethod
    def restored(cls, state: FluidState, queues: Queues = ONE_QUEUE) -> FluidCluster:
        """The cluster of a stored state. Apps that had ended are not in it."""
        cluster = cls(state.gpus, state.now_s, queues)
        cluster._root.contention_s = state.weight_s
        for app in state.apps:
            cluster._enter(app)
        cluster._rebalance()
        return cluster

    def state(self) -> FluidState:
        """Its live apps now, to be stored."""
        weight_s = self._root.contention_s
        apps = tuple(
            replace(
                app.declared,
                weight_s_before=weight_s - app.lived_s(),
                phases_done=app.done,
                used_gpu_s=app.used_gpu_s(self._now_s),
            )
            for app in self._apps.values()
        )
        return FluidState(gpus=self._gpus, now_s=self._now_s, weight_s=weight_s, apps=apps)

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
        app = FluidApp(
            app_id=app_id,
            weight=weight,
            arrived_s=now_s,
            weight_s_before=self._root.contention_s,
            phases=tuple(phases),
            owner=owner,
        )
        self._enter(app)
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
        used_gpu_s = app.used_gpu_s(now_s)
        app.declared = replace(app.declared, phases=tuple(phases))
        self._next_phase(app, used_gpu_s)
        self._rebalance()

    def leave(self, app_id: str, now_s: float) -> None:
        """An app is withdrawn, for example because its user killed it. It has no end here."""
        self.advance(now_s)
        if app_id not in self.ended:
            self._forget(self._known(app_id))
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
        self.play(now_s)
        self._pass_until(now_s)

    def play(self, until_s: float) -> None:
        """Let time pass until nothing happens any more before `until_s`. The apps that end by then are in `ended`."""
        while True:
            due_s, kind = self._next_end()
            if due_s > until_s or due_s == math.inf:
                break
            app = self._root.first(kind)
            self._pass_until(max(due_s, self._now_s))
            app.done += 1
            self._next_phase(app)
            self._rebalance()

    def run_out(self) -> dict[str, FluidLife]:
        """Let time pass until nothing happens any more. Returns the lives of all apps, some without an end."""
        self.play(math.inf)
        return self.ended | {app_id: self._life(app, math.inf) for app_id, app in self._apps.items()}

    # ---- inside ----

    def _known(self, app_id: str) -> _App:
        if app_id not in self._apps:
            raise UnknownNameError("app on the fluid cluster", app_id, self._apps)
        return self._apps[app_id]

    @property
    def _level(self) -> float:
        """GPUs for each unit of weight of shared apps; 0 if full apps need more than all, else infinity without any."""
        total = self._root.total
        left = self._gpus - total.full_gpus
        if total.shared_weight > 0.0:
            return max(0.0, left) / total.shared_weight
        return math.inf if left >= 0.0 else 0.0

    def _branch(self, owner: AppOwner) -> Branch[_App]:
        """The branch of a tenant."""
        tenant = self._queues.tenant(owner)
        if tenant not in self._branches:
            branch = self._root
            for queue in reversed([*self._queues.above(tenant[0])]):
                if queue.name not in self._branches:
                    self._branches[queue.name] = Branch(branch, queue.weight)
                branch = self._branches[queue.name]
            weight = self._queues.user_weight(tenant) if tenant[1] else None
            self._branches[tenant] = Branch(branch, weight)
        return self._branches[tenant]

    def _enter(self, declared: FluidApp) -> None:
        """Add an app. The caller rebalances."""
        branch = self._branch(declared.owner)
        lived_s = self._root.contention_s - declared.weight_s_before
        app = _App(declared, branch, branch.clocks()[1] - lived_s, declared.phases_done)
        self._apps[declared.app_id] = app
        # An app that has no work, and ends at once, counts for its own contention.
        branch.set(app, Total(declared.weight))
        self._next_phase(app, declared.used_gpu_s)

    def _next_end(self) -> tuple[float, str]:
        """When the next phase ends, infinity if none does; and by which value of totals its app is the first."""
        total, level = self._root.total, self._level
        if total.shared_ends < math.inf and level > 0.0:
            due_s = self._now_s + max(0.0, total.shared_ends - self._root.virtual) / level
            if due_s < total.full_ends_s:
                return due_s, "shared_ends"
        return total.full_ends_s, "full_ends_s"

    def _pass_until(self, now_s: float) -> None:
        """Time without events."""
        passed_s = now_s - self._now_s
        self._now_s = now_s
        self._root.contention_s += self._root.contention * passed_s
        # Without shared apps virtual time is not needed, and the level may be infinite.
        if self._root.total.shared_weight > 0.0:
            self._root.virtual += self._level * passed_s

    def _next_phase(self, app: _App, used_gpu_s: float = 0.0) -> None:
        """Start the next phase that has work left, or end the app."""
        while app.done < len(app.declared.phases):
            work_gpu_s = app.declared.phases[app.done].work_gpu_s
            left_gpu_s = work_gpu_s - used_gpu_s
            if left_gpu_s > _ROUNDING * work_gpu_s:
                self._put(app, left_gpu_s, full=app.full)
                return
            app.done, used_gpu_s = app.done + 1, 0.0
        self.ended[app.declared.app_id] = self._life(app, self._now_s)
        self._forget(app)

    def _life(self, app: _App, ends_s: float) -> FluidLife:
        """The life of an app that ends now, or never."""
        life_s = self._now_s - app.declared.arrived_s
        mean = app.lived_s() / life_s if life_s > 0.0 else app.branch.contention
        contention = max(1.0, mean / app.declared.weight)
        return FluidLife(arrived_s=app.declared.arrived_s, ends_s=ends_s, contention=contention)

    def _forget(self, app: _App) -> None:
        del self._apps[app.declared.app_id]
        app.branch.set(app, NOTHING)

    def _put(self, app: _App, left_gpu_s: float, *, full: bool) -> None:
        """Make an app full or shared, with what its phase has left."""
        weight, gpus = app.declared.weight, app.gpus
        app.full = full
        if full:
            app.ends = self._now_s + left_gpu_s / gpus
            total = Total(weight, full_gpus=gpus, full_ends_s=app.ends, shares_below=gpus / weight)
        else:
            app.ends = app.branch.clocks()[0] + left_gpu_s / weight
            total = Total(weight, weight, shared_ends=app.ends, fills_at=gpus / weight)
        app.branch.set(app, total)

    def _rebalance(self) -> None:
        """Let apps turn from full to shared and back until the level fits them.

        Both kinds of turns raise the level. So one pass of each is enough: an app that turned full stays below it.
        """
        while self._root.total.shares_below > self._level:
            app = self._root.first("shares_below")
            self._put(app, app.left_gpu_s(self._now_s), full=False)
        while self._root.total.fills_at <= self._level < math.inf:
            app = self._root.first("fills_at")
            self._put(app, app.left_gpu_s(self._now_s), full=True)


def _checked_gpus(gpus: float) -> float:
    if not 0.0 <= gpus < math.inf:
        raise InputError("a cluster has 0 or more GPUs", value=gpus)
    return gpus
