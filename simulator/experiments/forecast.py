"""How long runs may take, by what they run: only to tell users how long they have to wait."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from simulator.experiments.port import Cell
from themis.choices import BundleRule, LeaseEnds

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

_MADE_UP: Mapping[str, float] = MappingProxyType({"make_instance": 0.03, "make_pair": 0.05, "like_apps": 0.33})
"""The same of runs of a few apps by what makes them; of figure 18's like apps for each job of an app."""

_BY_ALL, _FOR_LIFE = 2.5, 17.5
"""So much longer take auctions in which all apps bid, and those of bundles for life as well."""


def expected_s(cell: Cell) -> float:
    """Seconds that a run may take on one core."""
    arguments = cell.workload_arguments
    known = _SECONDS.get(str(arguments.get("around") or arguments.get("name")))
    if known is None:
        return _made_up_s(cell)
    return known[2 * (cell.settings.policy == AUCTIONED) + (cell.settings.leases.ends is LeaseEnds.STAGGERED)]


def _made_up_s(cell: Cell) -> float:
    maker = getattr(cell.make_workload, "__name__", "")
    if maker != "like_apps":
        return _MADE_UP[maker]
    longer = 1.0 if cell.settings.rounds.f else _BY_ALL
    if cell.settings.bundle_rule is BundleRule.LEXICOGRAPHIC:
        longer = _FOR_LIFE
    return _MADE_UP[maker] * int(str(cell.workload_arguments["jobs"])) * longer
