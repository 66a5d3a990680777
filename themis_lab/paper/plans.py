"""Cells that experiments share: every registered policy, with aligned and with staggered lease ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.registry import POLICIES
from themis.choices import LeaseEnds
from themis_lab.paper.port import Cell, Experiment, Scale
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import Workload
from themis_lab.simulator.workloads.registry import workload_named

LEAD_S = 5.0
"""Leases are up for renewal so long before they end: as long as writing a checkpoint takes in the simulator."""

PAPER_POLICIES = ("themis", "gandiva", "tiresias", "optimus", "slaq", "srtf", "srsf")
"""The policies of the paper's evaluation, in the order of its figures; our own baselines come after them."""

ENDS = (LeaseEnds.ALIGNED, LeaseEnds.STAGGERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A workload at a scale: a name that `workload_named` knows, and its options."""

    name: str
    options: Mapping[str, object]


def policies(only: Sequence[str] = ()) -> tuple[str, ...]:
    """The policies that are registered, the paper's first; `only` some of them."""
    known = [*(name for name in PAPER_POLICIES if name in POLICIES), *sorted(POLICIES.keys() - set(PAPER_POLICIES))]
    return tuple(name for name in known if not only or name in only)


def make_workload(name: str, seed: int, cluster: str, options: tuple[tuple[str, object], ...] = ()) -> Workload:
    """The workload of that name, for cells: every argument is plain and crosses to other processes.

    Args:
        name: As `workload_named` has it.
        seed: Of its draws.
        cluster: The name of a cluster; only `synthetic` goes by it.
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
    """A run of an experiment: the defaults, but for what is told. Invariants are checked by tests, not here."""
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
    """What `make_workload` is called with."""
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
    """A run for each policy, way of ending leases and seed; labelled `policy`, `ends`, `seed` and what else is told.

    Args:
        load: The workload.
        cluster: The cluster by name.
        seeds: Seeds 1 to this; a seed gives a workload of its own, the same for every policy.
        names: These policies only; all that are registered if empty.
        ends: How leases end.
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
    """The runs that the experiments take together: cells that differ in their labels only are run once."""
    cells = (cell for experiment in experiments for cell in experiment.cells(scale, seeds))
    return list({cell.key: cell for cell in cells}.values())
