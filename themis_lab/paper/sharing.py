"""Sharing incentive, envy freeness and Pareto efficiency of one-shot allocations to two apps on a small cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import comb, prod

from themis.apps import Slowdown
from themis.values import Value

_ROUNDING = 1e-9

Counts = tuple[int, ...]
"""GPUs by machine, in the order of the cluster's machines."""


class Taker(Value, frozen=True, kw_only=True):
    """An app with one job that runs on exactly `gpus` GPUs."""

    name: str
    model: str
    gpus: int
    slowdown: Slowdown


class Verdict(Value, frozen=True, kw_only=True):
    """Which of the three properties an allocation has, and each app's slowdown (infinite if it cannot run)."""

    slowdowns: tuple[float, ...]
    sharing_incentive: bool
    envy_free: bool
    pareto_efficient: bool


def slowdown_on(taker: Taker, held: Counts) -> float:
    """S of the closest `gpus` of these GPUs: on one machine if they fit, else across the rack.

    Infinite if there are too few.
    """
    if sum(held) < taker.gpus:
        return float("inf")
    return taker.slowdown.machine if max(held) >= taker.gpus else taker.slowdown.rack


def judge(takers: Sequence[Taker], machines: Counts, allocation: Sequence[Counts]) -> Verdict:
    """Return which properties an allocation has.

    Sharing incentive: no app is slower than on a private cluster of R/N GPUs with the best placement (NSDI'20, section
    3.1). Envy freeness: no app would be faster on another app's GPUs. Pareto efficiency: no other allocation makes one
    app faster and none slower.

    Args:
        takers: The apps, two of them.
        machines: GPUs of each machine.
        allocation: The GPUs of each app.
    """
    own = tuple(slowdown_on(taker, held) for taker, held in zip(takers, allocation, strict=True))
    envy = any(
        slowdown_on(taker, other) < mine - _ROUNDING
        for taker, mine in zip(takers, own, strict=True)
        for other in allocation
    )
    better = any(_better(_slowdowns(takers, other), own) for other in allocations(machines))
    return Verdict(
        slowdowns=own,
        sharing_incentive=all(
            mine <= taker.slowdown.machine + _ROUNDING for taker, mine in zip(takers, own, strict=True)
        ),
        envy_free=not envy,
        pareto_efficient=not better,
    )


def allocations(machines: Counts) -> Iterator[tuple[Counts, Counts]]:
    """Yield all ways to give every GPU to one of two apps."""
    for first in product(*(range(gpus + 1) for gpus in machines)):
        yield first, tuple(gpus - taken for gpus, taken in zip(machines, first, strict=True))


def equal_allocations(machines: Counts) -> Iterator[tuple[tuple[Counts, Counts], int]]:
    """Yield the allocations of equally many GPUs, as DRF requires, each with its number of choices of GPUs."""
    for allocation in allocations(machines):
        if 2 * sum(allocation[0]) == sum(machines):
            yield allocation, prod(comb(gpus, taken) for gpus, taken in zip(machines, allocation[0], strict=True))


def violated_shares(takers: Sequence[Taker], machines: Counts) -> Mapping[str, float]:
    """Of all choices of GPUs that DRF allows, the share that violates each property."""
    total = 0
    violated = {"SI": 0, "EF": 0, "PE": 0}
    for allocation, ways in equal_allocations(machines):
        verdict = judge(takers, machines, allocation)
        total += ways
        for name, kept in kept_by_name(verdict).items():
            violated[name] += 0 if kept else ways
    return {name: count / total for name, count in violated.items()}


def kept_by_name(verdict: Verdict) -> dict[str, bool]:
    """The properties by their short names."""
    return {"SI": verdict.sharing_incentive, "EF": verdict.envy_free, "PE": verdict.pareto_efficient}


def _slowdowns(takers: Sequence[Taker], allocation: Sequence[Counts]) -> tuple[float, ...]:
    return tuple(slowdown_on(taker, held) for taker, held in zip(takers, allocation, strict=True))


def _better(other: Sequence[float], own: Sequence[float]) -> bool:
    pairs = list(zip(other, own, strict=True))
    return all(theirs <= mine + _ROUNDING for theirs, mine in pairs) and any(
        theirs < mine - _ROUNDING for theirs, mine in pairs
    )
