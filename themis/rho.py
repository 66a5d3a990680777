"""The definitions of finish-time fairness: rho is the time from an app's submission to its end over an ideal time.

Eight ideals are in use. Never compare a rho by one ideal with a rho by another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class RhoDefinition(StrEnum):
    """Names of the definitions of t_ideal (formulas: docs/explanation/simulator.md, Definitions of rho)."""

    FLUID = "fluid"
    ISOLATED_FLUID = "isolated_fluid"
    THEMIS_FLUID = "themis_fluid"
    THEMIS = "themis"
    ISOLATED_SHARE = "isolated_share"
    PLACEMENT_AWARE = "placement_aware"
    PRIVATE_CLUSTER = "private_cluster"
    ATTAINABLE = "attainable"

    @property
    def sentence(self) -> str:
        """What the definition compares the app's time with, in one sentence."""
        return _SENTENCES[self]

    @property
    def depends_on_schedule(self) -> bool:
        """Whether the schedule changes the ideal itself: its N counts the apps that the schedule has not ended yet.

        A policy that keeps apps waiting raises this N, and with it every ideal. So such a rho cannot rank policies.
        """
        return self not in FLUID_DEFINITIONS


FLUID_DEFINITIONS = (RhoDefinition.FLUID, RhoDefinition.ISOLATED_FLUID, RhoDefinition.THEMIS_FLUID)
"""The definitions whose ideal comes from the fluid fair cluster (`themis.fluid_cluster`): no schedule moves them."""

SCHEDULE_DEFINITIONS = tuple(definition for definition in RhoDefinition if definition not in FLUID_DEFINITIONS)
"""The definitions whose ideal depends on the schedule: the paper's, and those that others use."""

HEADLINE = RhoDefinition.FLUID
"""The definition of every rho that stands alone: it asks what users are promised."""

_LARGEST_SHOWN = 100.0
"""Apps of seconds have a rho of thousands, because a start takes longer than their training."""


def rho_text(rho: float | None) -> str:
    """Format rho for people: `1.23`, `>100`, `∞` if the app never ends, `-` if it is unknown (None or NaN)."""
    if rho is None or math.isnan(rho):
        return "-"
    if math.isinf(rho):
        return "∞"
    return f">{_LARGEST_SHOWN:g}" if rho > _LARGEST_SHOWN else f"{rho:.3g}"


_SENTENCES: Mapping[RhoDefinition, str] = MappingProxyType(
    {
        RhoDefinition.FLUID: "the time on an ideal cluster that all apps share fairly at every moment",
        RhoDefinition.ISOLATED_FLUID: "the time alone on the whole cluster, longer only as far as N apps of its demand "
        "exceed the cluster; N is the mean number of apps on the ideal cluster",
        RhoDefinition.THEMIS_FLUID: "N times the time of its work if that could be spread over all GPUs that it can "
        "use; N is the mean number of apps on the ideal cluster",
        RhoDefinition.THEMIS: "the paper's: as themis_fluid, with the mean number of apps in the real schedule",
        RhoDefinition.ISOLATED_SHARE: "as isolated_fluid, with the mean number of apps in the real schedule",
        RhoDefinition.PLACEMENT_AWARE: "as themis, times the slowdown S of its largest gang",
        RhoDefinition.PRIVATE_CLUSTER: "the time on 1/N of the cluster, with the mean number N of apps in the real "
        "schedule",
        RhoDefinition.ATTAINABLE: "as themis, but at least the time alone on the whole cluster with one start",
    }
)
