"""All policies on mixed devices: GPUs beside CPU nodes, and three types of GPUs. Which one should a site choose?

Neither is the evaluation of a paper: the workloads are drawn from seeds, with the speeds that the papers report. Every
registered policy that can run a workload takes part. Rho is by the fluid fair cluster, which no schedule can change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.registry import POLICIES
from themis.apps import CRUDE_SLOWDOWN, JobShape, Slowdown
from themis.cluster import Cluster
from themis.queues import AppOwner
from themis.rho import HEADLINE, RhoDefinition
from themis.speeds import speeds_in
from themis.values import Value
from themis_lab.paper.plans import settings_of
from themis_lab.paper.plotting import GRID, colour_of, new_figure
from themis_lab.paper.port import Cell, Done, Findings, Scale
from themis_lab.paper.report_frame import number_text
from themis_lab.paper.runner import run_cell
from themis_lab.paper.statistics import UNFAIR_RHO, Row, max_rho, mean, numbers, rhos, summary
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.metrics import share_over
from themis_lab.simulator.record import RoundRecord, RunRecord
from themis_lab.simulator.validation import refusal
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

_APPS: Mapping[Scale, int] = {Scale.QUICK: 30, Scale.PAPER: 150}
_FLAT = Slowdown(1.0, 1.0, 1.0, 1.0)
_LOAD = 1.2
"""Work that arrives per hour over the work that the cluster does per hour: apps queue while they arrive."""

_HOUR_S = 3600.0
_USERS = 10

COLUMNS: Mapping[str, str] = {
    "completion_mean_h": "mean completion (h)",
    "max_rho": f"max rho ({HEADLINE})",
    "unfair_share": f"apps over {UNFAIR_RHO}",
    "envy_max": "envy, largest",
    "envy_mean": "envy, mean",
    "efficiency": "work per device hour",
    "restarts": "restarts",
}
"""The measures of a run, and their headings."""

_DRAWN = ("max_rho", "completion_mean_h", "envy_mean", "efficiency")
_LARGER_IS_BETTER = ("efficiency",)


# ---- workloads ------------------------------------------------------------------------------------------------------


def hybrid_apps(seed: int, apps: int) -> Workload:
    """Jobs of one or two tasks that run on GPUs, and slower on CPU nodes.

    As in AlloX (EuroSys 2020) a GPU is 1.8 to 10 times faster, their logarithms evenly, except for one app in twenty:
    its jobs are faster on a CPU node. Jobs take 40 minutes on a GPU in the median.
    """
    rng = Random(child_seed(seed, "mixed", "hybrid"))

    def speeds() -> dict[str, float]:
        faster_on_cpu = rng.random() < 0.05
        return {"gpu": 1.0, "cpu": rng.uniform(1.0, 1.5) if faster_on_cpu else 1.0 / _between(rng, 1.8, 10.0)}

    return _workload("hybrid", rng, apps, speeds, most_jobs=3, sizes=(1, 1, 2), capacity=8 + 8 * 0.25)


def three_type_apps(seed: int, apps: int) -> Workload:
    """Jobs of up to four tasks that run on all three types of GPUs, each app with speeds of its own.

    The speeds are drawn around the means of Gavel's table (OSDI 2020), which the cluster file has.
    """
    rng = Random(child_seed(seed, "mixed", "three types"))

    def speeds() -> dict[str, float]:
        return {"k80": _between(rng, 0.15, 0.6), "p100": _between(rng, 0.8, 1.1), "v100": 1.0}

    return _workload("mixed-3", rng, apps, speeds, most_jobs=4, sizes=(1, 2, 4), capacity=16 * 0.3 + 8 * 0.94 + 8)


def _workload(
    name: str,
    rng: Random,
    apps: int,
    speeds: Callable[[], dict[str, float]],
    *,
    most_jobs: int,
    sizes: Sequence[int],
    capacity: float,
) -> Workload:
    """Apps of up to `most_jobs` elastic jobs; `capacity` is that of the cluster in reference GPUs."""
    mean_work_h = (1 + most_jobs) / 2 * (2 / 3) * math.exp(0.5 * 0.8**2)
    arrivals_s = mean_work_h / capacity / _LOAD * _HOUR_S
    traces, arrival_s = [], 0.0
    for place in range(apps):
        own = speeds()
        jobs = tuple(_job(f"{place}-{number}", rng, sizes, own) for number in range(rng.randint(1, most_jobs)))
        owner = AppOwner(user=f"user{place % _USERS}", queue="default")
        traces.append(AppTrace(name=f"app-{place:03}", arrival_s=arrival_s, jobs=jobs, owner=owner))
        arrival_s += rng.expovariate(1.0 / arrivals_s)
    return Workload(name=name, apps=tuple(traces))


def _job(job_id: str, rng: Random, sizes: Sequence[int], speeds: Mapping[str, float]) -> JobTrace:
    tasks = rng.choice(sizes)
    return JobTrace(
        job_id=job_id,
        iterations_total=max(1, round(rng.lognormvariate(math.log(40 * 60.0), 0.8))),
        serial_iteration_s=1.0,
        slowdown=_FLAT if tasks == 1 else CRUDE_SLOWDOWN,
        shape=JobShape(tasks=tasks, min_tasks=1),
        speed_by_device=speeds,
    )


def _between(rng: Random, least: float, most: float) -> float:
    """A number between the two; its logarithm is uniform."""
    return math.exp(rng.uniform(math.log(least), math.log(most)))


# ---- measures -------------------------------------------------------------------------------------------------------


def measures(workload: Workload, record: RunRecord, cluster: Cluster) -> dict[str, float]:
    """The measures of a run whose rounds were recorded.

    `efficiency` is the work done in reference GPU hours per hour that a device was leased. Envy is that of `envies`.
    """
    leased_s = math.fsum(app.gpu_time_s for app in record.apps)
    own = rhos(record, HEADLINE)
    envy = envies(workload, record, cluster)
    return {
        "completion_mean_h": mean(app.completion_s for app in record.apps) / _HOUR_S,
        "max_rho": max_rho(record, HEADLINE),
        "unfair_share": share_over(own, UNFAIR_RHO),
        "envy_max": max(envy),
        "envy_mean": mean(envy),
        "efficiency": math.fsum(app.ideal_gpu_s for app in record.apps) / leased_s,
        "restarts": float(sum(app.restarts for app in record.apps)),
        **{f"max_rho_{name}": max_rho(record, name) for name in RhoDefinition if name is not HEADLINE},
    }


def envies(workload: Workload, record: RunRecord, cluster: Cluster) -> list[float]:
    """For each app the most that another app's devices would have been worth to it beyond its own, over its work.

    Devices are valued at the app's own speeds, no more of them than it can use at once, and only while both apps were
    there. Example: an app of 100 GPU s of work had a K80 of speed 0.3 for 100 s, while another app had a V100. With the
    V100 it would have done 70 GPU s more: its envy is 0.7.

    The devices of an app are those that a round left it with, until the next round.
    """
    types = list(cluster.gpus_by_device)
    device_of = {machine.machine_id: types.index(machine.device) for machine in cluster.machines}
    place_of = {app.name: place for place, app in enumerate(workload.apps)}
    speeds = np.array([[speeds_in(app.jobs[0].spec, cluster).on(device) for device in types] for app in workload.apps])
    most = np.array([float(app.demand_max_gpus) for app in workload.apps])
    began_s = np.array([app.submitted_at_s for app in record.apps])
    ended_s = np.array([app.ended_at_s for app in record.apps])
    gained = np.zeros((len(workload.apps), len(workload.apps)))
    next_s = [*(each.now_s for each in record.rounds[1:]), float(ended_s.max())]
    for played, until_s in zip(record.rounds, next_s, strict=True):
        lived_s = np.clip(np.minimum(ended_s, until_s) - np.maximum(began_s, played.now_s), 0.0, None)
        worth = _worth(_held(played, device_of, place_of, len(types)), speeds, most)
        both_s = np.minimum(lived_s[:, None], lived_s[None, :])
        gained += (worth - np.diag(worth)[:, None]) * both_s
    work_gpu_s = np.array([app.ideal_gpu_s for app in record.apps])
    envy: list[float] = (np.maximum(0.0, gained.max(axis=1)) / work_gpu_s).tolist()
    return envy


def _held(
    played: RoundRecord, device_of: Mapping[str, int], place_of: Mapping[str, int], types: int
) -> NDArray[np.float64]:
    """Devices after a round, apps by types."""
    held = np.zeros((len(place_of), types))
    for given in (played.kept, played.granted, played.leftovers):
        for app, machines in given.items():
            for machine, count in machines.items():
                held[place_of[app], device_of[machine]] += count
    return held


def _worth(held: NDArray[np.float64], speeds: NDArray[np.float64], most: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the devices of each app (columns) are worth to each app (rows), in reference GPUs.

    Devices beyond an app's demand are worth nothing to it: it uses those of its fastest types.
    """
    worth = np.zeros((len(held), len(held)))
    left = np.repeat(most[:, None], len(held), axis=1)
    rows = np.arange(len(held))
    order = np.argsort(-speeds, axis=1, kind="stable")
    for rank in range(held.shape[1]):
        kind = order[:, rank]
        used = np.minimum(left, held[:, kind].T)
        worth += used * speeds[rows, kind][:, None]
        left -= used
    return worth


