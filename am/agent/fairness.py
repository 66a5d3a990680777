"""Finish-time fairness: ideal times and rho by five named definitions, never mixed (themis.md, section 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from am.agent.batch import SURELY
from am.agent.finish_time import time_on_count_s
from am.agent.views import AppView, Surroundings
from themis.choices import BundleRule
from themis.values import Value

Seconds = NDArray[np.float64]

_LEXICOGRAPHIC, _IDLE_THEN_SHARE = BundleRule.LEXICOGRAPHIC, BundleRule.IDLE_THEN_SHARE
"""Asked for in every report. A member by its class takes four times as long, before Python 3.12."""

_FEW = 4
"""So few bundles are valued one after the other: arrays would cost more than they save."""


class RhoDefinition(StrEnum):
    """Names of the five definitions of t_ideal."""

    THEMIS = "themis"
    ISOLATED_SHARE = "isolated_share"
    PLACEMENT_AWARE = "placement_aware"
    PRIVATE_CLUSTER = "private_cluster"
    ATTAINABLE = "attainable"


def cluster_time_s(app: AppView, around: Surroundings) -> float:
    """t_cluster = B / min(R_C, app_demand_max), in seconds (equation 2)."""
    most_gpus, cluster_gpus = app.demand_max_gpus, around.cluster_gpus
    return app.work_total_gpu_s / (most_gpus if most_gpus < cluster_gpus else cluster_gpus)


def ideal_time_s(app: AppView, around: Surroundings) -> float:
    """t_ideal = t_cluster * N_avg, in seconds: the definition `themis`."""
    return cluster_time_s(app, around) * app.contention


def ideal_times_s(whole: AppView, around: Surroundings) -> dict[RhoDefinition, float]:
    """t_ideal by every definition, in seconds. `whole` is the app as submitted, with all its work still to do."""
    return {definition: rule(whole, around) for definition, rule in _IDEALS.items()}


def rho_by_definition(whole: AppView, completion_s: float, around: Surroundings) -> dict[RhoDefinition, float]:
    """Rho at completion by every definition: seconds from submission to end over each t_ideal."""
    return {definition: completion_s / ideal_s for definition, ideal_s in ideal_times_s(whole, around).items()}


class Valuer(Value, frozen=True, kw_only=True):
    """Turns a time on a bundle into t_shared and V = 1/rho; what all bundles of one moment share is computed once."""

    elapsed_s: float
    ideal_s: float
    share_s: float
    lease_s: float
    rule: BundleRule

    @classmethod
    def of(cls, app: AppView, around: Surroundings, longest_s: float = math.inf) -> Valuer:
        """The valuer of an app at one moment. `share_s` is T on the fair share R/N.

        It is infinite where it surely is more than the longest time that is asked about, with which values then are
        the same.
        """
        longer = longest_s < math.inf and _least_share_s(app, around) * SURELY > longest_s
        return cls(
            elapsed_s=app.elapsed_s,
            ideal_s=ideal_time_s(app, around),
            share_s=math.inf if longer else time_on_count_s(app, around.share_gpus, around),
            lease_s=around.lease_s,
            rule=around.rule,
        )

    def shared_s(self, time_s: float, switch_s: float = 0.0) -> float:
        """t_shared of a bundle on which the app would need `time_s` (infinite for the empty one), in seconds.

        `continuation`: the app holds the bundle for one lease, then the larger of it and its fair share
        (fairness-study.md, section 1): elapsed + min(T, lease + min(T, T_share) * (1 - done / work)), where a lease
        does lease/T of the work.
        """
        spent_s = self.elapsed_s + switch_s
        rule, lease_s = self.rule, self.lease_s
        if rule is _LEXICOGRAPHIC:
            return spent_s + time_s
        if rule is _IDLE_THEN_SHARE:
            return spent_s + (time_s if math.isfinite(time_s) else lease_s + self.share_s)
        if time_s <= lease_s:
            return spent_s + time_s
        share_s = self.share_s
        after_s = lease_s + (share_s if share_s < time_s else time_s) * (1.0 - lease_s / time_s)
        return spent_s + (after_s if after_s < time_s else time_s)

    def rho(self, time_s: float, switch_s: float = 0.0) -> float:
        """Finish-time fairness of a bundle; infinite when the app would never end."""
        return self.shared_s(time_s, switch_s) / self.ideal_s

    def value(self, time_s: float, switch_s: float = 0.0) -> float:
        """V = 1/rho of a bundle; 0 when the app would never end."""
        shared_s = self.shared_s(time_s, switch_s)
        return 0.0 if math.isinf(shared_s) else self.ideal_s / max(shared_s, 1e-9)

    def values(self, times_s: Seconds, switch_s: float = 0.0) -> Seconds:
        """`value` of many bundles, the same numbers to the last bit."""
        if len(times_s) <= _FEW:
            return np.array([self.value(time_s, switch_s) for time_s in times_s.tolist()])
        spent_s = self.elapsed_s + switch_s
        shared_s = all_shared_s(self.rule, times_s, spent_s=spent_s, share_s=self.share_s, lease_s=self.lease_s)
        return all_values(self.ideal_s, shared_s)


def all_values(ideal_s: float | Seconds, shared_s: Seconds) -> Seconds:
    """`Valuer.value` of many bundles, or of bundles of as many apps, by t_ideal and t_shared in seconds, to the bit."""
    values: Seconds = ideal_s / np.maximum(shared_s, 1e-9)
    return values


def all_shared_s(
    rule: BundleRule, times_s: Seconds, *, spent_s: float | Seconds, share_s: float | Seconds, lease_s: float
) -> Seconds:
    """`Valuer.shared_s` of many bundles, or of bundles of as many apps, the same numbers to the last bit.

    Args:
        rule: What becomes of an app after its lease.
        times_s: T on each bundle, in seconds.
        spent_s: Seconds since the app was submitted, and those of a restart.
        share_s: T on the fair share, in seconds.
        lease_s: Seconds of a lease.
    """
    if rule is _LEXICOGRAPHIC:
        return spent_s + times_s
    if rule is _IDLE_THEN_SHARE:
        return spent_s + np.where(np.isfinite(times_s), times_s, lease_s + share_s)
    longer = times_s > lease_s
    left = 1.0 - lease_s / np.where(longer, times_s, 1.0)
    after_s = lease_s + np.minimum(times_s, share_s) * left
    return spent_s + np.where(longer, np.minimum(times_s, after_s), times_s)


def _least_share_s(app: AppView, around: Surroundings) -> float:
    """Seconds that the app's jobs at least take on its fair share: as long as if all of it always worked at S = 1."""
    works_s = [job.iterations_left * job.serial_iteration_s for job in app.jobs]
    return (works_s[0] if len(works_s) == 1 else sum(works_s)) / around.share_gpus


