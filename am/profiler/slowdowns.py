"""S by level from measured paces: ratios where a level was seen, the assumption where not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from am.profiler.pace import Pace, Placement
from themis.apps import Slowdown
from themis.cluster import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSeen:
    """S at a level that a job has run at.

    Attributes:
        factor: S, as `measured_slowdown` has it.
        spread: How far single intervals lie from it, as a median, in the same unit: that of the level and that of the
            nearest level seen, which it is compared with. The nearest level itself has its own alone.
        count: Intervals measured at the level.
    """

    factor: float
    spread: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSlowdown:
    """S at any level, for people: by how many intervals it was measured and their spread, both 0 for an estimate."""

    level: str
    factor: float
    intervals: int = 0
    spread: float = 0.0


def by_level(slowdown: Slowdown, seen: Mapping[Level, LevelSeen]) -> tuple[LevelSlowdown, ...]:
    """S at every level, nearest first, each measured or estimated."""
    return tuple(
        LevelSlowdown(
            level=level.label,
            factor=slowdown.at(level),
            intervals=seen[level].count if level in seen else 0,
            spread=seen[level].spread if level in seen else 0.0,
        )
        for level in Level
    )


def levels_seen(paces: Mapping[Placement, Pace], assumed: Slowdown) -> Mapping[Level, LevelSeen]:
    """S with spread and count of every level with enough intervals, nearest first."""
    slowdown = measured_slowdown(paces, assumed)
    settled = {placement: pace for placement, pace in paces.items() if pace.settled}
    levels = sorted({placement.level for placement in settled})
    shares = {level: _spread_share(level, settled) for level in levels}
    seen: dict[Level, LevelSeen] = {}
    for level in levels:
        share = shares[level] if level == levels[0] else math.hypot(shares[level], shares[levels[0]])
        count = sum(pace.count for at, pace in settled.items() if at.level == level)
        seen[level] = LevelSeen(factor=slowdown.at(level), spread=slowdown.at(level) * share, count=count)
    return seen


def measured_slowdown(paces: Mapping[Placement, Pace], assumed: Slowdown) -> Slowdown:
    """S at every level, at least 1 and never falling as GPUs lie farther apart.

    The nearest level seen keeps the S assumed for it, as nothing nearer is there to compare with. Every farther level
    seen gets the median ratio of its GPU seconds an iteration to those at nearer levels, times their S; pairs with the
    same number of GPUs are preferred, since then nothing but the placement differs. A level not seen keeps the S
    assumed, within what its neighbours allow. Where measured levels contradict the order, those that do are averaged,
    weighted by their intervals.

    Args:
        paces: Paces by placement; those of too few intervals are left aside.
        assumed: S before any measurement.
    """
    settled = {placement: pace for placement, pace in paces.items() if pace.settled}
    ratios: dict[Level, float] = {}
    for level in sorted({placement.level for placement in settled}):
        ratios[level] = _ratio(level, settled, ratios) if ratios else assumed.at(level)
    counts = {level: sum(pace.count for at, pace in settled.items() if at.level == level) for level in ratios}
    return _filled(_never_falling(ratios, counts), assumed)


def serial_iteration_s(paces: Mapping[Placement, Pace], slowdown: Slowdown) -> float | None:
    """Seconds an iteration on one GPU at S = 1: the weighted median of `iteration_s * gpus / S`; None without paces."""
    estimates = [(pace.iteration_s * at.gpus / slowdown.at(at.level), pace.count) for at, pace in paces.items()]
    return weighted_median(estimates) if estimates else None


def weighted_median(values: Iterable[tuple[float, int]]) -> float:
    """The least value with at least half of all weight at or below it; there must be one."""
    ordered = sorted(values)
    half = sum(weight for _, weight in ordered) / 2
    reached = 0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return ordered[-1][0]


def _spread_share(level: Level, paces: Mapping[Placement, Pace]) -> float:
    """The median distance from the median, as a share of it, over the placements of a level."""
    return weighted_median(
        (pace.spread_s / pace.iteration_s, pace.count) for at, pace in paces.items() if at.level == level
    )


def _ratio(level: Level, paces: Mapping[Placement, Pace], nearer: Mapping[Level, float]) -> float:
    """S of a level by comparison with the nearer levels that have one already."""
    pairs = [(far, near) for far in paces if far.level == level for near in paces if near.level in nearer]
    alike = [(far, near) for far, near in pairs if far.gpus == near.gpus]
    return weighted_median(
        (
            nearer[near.level] * _gpu_seconds(far, paces) / _gpu_seconds(near, paces),
            min(paces[far].count, paces[near].count),
        )
        for far, near in alike or pairs
    )


def _gpu_seconds(placement: Placement, paces: Mapping[Placement, Pace]) -> float:
    return paces[placement].iteration_s * placement.gpus


def _never_falling(ratios: Mapping[Level, float], counts: Mapping[Level, int]) -> dict[Level, float]:
    """The nearest never-falling values, each at least 1 (pool adjacent violators, weighted by counts)."""
    blocks: list[tuple[float, int, list[Level]]] = []
    for level, ratio in sorted(ratios.items()):
        blocks.append((ratio, counts[level], [level]))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (low, low_count, low_levels), (high, high_count, high_levels) = blocks[-2:]
            total = low_count + high_count
            blocks[-2:] = [((low * low_count + high * high_count) / total, total, low_levels + high_levels)]
    return {level: max(1.0, value) for value, _, levels in blocks for level in levels}


def _filled(measured: Mapping[Level, float], assumed: Slowdown) -> Slowdown:
    """Levels that were not seen take the assumed S, between those of the levels around them."""
    factors: list[float] = []
    for level in Level:
        at_least = factors[-1] if factors else 1.0
        at_most = min((factor for seen, factor in measured.items() if seen > level), default=float("inf"))
        factors.append(measured.get(level, max(at_least, min(assumed.at(level), at_most))))
    return Slowdown(*factors)
