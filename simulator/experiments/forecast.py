"""How long runs may take, by what they run: only to tell users how long they have to wait."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from simulator.experiments.port import Cell
from themis.choices import LeaseEnds

AUCTIONED = "themis"

_SECONDS: Mapping[str, tuple[float, float, float, float]] = MappingProxyType(
    {
        "w1-small": (1.0, 4.0, 2.5, 13.0),
        "w2-small": (1.8, 5.5, 4.0, 14.0),
        "w1": (100.0, 400.0, 250.0, 1300.0),
        "w2": (180.0, 550.0, 400.0, 1400.0),
        "synthetic": (0.15, 0.15, 0.4, 0.4),
    }
)
"""Processor seconds of a run by workload: a baseline's, aligned and staggered, and themis's, aligned and staggered.

Of the small workloads as measured on one machine. Of the paper's sizes 100 times as much, by one run of gandiva on
workload 1.
"""

TINY_S = 0.3
"""Of runs of a few apps."""


def expected_s(cell: Cell) -> float:
    """Seconds that a run may take on one core."""
    arguments = cell.workload_arguments
    known = _SECONDS.get(str(arguments.get("around") or arguments.get("name")))
    if known is None:
        return TINY_S
    return known[2 * (cell.settings.policy == AUCTIONED) + (cell.settings.leases.ends is LeaseEnds.STAGGERED)]
