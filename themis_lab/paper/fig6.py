"""Figure 5 of NSDI'20 (figure 6 of arXiv): two instances in which DRF, which ignores placement, violates fairness.

Two apps of one job of four tasks share eight GPUs. S is from table 1: VGG16 103.6 and 80.4 images a second on one and
on two servers, Inception-v3 242 and 243, so no slowdown at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from rm_plugin.arbiter.round_values import RoundSettings
from themis.apps import JobShape, Slowdown
from themis.choices import LeaseEnds
from themis.values import Value
from themis_lab.paper.plans import policies, settings_of
from themis_lab.paper.plotting import INK, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.sharing import Counts, Taker, judge, kept_by_name, violated_shares
from themis_lab.paper.statistics import Row, grouped, mean, numbers
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.record import RoundRecord, RunRecord
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

_TASKS = 4
_ITERATIONS, _ITERATION_S = 1000, 36.0
VGG16 = Slowdown(1.0, 1.0, 103.6 / 80.4, 103.6 / 80.4)
INCEPTION_3 = Slowdown(1.0, 1.0, 1.0, 1.0)
BLIND = "drf, blind"
RULES = ("drf", "tiresias", "themis")
ONE_SHOT_F = 0.0


class Instance(Value, frozen=True, kw_only=True):
    """A cluster of eight GPUs and two apps. `blind` is the allocation in the paper's figure, which DRF allows."""

    name: str
    cluster: str
    takers: tuple[Taker, Taker]
    blind: tuple[Counts, Counts]
    violated: tuple[str, ...]

    @property
    def machines(self) -> Counts:
        """GPUs of each machine."""
        return tuple(machine.gpus for machine in cluster_named(self.cluster).machines)


def _taker(name: str, model: str, slowdown: Slowdown) -> Taker:
    return Taker(name=name, model=model, gpus=_TASKS, slowdown=slowdown)


INSTANCES: Mapping[str, Instance] = {
    "1": Instance(
        name="1",
        cluster="2x4",
        takers=(_taker("A1", "vgg16", VGG16), _taker("A2", "vgg16", VGG16)),
        blind=((2, 2), (2, 2)),
        violated=("SI",),
    ),
    "2": Instance(
        name="2",
        cluster="1x4+2x2",
        takers=(_taker("A1", "inception3", INCEPTION_3), _taker("A2", "vgg16", VGG16)),
        blind=((4, 0, 0), (0, 2, 2)),
        violated=("EF", "PE"),
    ),
}


def make_instance(name: str) -> Workload:
    """The two apps, which both arrive at time 0."""
    apps = tuple(
        AppTrace(
            name=taker.name,
            arrival_s=0.0,
            model=taker.model,
            jobs=(
                JobTrace(
                    job_id="0",
                    iterations_total=_ITERATIONS,
                    serial_iteration_s=_ITERATION_S,
                    slowdown=taker.slowdown,
                    shape=JobShape(tasks=taker.gpus, min_tasks=taker.gpus),
                ),
            ),
        )
        for taker in INSTANCES[name].takers
    )
    return Workload(name=f"fig6-{name}", apps=apps, source="NSDI'20, figure 5 and table 1")


