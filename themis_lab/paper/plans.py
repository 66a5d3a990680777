"""Cells shared by experiments: every registered policy, with aligned and with staggered lease ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.registry import POLICIES
from themis.choices import LeaseEnds
from themis.values import Value
from themis_lab.paper.port import Cell, Experiment, Scale
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import Workload
from themis_lab.simulator.workloads.registry import workload_named

LEAD_S = 5.0
"""Seconds before leases end at which their renewal starts: the time to write a checkpoint in the simulator."""

PAPER_POLICIES = ("themis", "gandiva", "tiresias", "optimus", "slaq", "srtf", "srsf")
"""The policies of the paper's evaluation, in the order of its figures. Our own baselines follow them."""

FOR_MIXED_DEVICES = (
    "oef",
    "oef_noncooperative",
    "max_min",
    "gavel",
    "gavel_capped",
    "gandiva_fair",
    "incentive_only",
    "pure_efficiency",
    "allox",
    "allox_plus",
    "sjf_plus",
    "best_fit",
    "jsq_plus",
    "equal_share",
    "equal_share_fcfs",
    "drff",
    "drfs",
    "drfa",
)
"""Policies that this evaluation leaves out: its clusters have one device type, and these policies divide several."""

LEFT_OUT = (*FOR_MIXED_DEVICES, "fair_finish")
"""All that this evaluation leaves out. docs/explanation/fair-finish.md compares `fair_finish` with the others."""

ENDS = (LeaseEnds.ALIGNED, LeaseEnds.STAGGERED)


class Load(Value, frozen=True, kw_only=True):
    """A workload at a scale: a name for `workload_named`, and its options."""

    name: str
    options: Mapping[str, object]


def policies(only: Sequence[str] = ()) -> tuple[str, ...]:
    """The registered policies of this evaluation, the paper's first. `only` selects some of them."""
    ours = POLICIES.keys() - set(PAPER_POLICIES) - set(LEFT_OUT)
    known = [*(name for name in PAPER_POLICIES if name in POLICIES), *sorted(ours)]
    return tuple(name for name in known if not only or name in only)


def make_workload(name: str, seed: int, cluster: str, options: tuple[tuple[str, object], ...] = ()) -> Workload:
    """Return the workload of this name. Arguments are plain values, so that cells can be sent to other processes.

    Args:
        name: A name for `workload_named`.
        seed: Seed of its random choices.
        cluster: The name of a cluster; only `synthetic` depends on it.
        options: Names and values.
    """
    return workload_named(name, seed, cluster_named(cluster), **dict(options))


def settings_of(
    cluster: str,
    policy: str,
    seed: int,
    ends: LeaseEnds = LeaseEnds.ALIGNED,
    *,
    lease_s: float = 600.0,
    rounds: RoundSettings | None = None,
    record: bool = False,
) -> Settings:
    """Settings of a run with the experiments' defaults. Invariants are checked by tests, not here."""
    return Settings(
        cluster=cluster_named(cluster),
        policy=policy,
        seed=seed,
        leases=LeasePolicy(duration_s=lease_s, ends=ends, checkpoint_lead_s=LEAD_S),
        rounds=rounds or RoundSettings(),
        validate=False,
        record_rounds=record,
    )


def workload_arguments(load: Load, seed: int, cluster: str) -> dict[str, object]:
    """The keyword arguments of `make_workload`."""
    return {"name": load.name, "seed": seed, "cluster": cluster, "options": tuple(sorted(load.options.items()))}


def policy_cells(
    load: Load,
    cluster: str,
    seeds: int,
    *,
    names: Sequence[str] = (),
    ends: Sequence[LeaseEnds] = ENDS,
    labels: Mapping[str, str | float] | None = None,
) -> Iterator[Cell]:
    """Yield a run for each policy, kind of lease ends and seed, labelled `policy`, `ends`, `seed` and with `labels`.

    Args:
        load: The workload.
        cluster: The cluster by name.
        seeds: Use seeds 1 to this. Each seed gives its own workload, the same for every policy.
        names: Only these policies; all registered ones if empty.
        ends: Kinds of lease ends.
        labels: More labels.
    """
    for seed in range(1, seeds + 1):
        for policy in policies(names):
            for end in ends:
                yield Cell(
                    labels={**(labels or {}), "policy": policy, "ends": end.value, "seed": seed},
                    make_workload=make_workload,
                    workload_arguments=workload_arguments(load, seed, cluster),
                    settings=settings_of(cluster, policy, seed, end),
                )


def distinct_runs(experiments: Sequence[Experiment], scale: Scale, seeds: int) -> list[Cell]:
    """The runs of all experiments, without duplicates: cells that differ only in their labels are one run."""
    cells = (cell for experiment in experiments for cell in experiment.cells(scale, seeds))
    return list({cell.key: cell for cell in cells}.values())
