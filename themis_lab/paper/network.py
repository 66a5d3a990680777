"""Shared code of figures 15 and 16: workload 2 with growing shares of placement-sensitive apps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from themis_lab.paper import sweeps
from themis_lab.paper.plans import policy_cells
from themis_lab.paper.port import Cell, Scale

PERCENTS: Mapping[Scale, Sequence[int]] = {Scale.QUICK: (0, 40, 100), Scale.PAPER: (0, 20, 40, 60, 80, 100)}
"""Shares of network-intensive apps, in percent."""

COLUMN = "network_percent"


def network_cells(scale: Scale, seeds: int) -> list[Cell]:
    """Every policy at each share of network-intensive apps. For one seed the apps differ in their models only."""
    return [
        cell
        for percent in PERCENTS[scale]
        for cell in policy_cells(
            sweeps.simulated_load(scale, network_intensive=percent / 100),
            sweeps.SIMULATED[scale],
            seeds,
            ends=sweeps.ends_of(scale, both=percent == max(PERCENTS[scale])),
            labels={COLUMN: percent},
        )
    ]