def _exclusive_s(whole: AppView, around: Surroundings) -> float:
    return time_on_count_s(whole, around.cluster_gpus, around)


def _isolated_share_s(whole: AppView, around: Surroundings) -> float:
    demand_share = around.cluster_gpus / min(around.cluster_gpus, whole.demand_max_gpus)
    return _exclusive_s(whole, around) * max(1.0, whole.contention / demand_share)


def _placement_aware_s(whole: AppView, around: Surroundings) -> float:
    # The best S that any gang of the app can have: that of its largest gang placed as near as it fits.
    median = whole.median_job
    best = median.slowdown.at(around.nearest_level(median.shape.demand_max_gpus))
    return ideal_time_s(whole, around) * best


def _private_cluster_s(whole: AppView, around: Surroundings) -> float:
    return time_on_count_s(whole, around.cluster_gpus / whole.contention, around)


def _attainable_s(whole: AppView, around: Surroundings) -> float:
    return max(ideal_time_s(whole, around), _exclusive_s(whole, around) + whole.restart_s)


_IDEALS: Mapping[RhoDefinition, Callable[[AppView, Surroundings], float]] = MappingProxyType(
    {
        RhoDefinition.THEMIS: ideal_time_s,
        RhoDefinition.ISOLATED_SHARE: _isolated_share_s,
        RhoDefinition.PLACEMENT_AWARE: _placement_aware_s,
        RhoDefinition.PRIVATE_CLUSTER: _private_cluster_s,
        RhoDefinition.ATTAINABLE: _attainable_s,
    }
)
