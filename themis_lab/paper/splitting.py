"""What a user gains by splitting an app into several, under every policy.

A user is to policies as one app (docs/decisions/0076-a-user-is-to-policies-as-one-app.md), so a split should gain
nothing but luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from matplotlib.figure import Figure
from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.registry import POLICIES
from themis.queues import AppOwner
from themis.values import Value
from themis_lab.paper.lying import CLUSTER, standard_error
from themis_lab.paper.plans import Load, make_workload, settings_of, workload_arguments
from themis_lab.paper.plotting import COLOURS, GRID, INK, new_figure
from themis_lab.paper.port import Cell, Done, Findings, Scale
from themis_lab.paper.statistics import Row, grouped, mean, median, numbers
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.validation import refusal
from themis_lab.simulator.workload import AppTrace, Workload

PARTS = 4
"""Apps that an app is split into."""

_WHOLE = ""
"""The label of a run without a split app."""


class Case(Value, frozen=True, kw_only=True):
    """A workload whose searches run all their jobs to the end, and its cluster.

    The parts of a search that stops jobs would stop others than the whole, so a split would change its work.
    """

    name: str
    load: Load
    cluster: str = "testbed"


_CROWDED: Mapping[str, object] = {
    "apps": 12,
    "jobs": 8,
    "single_share": 0.0,
    "load": 2.0,
    "task_gpu_s": 3600.0,
    "sigma": 0.7,
    "tuner": "single",
}
"""Apps of 4 to 12 jobs of 1 to 4 GPUs. Twice as much work arrives as the cluster can do."""

CASES: Sequence[Case] = (
    Case(name="w1-small", load=Load(name="w1-small", options={})),
    Case(name="crowded", load=Load(name="synthetic", options=_CROWDED), cluster=CLUSTER),
)

SPLIT_APPS: Mapping[Scale, int] = {Scale.QUICK: 4, Scale.PAPER: 12}
"""Number of apps that are split, one per run, for each workload and seed; all that can be if there are fewer."""


class Splitting(Value, frozen=True, kw_only=True):
    """One user splits an app, all others do not: what the user's whole work gains."""

    name: str = "splitting"
    title: str = f"what a user gains by splitting an app into {PARTS}"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """For each workload, seed and policy that can run it: a run of whole apps, and one for each app that is split.

        These are drawn from the apps with at least a job for each part.
        """
        return [
            Cell(
                labels={"workload": case.name, "policy": policy, "seed": seed, "split": name},
                make_workload=make_split_workload,
                workload_arguments={**workload_arguments(case.load, seed, case.cluster), "split": name},
                settings=settings_of(case.cluster, policy, seed),
            )
            for case in CASES
            for seed in range(1, seeds + 1)
            for policy, names in _to_split(case, seed, SPLIT_APPS[scale])
            for name in (_WHOLE, *names)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return a row per split, and a table with a line per policy, the largest mean gain first."""
        whole = {_key(run): run.record for run in done if run.cell.labels["split"] == _WHOLE}
        rows = tuple(_row(run, whole[_key(run)]) for run in done if run.cell.labels["split"] != _WHOLE)
        return Findings(rows=rows, comparisons=(), table=_table(rows), remarks=_remarks(rows))

    def draw(self, findings: Findings) -> Figure:
        """Draw the mean gain of each policy with its standard error, a panel per workload."""
        by_workload = grouped(findings.rows, "workload")
        policies = list(dict.fromkeys(str(row["policy"]) for row in findings.rows))
        figure = new_figure(len(by_workload), width=10.0, height=1.2 + 0.22 * len(policies), sharey=True)
        for axes, ((workload,), rows) in zip(figure.axes, by_workload.items(), strict=True):
            for (policy,), own in grouped(rows, "policy").items():
                place, gains = policies.index(str(policy)), numbers(own, "gain_percent")
                axes.barh(place, mean(gains), 0.7, color=COLOURS.get(str(policy), GRID))
                axes.errorbar(mean(gains), place, xerr=standard_error(gains), fmt="none", ecolor=INK, elinewidth=0.7)
            axes.axvline(0.0, color=INK, linewidth=0.8)
            axes.set_title(str(workload), loc="left")
            axes.set_xlabel("completion time gained, %")
        figure.axes[0].set_yticks(range(len(policies)), policies)
        figure.axes[0].invert_yaxis()
        return figure


def make_split_workload(
    name: str, seed: int, cluster: str, options: tuple[tuple[str, object], ...] = (), split: str = _WHOLE
) -> Workload:
    """The workload of `make_workload` with a user for each app, and one app split into PARTS of the same user.

    The jobs are dealt to the parts in turn. The parts arrive together, when the app would.

    Args:
        name: A name for `workload_named`.
        seed: Seed of its random choices.
        cluster: The name of a cluster.
        options: Names and values.
        split: The app that is split; none if empty.
    """
    whole = make_workload(name, seed, cluster, options)
    owned = [replace(app, owner=AppOwner(user=app.name)) for app in whole.apps]
    apps = [part for app in owned for part in (_parts(app) if app.name == split else (app,))]
    return replace(whole, apps=tuple(apps))


def _parts(app: AppTrace) -> tuple[AppTrace, ...]:
    return tuple(replace(app, name=f"{app.name}-{part}", jobs=app.jobs[part::PARTS]) for part in range(PARTS))


def _to_split(case: Case, seed: int, most: int) -> list[tuple[str, list[str]]]:
    """The policies that can run this workload, each with the apps to split: the same for all."""
    workload = make_workload(case.load.name, seed, case.cluster, tuple(sorted(case.load.options.items())))
    able = [app.name for app in workload.apps if len(app.jobs) >= PARTS]
    names = sorted(Random(child_seed(seed, "splitting", case.name)).sample(able, min(most, len(able))))
    return [(policy, names) for policy in POLICIES if not refusal(workload, settings_of(case.cluster, policy, seed))]


def _key(run: Done) -> tuple[str | float, ...]:
    return tuple(run.cell.labels[label] for label in ("workload", "policy", "seed"))


def _row(run: Done, whole: RunRecord) -> Row:
    split = str(run.cell.labels["split"])
    parts = {f"{split}-{part}" for part in range(PARTS)}
    before_s = {app.name: app.completion_s for app in whole.apps}
    after_s = max(app.completion_s for app in run.record.apps if app.name in parts)
    others = [app for app in run.record.apps if app.name not in parts]
    return {
        **run.cell.labels,
        "completion_before_s": before_s[split],
        "completion_s": after_s,
        "gain_percent": (1.0 - after_s / before_s[split]) * 100.0,
        "others_percent": mean((app.completion_s / before_s[app.name] - 1.0) * 100.0 for app in others),
    }


def _table(rows: Sequence[Row]) -> tuple[tuple[str, ...], ...]:
    """A line per policy, with two columns for each workload; the policy of the largest mean gain first."""
    workloads = list(dict.fromkeys(str(row["workload"]) for row in rows))
    headings = [f"{name}: {what}" for name in workloads for what in ("mean gain (%)", "median, largest (%)")]
    lines = []
    for (policy,), own in grouped(rows, "policy").items():
        by_workload = {str(name): numbers(group, "gain_percent") for (name,), group in grouped(own, "workload").items()}
        texts = [text for name in workloads for text in _texts(by_workload.get(name, []))]
        lines.append((max(mean(gains) for gains in by_workload.values()), (str(policy), *texts)))
    return ("policy", *headings), *(line for _, line in sorted(lines, reverse=True))


def _texts(gains: Sequence[float]) -> tuple[str, str]:
    if not gains:
        return "cannot run it", ""
    return f"{mean(gains):+.1f} ± {standard_error(gains):.1f}", f"{median(gains):+.1f}, {max(gains):+.1f}"


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    gains = {key: numbers(own, "gain_percent") for key, own in grouped(rows, "policy", "workload").items()}
    gaining = [
        f"{policy} on {workload}"
        for (policy, workload), own in gains.items()
        if mean(own) > max(1.0, 2.0 * standard_error(own))
    ]
    pairs = {workload: len(own) for (_, workload), own in gains.items()}
    return (
        f"One app per run is split into {PARTS} of the same user, which arrive together; every other app is whole and "
        "has a user of its own. A gain is the part of the time from arrival to the end of the last part that the split "
        "saves, in percent of the time of the whole app. The runs of a pair have the same seed. Means with their "
        f"standard errors, over {' and '.join(f'{count} pairs of {name}' for name, count in pairs.items())}.",
        f"Mean gains over 1 % and over twice their standard error: {', '.join(gaining) or 'none'}.",
    )


EXPERIMENT = Splitting()
