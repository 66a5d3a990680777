"""Estimates of how long runs take, for the time that `themis reproduce` announces."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from themis.choices import BundleRule, LeaseEnds
from themis_lab.paper.port import Cell

AUCTIONED = "themis"

_SECONDS: Mapping[str, tuple[float, float, float, float]] = MappingProxyType(
    {
        "w1-small": (0.65, 2.1, 1.1, 10.4),
        "w2-small": (1.6, 3.5, 3.1, 10.8),
        "w1": (170.0, 1500.0, 530.0, 1300.0),
        "w2": (240.0, 900.0, 400.0, 1400.0),
        "gavel": (0.5, 0.5, 0.6, 0.6),
        "synthetic": (0.15, 0.15, 0.4, 0.4),
    }
)
"""Processor seconds of a run by workload: of a baseline (aligned, staggered), and of themis (aligned, staggered).

Measured on one machine. Small workloads: the mean over all policies. The paper's sizes: a run of tiresias and one of
themis with aligned ends; staggered ones are extrapolated from their first minutes.
"""

_MADE_UP: Mapping[str, float] = MappingProxyType({"make_instance": 0.03, "make_pair": 0.05, "like_apps": 0.33})
"""Processor seconds of runs with a few apps, by the function that makes them. For figure 18: per job of an app."""

_BY_ALL, _FOR_LIFE = 2.5, 17.5
"""Factors on the time if all apps bid in auctions, and if bundles are valued for life as well."""


def expected_s(cell: Cell) -> float:
    """Estimated seconds of a run on one core."""
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
