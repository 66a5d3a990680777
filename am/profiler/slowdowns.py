"""Estimate the slowdown S per locality level from measured iteration times.

A level at which the job ran gets the measured ratio. Other levels keep the assumed S.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from am.profiler.iteration_time import IterationTime, Placement
from themis.apps import Slowdown
from themis.cluster import Level
from themis.sums import sum_in_order
from themis.values import Value, cached_property


class LevelSeen(Value, frozen=True, kw_only=True):
    """S at a level at which the job has run.

    Attributes:
        factor: S, from `measured_slowdown`.
        spread: Median deviation of S, in the unit of S. It combines the spread of the level's intervals with that of
            the tightest measured level, which S is relative to. For the tightest level it is the level's own spread.
        count: Intervals measured at the level.
    """

    factor: float
    spread: float
    count: int


class LevelSlowdown(Value, frozen=True, kw_only=True):
    """S at a level for display. `intervals` and `spread` describe the measurement; both are 0 for an estimate."""

    level: str
    factor: float
    intervals: int = 0
    spread: float = 0.0


def by_level(slowdown: Slowdown, seen: Mapping[Level, LevelSeen]) -> tuple[LevelSlowdown, ...]:
    """Return S at every level, tightest first, measured or estimated."""
    return tuple(
        LevelSlowdown(
            level=level.label,
            factor=slowdown.at(level),
            intervals=seen[level].count if level in seen else 0,
            spread=seen[level].spread if level in seen else 0.0,
        )
        for level in Level
    )


class Paces(Value, frozen=True, dict=True, kw_only=True):
    """The iteration times of a job by placement, in the order of its first runs there, and what follows from them.

    Attributes:
        all: The iteration times.
        assumed: S before any measurement.
    """

    all: Mapping[Placement, IterationTime]
    assumed: Slowdown

    @cached_property
    def base_device(self) -> str:
        """The first device type with measurements; empty without any."""
        return next((placement.device for placement in self.all), "")

    @cached_property
    def of_base(self) -> Mapping[Placement, IterationTime]:
        """The iteration times on the first type with measurements; S is measured there."""
        return {placement: pace for placement, pace in self.all.items() if placement.device == self.base_device}

    @cached_property
    def slowdown(self) -> Slowdown:
        """S by level."""
        return measured_slowdown(self.of_base, self.assumed)

    @cached_property
    def serial_iteration_s(self) -> float | None:
        """Seconds per iteration on one GPU of the first type with measurements at S = 1; None without any."""
        return serial_iteration_s(self.of_base, self.slowdown)


def levels_seen(paces: Mapping[Placement, IterationTime], assumed: Slowdown) -> Mapping[Level, LevelSeen]:
    """Return S with spread and count for every level with enough intervals, tightest first."""
    slowdown = measured_slowdown(paces, assumed)
    reliable = {placement: pace for placement, pace in paces.items() if pace.is_reliable}
    levels = sorted({placement.level for placement in reliable})
    shares = {level: _spread_share(level, reliable) for level in levels}
    seen: dict[Level, LevelSeen] = {}
    for level in levels:
        share = shares[level] if level == levels[0] else math.hypot(shares[level], shares[levels[0]])
        count = sum(pace.count for at, pace in reliable.items() if at.level == level)
        seen[level] = LevelSeen(factor=slowdown.at(level), spread=slowdown.at(level) * share, count=count)
    return seen


def measured_slowdown(paces: Mapping[Placement, IterationTime], assumed: Slowdown) -> Slowdown:
    """Estimate S at every level: at least 1, and not lower at a looser level than at a tighter one.

    * The tightest measured level keeps its assumed S, because there is no tighter one to compare it with.
    * Every looser measured level gets a median ratio: its GPU seconds per iteration over those at tighter levels, times
      their S. Pairs with the same number of GPUs are preferred, because then only the placement differs.
    * If measured levels are out of order, they are averaged, weighted by their intervals.
    * A level that was not measured keeps its assumed S, limited by the levels around it.

    Example: assumed S = (1, 1.1, 1.5, 2) for slot, machine, rack and cluster. A job ran on 4 GPUs of one machine at
    0.80 s per iteration, and on 4 GPUs of one rack at 1.20 s. The machine level keeps 1.1. The rack level gets
    1.1 * (1.20 * 4) / (0.80 * 4) = 1.65. The slot and cluster levels keep 1 and 2.

    Args:
        paces: Iteration times by placement. Those with too few intervals are ignored.
        assumed: S before any measurement.
    """
    reliable = {placement: pace for placement, pace in paces.items() if pace.is_reliable}
    if not reliable:
        return assumed
    ratios: dict[Level, float] = {}
    for level in sorted({placement.level for placement in reliable}):
        ratios[level] = _ratio(level, reliable, ratios) if ratios else assumed.at(level)
    counts = {level: sum(pace.count for at, pace in reliable.items() if at.level == level) for level in ratios}
    return _filled(_never_falling(ratios, counts), assumed)


def serial_iteration_s(paces: Mapping[Placement, IterationTime], slowdown: Slowdown) -> float | None:
    """Return seconds per iteration on one GPU at S = 1: the weighted median of `iteration_s * gpus / S`.

    Returns None without measurements. All placements must have one device type.
    """
    estimates = [(pace.iteration_s * at.gpus / slowdown.at(at.level), pace.count) for at, pace in paces.items()]
    return weighted_median(estimates) if estimates else None


def weighted_median(values: Iterable[tuple[float, int]]) -> float:
    """Return the smallest value with at least half of all weight at or below it. `values` must not be empty."""
    ordered = sorted(values)
    half = sum_in_order(weight for _, weight in ordered) / 2
    reached = 0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return ordered[-1][0]


def _spread_share(level: Level, paces: Mapping[Placement, IterationTime]) -> float:
    """Return the weighted median of the relative spreads (MAD / median) of a level's placements."""
    return weighted_median(
        (pace.spread_s / pace.iteration_s, pace.count) for at, pace in paces.items() if at.level == level
    )