# ---- the experiments ------------------------------------------------------------------------------------------------


class MixedDevices(Value, frozen=True, kw_only=True):
    """One cluster and its workload under every policy.

    Attributes:
        cluster: Name of the cluster.
        make_workload: Makes the workload of a seed and a number of apps.
    """

    name: str
    title: str
    cluster: str
    make_workload: Callable[[int, int], Workload]

    def cells(self, scale: Scale, seeds: int) -> list[Cell]:
        """A run for each seed and each policy that can run the workloads of all seeds."""
        workloads = [self.make_workload(seed, _APPS[scale]) for seed in range(1, seeds + 1)]
        settings = {name: settings_of(self.cluster, name, 1, record=True) for name in POLICIES}
        able = [name for name in POLICIES if not any(refusal(each, settings[name]) for each in workloads)]
        return [
            Cell(
                labels={"cluster": self.cluster, "policy": policy, "seed": seed},
                make_workload=self.make_workload,
                workload_arguments={"seed": seed, "apps": _APPS[scale]},
                settings=settings_of(self.cluster, policy, seed, record=True),
            )
            for seed in range(1, seeds + 1)
            for policy in able
        ]

    def run(self, scale: Scale, seeds: int) -> Findings:
        """Make the runs, one after the other."""
        return self.evaluate([Done(cell=cell, record=run_cell(cell)) for cell in self.cells(scale, seeds)])

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """A row per run, and a table of medians, the fairest policy first."""
        cluster = cluster_named(self.cluster)
        rows = tuple({**run.cell.labels, **measures(run.cell.workload(), run.record, cluster)} for run in done)
        by_policy = _by_policy(rows)
        medians = {
            name: {column: summary(numbers(own, column)).median for column in COLUMNS}
            for name, own in by_policy.items()
        }
        order = sorted(medians, key=lambda name: medians[name]["max_rho"])
        table = (
            ("policy", *COLUMNS.values()),
            *((name, *(number_text(value) for value in medians[name].values())) for name in order),
        )
        return Findings(rows=rows, comparisons=(), table=table, remarks=_remarks(medians))

    def draw(self, findings: Findings) -> Figure:
        """Draw a panel per measure: the median of each policy, and a line from its least to its largest value."""
        by_policy = _by_policy(findings.rows)
        names = sorted(by_policy, key=lambda name: -summary(numbers(by_policy[name], "max_rho")).median)
        figure = new_figure(len(_DRAWN), width=2.6 * len(_DRAWN), height=1.0 + 0.19 * len(names), sharey=True)
        for axes, column in zip(figure.axes, _DRAWN, strict=True):
            for place, name in enumerate(names):
                over_seeds = summary(numbers(by_policy[name], column))
                axes.plot(over_seeds.spread, (place, place), "-", color=GRID, linewidth=2.5)
                axes.plot(over_seeds.median, place, "o", color=colour_of(name, place), markersize=4.5)
            axes.set_xlabel(COLUMNS[column])
            axes.set_xlim(left=0.0)
            axes.grid(axis="y", alpha=0.5)
        figure.axes[0].set_yticks(range(len(names)), names)
        return figure


def _by_policy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    names = dict.fromkeys(str(row["policy"]) for row in rows)
    return {name: [row for row in rows if row["policy"] == name] for name in names}


def _remarks(medians: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """The best policies by each measure."""
    remarks = []
    for column, heading in COLUMNS.items():
        best = (max if column in _LARGER_IS_BETTER else min)(each[column] for each in medians.values())
        names = [name for name, each in medians.items() if each[column] == best]
        remarks.append(f"Best by {heading}: {', '.join(names)} with {number_text(best)}.")
    return tuple(remarks)


EXPERIMENTS = (
    MixedDevices(
        name="mixed_hybrid",
        title="every policy on 8 GPUs and 8 CPU nodes",
        cluster="hybrid",
        make_workload=hybrid_apps,
    ),
    MixedDevices(
        name="mixed_three_types",
        title="every policy on three types of GPUs",
        cluster="mixed-3",
        make_workload=three_type_apps,
    ),
)
