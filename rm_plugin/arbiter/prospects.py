"""What is ahead of the active apps, computed in one go: their lives on the fluid cluster, a forecast, and rho. Pure.

The three follow from each other: the forecast needs the fair ends of the lives, and rho both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from rm_plugin.arbiter.estimates import AppNow, ClusterNow, Forecast, estimate_of, forecast
from themis.fluid_cluster import FluidCluster, FluidLife, FluidPhase
from themis.queues import ONE_QUEUE, AppOwner, Queues
from themis.values import Value


class Stay(Value, frozen=True, kw_only=True):
    """What the fluid cluster has to know of an app; `left_at_s` is when it left with work undone, if it did."""

    app_id: str
    owner: AppOwner
    phases: tuple[FluidPhase, ...]
    arrived_at_s: float
    left_at_s: float | None = None


def lives_of_stays(stays: Iterable[Stay], gpus: float, queues: Queues = ONE_QUEUE) -> dict[str, FluidLife]:
    """The lives of all apps that declared phases, on a fluid cluster of `gpus` GPUs."""
    changes: list[tuple[float, bool, Stay]] = []
    for stay in stays:
        changes.append((stay.arrived_at_s, False, stay))
        if stay.left_at_s is not None:
            changes.append((max(stay.arrived_at_s, stay.left_at_s), True, stay))
    changes.sort(key=lambda change: change[:2])
    cluster = FluidCluster(gpus, changes[0][0] if changes else 0.0, queues)
    for at_s, leaves, stay in changes:
        if leaves:
            cluster.leave(stay.app_id, at_s)
        else:
            cluster.arrive(stay.app_id, stay.phases, at_s, owner=stay.owner)
    return cluster.run_out()


class Prospects(Value, frozen=True, kw_only=True):
    """A forecast of each app, and its rho by `fluid` if it ends as estimated, if it has declared itself."""

    forecasts: Mapping[str, Forecast]
    rho: Mapping[str, float]


NO_PROSPECTS = Prospects(forecasts={}, rho={})


def prospects_of(apps: Sequence[AppNow], lives: Mapping[str, FluidLife], now: ClusterNow) -> Prospects:
    """The prospects of apps, whose fair ends are those of their lives."""
    apps = [replace(app, fair_end_s=lives[app.app_id].ends_s) if app.app_id in lives else app for app in apps]
    forecasts = forecast(apps, now)
    rho = {}
    for app in apps:
        life = lives.get(app.app_id)
        if life is not None and life.time_s > 0.0:
            estimate = estimate_of(app, forecasts[app.app_id], now_s=now.now_s, lease_s=now.lease_s, order=now.order)
            rho[app.app_id] = (now.now_s - app.submitted_at_s + estimate.end_s.median) / life.time_s
    return Prospects(forecasts=forecasts, rho=rho)


class Question(Value, frozen=True, kw_only=True):
    """What the prospects of apps follow from whose lives are not known yet."""

    apps: Sequence[AppNow]
    stays: Sequence[Stay]
    cluster_gpus: int
    now: ClusterNow


def packed_prospects(packed: bytes) -> bytes:
    """The prospects by a question, both as MessagePack, for another process.

    `pickle` takes 40 times as long for the question, and holds the interpreter of the process that asks.
    """
    question = msgspec.msgpack.decode(packed, type=Question)
    lives = lives_of_stays(question.stays, question.cluster_gpus, question.now.settings.queues)
    return msgspec.msgpack.encode(prospects_of(question.apps, lives, question.now))