class TwoInstances(Value, frozen=True, kw_only=True):
    """The first round of each policy, compared with all possible allocations, and rho at the end of the run."""

    name: str = "fig6"
    title: str = "two instances where DRF violates sharing incentive, envy freeness and Pareto efficiency"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Themis in one shot (f = 0), in which it asks both apps, and with defaults.

        The runs are tiny at every scale.
        """
        del scale
        variants = [(name, name, RoundSettings()) for name in policies(RULES) if name != "themis"]
        variants += [(f"themis, f = {f:g}", "themis", RoundSettings(f=f)) for f in (ONE_SHOT_F, RoundSettings().f)]
        return [
            _cell(instance, variant, policy, rounds, seed)
            for instance in INSTANCES
            for variant, policy, rounds in variants
            for seed in range(1, seeds + 1)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of apps: GPUs of the first round, slowdown, and the properties that the allocation violates."""
        rows = [row for instance in INSTANCES.values() for row in _blind_rows(instance)]
        rows += [row for run in done for row in _rows_of(run)]
        return Findings(
            rows=tuple(rows), comparisons=tuple(_comparisons(rows)), remarks=_remarks(rows), claims=(_claim(rows),)
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw the machines of each instance under each policy, GPUs in the colour of their app."""
        rows = [row for row in findings.rows if row["seed"] in (0, 1)]
        panels = grouped(rows, "instance", "policy")
        variants = list(dict.fromkeys(policy for _, policy in panels))
        figure = new_figure(width=2.7 * len(variants), height=2.7)
        figure.clear()
        axes = figure.subplots(len(INSTANCES), len(variants), squeeze=False)
        for (instance, policy), apps in panels.items():
            column = variants.index(policy)
            _draw_panel(axes[list(INSTANCES).index(str(instance))][column], apps, column == 0)
        return figure


def _cell(instance: str, variant: str, policy: str, rounds: RoundSettings, seed: int) -> Cell:
    settings = settings_of(INSTANCES[instance].cluster, policy, seed, LeaseEnds.ALIGNED, rounds=rounds, record=True)
    return Cell(
        labels={"instance": instance, "policy": variant, "seed": seed},
        make_workload=make_instance,
        workload_arguments={"name": instance},
        settings=settings,
    )


def _blind_rows(instance: Instance) -> list[Row]:
    """The paper's allocation, without a run."""
    labels: dict[str, str | float] = {"instance": instance.name, "policy": BLIND, "seed": 0}
    return _judged(instance, labels, instance.blind, None)


def _rows_of(run: Done) -> list[Row]:
    instance = INSTANCES[str(run.cell.labels["instance"])]
    machine_ids = [machine.machine_id for machine in run.cell.settings.cluster.machines]
    first = run.record.rounds[0]
    allocation = tuple(_granted(first, taker.name, machine_ids) for taker in instance.takers)
    rows = _judged(instance, run.cell.labels, (allocation[0], allocation[1]), run.record)
    return [{**row, "asked": float(row["app"] in first.asked)} for row in rows]


def _granted(first: RoundRecord, app: str, machine_ids: Sequence[str]) -> Counts:
    won, left = first.granted.get(app, {}), first.leftovers.get(app, {})
    return tuple(won.get(machine, 0) + left.get(machine, 0) for machine in machine_ids)


def _judged(
    instance: Instance, labels: Mapping[str, str | float], allocation: tuple[Counts, Counts], record: RunRecord | None
) -> list[Row]:
    verdict = judge(instance.takers, instance.machines, allocation)
    kept = {f"keeps_{name}": float(value) for name, value in kept_by_name(verdict).items()}
    rows: list[Row] = []
    for place, (taker, held) in enumerate(zip(instance.takers, allocation, strict=True)):
        rho = {} if record is None else record.apps[place].rho
        rows.append(
            {
                **labels,
                "app": taker.name,
                "model": taker.model,
                "asked": "",
                "machines": _text(instance.machines),
                "held": _text(held),
                "slowdown": verdict.slowdowns[place],
                **kept,
                **{f"rho_{name}": rho.get(name, "") for name in ("themis", "private_cluster")},
            }
        )
    return rows


def _comparisons(rows: Sequence[Row]) -> list[Comparison]:
    lines = []
    for instance in INSTANCES.values():
        shares = violated_shares(instance.takers, instance.machines)
        for name in ("SI", "EF", "PE"):
            paper = 1.0 if name in instance.violated else None
            lines.append(
                Comparison(
                    what=f"instance {instance.name}: the paper's DRF allocation violates {name} (1: yes)",
                    paper="" if paper is None else "1",
                    paper_value=paper,
                    ours=_violations(rows, instance.name, BLIND, name),
                    remark=f"so do {shares[name]:.0%} of all choices of GPUs that give both apps four.",
                )
            )
        lines += _of_policies(rows, instance)
    return lines


def _of_policies(rows: Sequence[Row], instance: Instance) -> list[Comparison]:
    """The share of seeds in which each policy's first round violates the property that it violates most often."""
    variants = dict.fromkeys(str(row["policy"]) for row in rows if row["policy"] != BLIND)
    return [
        Comparison(
            what=f"instance {instance.name}: share of seeds in which {variant} violates a property",
            paper="0" if variant.startswith("themis") else "",
            ours=max(_violations(rows, instance.name, variant, name) for name in ("SI", "EF", "PE")),
            remark=_which(rows, instance.name, variant),
        )
        for variant in variants
    ]


def _claim(rows: Sequence[Row]) -> PaperClaim:
    texts = []
    for variant in dict.fromkeys(str(row["policy"]) for row in rows):
        broken = [f"{name} in {instance}" for instance in INSTANCES for name in _broken(rows, instance, variant)]
        texts.append(f"{variant} violates {', '.join(broken) if broken else 'nothing'}")
    return PaperClaim(
        paper="DRF violates SI in instance 1, EF and PE in instance 2, themis nothing (fig6)", here="; ".join(texts)
    )


def _broken(rows: Sequence[Row], instance: str, variant: str) -> list[str]:
    return [name for name in ("SI", "EF", "PE") if _violations(rows, instance, variant, name)]


def _which(rows: Sequence[Row], instance: str, variant: str) -> str:
    violated = _broken(rows, instance, variant)
    return f"violated: {', '.join(violated)}." if violated else ""


def _violations(rows: Sequence[Row], instance: str, variant: str, name: str) -> float:
    """The share of seeds in which the first round violates a property."""
    runs = grouped((row for row in rows if (row["instance"], row["policy"]) == (instance, variant)), "seed")
    return sum(1.0 - float(apps[0][f"keeps_{name}"]) for apps in runs.values()) / max(1, len(runs))


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    own = [float(row["rho_themis"]) for row in rows if row["rho_themis"] != ""]
    return (
        *_by_the_filter(rows),
        "Sharing incentive is judged as the paper words it, against a private cluster of R/N = 4 GPUs. By definition "
        "`themis` t_ideal is N times the time alone, although neither app can use more than half of the cluster, so no "
        f"rho here exceeds {max(own, default=0.0):.2f} and that definition cannot show the violation.",
        "DRF only says how many GPUs each app gets. The policy `drf` places them as well as all our baselines do, "
        "which is kinder than the paper's figure; `drf, blind` is the allocation in that figure, judged but not run.",
    )


def _by_the_filter(rows: Sequence[Row]) -> Iterator[str]:
    """Why themis violates a property: which apps bid in the first round, compared with one shot, in which both bid."""
    for (instance, variant), own in grouped(rows, "instance", "policy").items():
        if not str(variant).startswith("themis") or not _broken(rows, str(instance), str(variant)):
            continue
        asked = [f"{app} ({apps[0]['model']}) in {_asked(apps):.0%} of the seeds" for app, apps in _by_app(own).items()]
        one_shot = _which(rows, str(instance), f"themis, f = {ONE_SHOT_F:g}") or "violated: nothing."
        yield (
            f"Instance {instance} under {variant}: the filter asked {', '.join(asked)}. Both apps report about the "
            "same rho, so the filter asks the first by name, which bids alone: no other app's loss is weighed against "
            f"its win. The GPUs that it leaves go to the other app as leftovers. In one shot (f = {ONE_SHOT_F:g}) both "
            f"bid, {one_shot}"
        )


def _by_app(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {str(app): group for (app,), group in grouped(rows, "app").items()}


def _asked(rows: Sequence[Row]) -> float:
    return mean(numbers(rows, "asked"))


def _draw_panel(axes: Axes, apps: Sequence[Row], labelled: bool) -> None:
    machines = _counts(str(apps[0]["machines"]))
    held = [_counts(str(app["held"])) for app in apps]
    colours = ("#4e79a7", "#f28e2b")
    left = 0.0
    for machine, gpus in enumerate(machines):
        frame = FancyBboxPatch((left, 0), gpus, 1, boxstyle="round,pad=0.12", facecolor="none", edgecolor=INK)
        axes.add_patch(frame)
        owners = [app for app in range(len(apps)) for _ in range(held[app][machine])]
        for gpu in range(gpus):
            colour = colours[owners[gpu]] if gpu < len(owners) else "#eeeeee"
            axes.bar(left + gpu + 0.5, 0.8, 0.8, bottom=0.1, color=colour)
            if gpu < len(owners):
                name = str(apps[owners[gpu]]["app"])
                axes.text(left + gpu + 0.5, 0.5, name, ha="center", va="center", color="white", fontsize=7)
        left += gpus + 0.6
    axes.set(xlim=(-0.3, left - 0.3), ylim=(-1.9, 1.4))
    axes.set_aspect("equal")
    axes.axis("off")
    policy, instance = apps[0]["policy"], apps[0]["instance"]
    axes.set_title(f"instance {instance}: {policy}" if labelled else str(policy), fontsize=9)
    slow = ", ".join(f"{app['app']} ({app['model']}) S = {float(app['slowdown']):.2f}" for app in apps)
    axes.text((left - 0.6) / 2, -0.65, slow, ha="center", va="center", fontsize=7)
    for place, name in enumerate(("SI", "EF", "PE")):
        kept = bool(apps[0][f"keeps_{name}"])
        axes.text(
            (left - 0.6) / 2 * (1 + 0.72 * (place - 1)),
            -1.4,
            f"{name} {'kept' if kept else 'violated'}",
            ha="center",
            va="center",
            fontsize=7,
            fontweight="bold",
            color="#3a7d44" if kept else "#c0392b",
        )


def _text(counts: Counts) -> str:
    return "+".join(str(count) for count in counts)


def _counts(text: str) -> Counts:
    return tuple(int(part) for part in text.split("+"))


EXPERIMENT = TwoInstances()
