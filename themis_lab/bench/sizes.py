"""The sizes of the auction benchmark, and the cluster of each (docs/reference/benchmarks.md, Markets)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from themis.cluster import Cluster, Machine
from themis.errors import InputError
from themis.values import Value

_MACHINES_A_RACK = {64: 7, 168: 8, 1024: 16, 10000: 16}
_GROUPS: Mapping[int, tuple[tuple[int, tuple[int, ...]], ...]] = {
    64: ((8, (2,)), (12, (2, 2))),
    168: ((16, (2, 2, 2, 2)), (6, (1, 1, 1, 1)), (16, (1,))),
    1024: ((128, (2, 2, 2, 2)),),
    10000: ((1250, (2, 2, 2, 2)),),
}


class MarketSize(Value, frozen=True):
    """The size of a market: GPUs and machines of the cluster, and bidders."""

    gpus: int
    machines: int
    bidders: int


SIZES: Mapping[int, MarketSize] = {
    size.gpus: size
    for size in (
        MarketSize(64, 20, 5),
        MarketSize(168, 38, 17),
        MarketSize(1024, 128, 40),
        MarketSize(10000, 1250, 200),
    )
}
"""Known sizes by GPUs: the testbed, the paper's simulated cluster, and two clusters of 8-GPU machines."""


def size_of(gpus: int) -> MarketSize:
    """Return the size with `gpus` GPUs. Raises InputError for an unknown one."""
    if gpus not in SIZES:
        raise InputError("no such size", value=gpus, remedy=f"known: {', '.join(map(str, SIZES))}")
    return SIZES[gpus]


@lru_cache
def cluster_of(size: MarketSize) -> Cluster:
    """The cluster of a size: machines of each group in turn, distributed evenly over racks of 7, 8 or 16 machines."""
    racks = -(-size.machines // _MACHINES_A_RACK[size.gpus])
    slots = [slots for count, slots in _GROUPS[size.gpus] for _ in range(count)]
    machines = tuple(
        Machine(machine_id=f"m{number:04d}", rack_id=f"r{number % racks:02d}", slots=each)
        for number, each in enumerate(slots)
    )
    return Cluster(name=f"bench-{size.gpus}", machines=machines)
