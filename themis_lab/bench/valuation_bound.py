"""A proven lower bound on the finish time of an app's jobs on a bundle of any size, over all divisions.

It starts with two bounds. A linear programme over kinds of gangs allows jobs to be split into parts that run one after
another, and fractions of gangs. A bin packing bound uses each job's fastest time on as many gangs as possible. If a gap
remains, proofs with whole jobs and whole gangs narrow it (`valuation_columns`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.candidates.gang_kinds import GangKind, gang_kinds
from am.agent.model.finish_time import job_time_s
from am.agent.model.views import AppView
from rm_plugin.solvers.highs_package import highspy
from themis.bids import FreeMachine
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity, parts_together, together_gpus
from themis_lab.bench.valuation_columns import is_too_soon

_TOLERANCE = 1e-7

_NEAR = 1.0005
"""Finish times within this factor count as equal."""

Times = NDArray[np.float64]


def bound_s(app: AppView, machines: Sequence[FreeMachine], reached_s: float) -> float:
    """Lower bound on the seconds that the app's jobs need.

    Args:
        app: The app, without later phases and without GPUs.
        machines: The bundle.
        reached_s: A time that can be reached: no job is put where it alone takes longer.
    """
    capacity, kinds = kinds_of(app, machines)
    times_s, limits = times_of(app, kinds), limits_of(kinds, machines, capacity)
    low_s = max(_packing_s(times_s, kinds, capacity), _relaxed_s(times_s, limits, reached_s))
    return _narrowed_s(times_s, limits, low_s, reached_s)


def kinds_of(app: AppView, machines: Sequence[FreeMachine]) -> tuple[GangCapacity, tuple[GangKind, ...]]:
    """The free capacity of a bundle, and the kinds of gangs that an app can form of it."""
    capacity = GangCapacity.of(machines)
    return capacity, gang_kinds(app, capacity)


def times_of(app: AppView, kinds: Sequence[GangKind]) -> Times:
    """J x K seconds of each job on a gang of each kind; infinite if it cannot run there."""
    return np.array([[job_time_s(job, kind.at) for kind in kinds] for job in app.jobs])


def _narrowed_s(times_s: Times, limits: Sequence[tuple[list[float], int]], low_s: float, reached_s: float) -> float:
    """The latest finish time found that is proven too early. Starts near the time that is reached."""
    if math.isinf(reached_s):
        return low_s
    high_s, middle_s = reached_s, reached_s / _NEAR
    while high_s > _NEAR * low_s:
        if is_too_soon(times_s, limits, middle_s):
            low_s = middle_s
        else:
            high_s = middle_s
        middle_s = (low_s + high_s) / 2.0
    return low_s


def _packing_s(times_s: Times, kinds: Sequence[GangKind], capacity: GangCapacity) -> float:
    """The smallest T for which a bin packing bound allows all jobs, each at its fastest, on the most gangs."""
    smallest = min(kinds, key=lambda kind: kind.at.gpus)
    gangs = capacity.gpus // smallest.at.gpus
    if len({(kind.at.gpus, kind.unit_gpus) for kind in kinds}) == 1:
        gangs = capacity.most(smallest.at.gpus, smallest.unit_gpus, Level.CLUSTER)
    fastest_s = np.sort(times_s.min(axis=1))[::-1]
    low_s = max(float(fastest_s[0]), float(fastest_s.sum()) / gangs)
    for more in range(1, (len(fastest_s) - 1) // gangs + 1):
        # With more than k jobs per gang, some gang runs k + 1.
        last = more * gangs
        low_s = max(low_s, float(fastest_s[last - more : last + 1].sum()))
    high_s = 2.0 * low_s
    if _bins(fastest_s, low_s) <= gangs:
        return low_s
    while high_s - low_s > _TOLERANCE * high_s:
        middle_s = (low_s + high_s) / 2.0
        low_s, high_s = (middle_s, high_s) if _bins(fastest_s, middle_s) > gangs else (low_s, middle_s)
    return low_s


def _bins(fastest_s: Times, end_s: float) -> int:
    """Lower bound L2 on the number of bins (Martello and Toth, "Knapsack Problems", 1990, chapter 8)."""
    most = 0
    for small_s in (0.0, *fastest_s[fastest_s <= end_s / 2].tolist()):
        alone = fastest_s[fastest_s > end_s - small_s]
        large = fastest_s[(fastest_s > end_s / 2) & (fastest_s <= end_s - small_s)]
        others = fastest_s[(fastest_s >= small_s) & (fastest_s <= end_s / 2)]
        over_s = others.sum() - (len(large) * end_s - large.sum())
        most = max(most, len(alone) + len(large) + max(0, math.ceil(over_s / end_s - _TOLERANCE)))
    return most


def limits_of(
    kinds: Sequence[GangKind], machines: Sequence[FreeMachine], capacity: GangCapacity
) -> list[tuple[list[float], int]]:
    """Limits of the form: a weighted sum of gang counts is at most a capacity.

    Every division of the bundle meets them.
    """
    limits: list[tuple[list[float], int]] = [([float(kind.at.gpus) for kind in kinds], capacity.gpus)]
    slots = [count for machine in machines for count in machine.free_slots]
    for size in sorted({kind.at.gpus for kind in kinds}):
        limits.append(
            (
                [float(parts_together(kind.request, size)) for kind in kinds],
                sum(each.free // size for each in machines),
            )
        )
        in_slots = [float(kind.at.gpus // size) if kind.within is Level.SLOT else 0.0 for kind in kinds]
        limits.append((in_slots, sum(count // size for count in slots)))
    for size in sorted({together_gpus(kind.request) for kind in kinds} - {1}):
        lies = [float(kind.at.gpus) if together_gpus(kind.request) >= size else 0.0 for kind in kinds]
        limits.append((lies, sum(each.free for each in machines if each.free >= size)))
        in_slots = [gpus if kind.within is Level.SLOT else 0.0 for gpus, kind in zip(lies, kinds, strict=True)]
        limits.append((in_slots, sum(count for count in slots if count >= size)))
    for like in kinds:
        holds = [
            float(kind.at.gpus >= like.at.gpus and kind.unit_gpus % like.unit_gpus == 0 and kind.within <= like.within)
            for kind in kinds
        ]
        limits.append((holds, like.most))
    return limits


def _relaxed_s(times_s: Times, limits: Sequence[tuple[list[float], int]], reached_s: float) -> float:
    """The linear programme: smallest T, busy gang seconds per kind, shares of each job on each kind. 0 if unsolved."""
    kinds = times_s.shape[1]
    fits = [(job, kind) for job, kind in np.argwhere(times_s <= reached_s * (1.0 + _TOLERANCE)).tolist()]
    share = {pair: 1 + kinds + place for place, pair in enumerate(fits)}
    columns = 1 + kinds + len(fits)
    rows: list[tuple[float, float, dict[int, float]]] = []
    work: list[dict[int, float]] = [{1 + kind: -1.0} for kind in range(kinds)]
    for job in range(len(times_s)):
        mine = [pair for pair in fits if pair[0] == job]
        rows.append((1.0, 1.0, {share[pair]: 1.0 for pair in mine}))
        rows.append((-math.inf, 0.0, {0: -1.0} | {share[pair]: float(times_s[pair]) for pair in mine}))
        for pair in mine:
            work[pair[1]][share[pair]] = float(times_s[pair])
    rows += [(-math.inf, 0.0, uses) for uses in work]
    for uses, most in limits:
        rows.append((-math.inf, 0.0, {0: -float(most)} | {1 + kind: use for kind, use in enumerate(uses) if use}))
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.addVars(columns, np.zeros(columns), np.full(columns, math.inf))
    model.changeColCost(0, 1.0)
    for low, high, terms in rows:
        model.addRow(low, high, len(terms), np.array(list(terms), dtype=np.int32), np.array(list(terms.values())))
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return 0.0
    return float(model.getInfo().objective_function_value) * (1.0 - _TOLERANCE)