def _ratio(level: Level, paces: Mapping[Placement, IterationTime], nearer: Mapping[Level, float]) -> float:
    """Return S of a level by comparison with the tighter levels, whose S is known."""
    pairs = [(far, near) for far in paces if far.level == level for near in paces if near.level in nearer]
    same_size = [(far, near) for far, near in pairs if far.gpus == near.gpus]
    return weighted_median(
        (
            nearer[near.level] * _gpu_seconds(far, paces) / _gpu_seconds(near, paces),
            min(paces[far].count, paces[near].count),
        )
        for far, near in same_size or pairs
    )


def _gpu_seconds(placement: Placement, paces: Mapping[Placement, IterationTime]) -> float:
    return paces[placement].iteration_s * placement.gpus


def _never_falling(ratios: Mapping[Level, float], counts: Mapping[Level, int]) -> dict[Level, float]:
    """Fit non-decreasing values of at least 1 (pool adjacent violators algorithm, weighted by counts)."""
    blocks: list[tuple[float, int, list[Level]]] = []
    for level, ratio in sorted(ratios.items()):
        blocks.append((ratio, counts[level], [level]))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (low, low_count, low_levels), (high, high_count, high_levels) = blocks[-2:]
            total = low_count + high_count
            blocks[-2:] = [((low * low_count + high * high_count) / total, total, low_levels + high_levels)]
    return {level: max(1.0, value) for value, _, levels in blocks for level in levels}


def _filled(measured: Mapping[Level, float], assumed: Slowdown) -> Slowdown:
    """Add the assumed S for levels without a measurement, limited by the levels around them."""
    factors: list[float] = []
    for level in Level:
        at_least = factors[-1] if factors else 1.0
        at_most = min((factor for seen, factor in measured.items() if seen > level), default=float("inf"))
        factors.append(measured.get(level, max(at_least, min(assumed.at(level), at_most))))
    return Slowdown(*factors)
