"""Table 5: rho of one long and one short app under themis and under tiresias.

The paper takes both from its testbed run and states only their GPU time and GPUs. Here they are part of workload 2, at
its median arrival. They also run alone on one machine of four GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from themis.apps import JobShape
from themis.values import Value
from themis_lab.paper import macro
from themis_lab.paper.differences import differs, sentence, side
from themis_lab.paper.plans import ENDS, make_workload, policies, settings_of, workload_arguments
from themis_lab.paper.plotting import INK, PAPER, fair_line, grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import DEFINITIONS, Row, Summary, median, numbers, summary
from themis_lab.simulator.record import AppOutcome
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload
from themis_lab.simulator.workloads.models import model_named

MODEL = "transformer"
"""The model of both apps, which the paper does not state: one of the most frequent kind in its mix, NLP."""

ALONE, SHARED = "alone", "in workload 2"
LATER, LATER_S = "alone, the long app later", 1800.0
"""An ablation of what the paper does not state: which of the two arrived first."""

ALONE_CLUSTER = "1x4"
_POLICIES = ("themis", "tiresias")


class PaperApp(Value, frozen=True, kw_only=True):
    """A row of the paper's table: GPU minutes over all its GPUs, and rho as printed."""

    name: str
    gpus: int
    gpu_minutes: float
    rho: dict[str, float]


APPS = (
    PaperApp(name="long", gpus=4, gpu_minutes=580.0, rho={"themis": 1.0, "tiresias": 0.9}),
    PaperApp(name="short", gpus=2, gpu_minutes=83.0, rho={"themis": 1.2, "tiresias": 1.9}),
)


def make_pair(
    around: str = "",
    seed: int = 0,
    cluster: str = "",
    options: tuple[tuple[str, object], ...] = (),
    *,
    later_s: float = 0.0,
) -> Workload:
    """Return the two apps, arriving together: alone, or at the median arrival of another workload.

    Args:
        around: Name of the other workload; empty for none.
        seed: Seed of the other workload.
        cluster: As for `make_workload`.
        options: Options of the other workload.
        later_s: Seconds by which the long app arrives after the short one, if they are alone.
    """
    if not around:
        alone = sorted((pair_app(app, later_s * (app is APPS[0])) for app in APPS), key=lambda app: app.arrival_s)
        return Workload(name="tab5", apps=tuple(alone), source="NSDI'20, table 5")
    other = make_workload(around, seed, cluster, options)
    arrival_s = other.apps[len(other.apps) // 2].arrival_s
    apps = sorted([*other.apps, *(pair_app(app, arrival_s) for app in APPS)], key=lambda app: app.arrival_s)
    return Workload(name=f"tab5 in {around}", apps=tuple(apps), source=other.source)


class LongAndShort(Value, frozen=True, kw_only=True):
    """Table 5 of NSDI'20."""

    name: str = "tab5"
    title: str = "one long and one short app"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Themis and tiresias, aligned and staggered: alone (together, and the long app later) and in workload 2."""
        return [
            cell
            for seed in range(1, seeds + 1)
            for policy in policies(_POLICIES)
            for ends in ENDS
            for cell in (
                Cell(
                    labels={"set-up": ALONE, "policy": policy, "ends": ends.value, "seed": seed},
                    make_workload=make_pair,
                    settings=settings_of(ALONE_CLUSTER, policy, seed, ends),
                ),
                Cell(
                    labels={"set-up": LATER, "policy": policy, "ends": ends.value, "seed": seed},
                    make_workload=make_pair,
                    workload_arguments={"later_s": LATER_S},
                    settings=settings_of(ALONE_CLUSTER, policy, seed, ends),
                ),
                Cell(
                    labels={"set-up": SHARED, "policy": policy, "ends": ends.value, "seed": seed},
                    make_workload=make_pair,
                    workload_arguments=_arguments(scale, seed),
                    settings=settings_of(macro.CLUSTER, policy, seed, ends),
                ),
            )
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Rows of the two apps."""
        names = {app.name for app in APPS}
        rows = tuple({**run.cell.labels, **_row(app)} for run in done for app in run.record.apps if app.name in names)
        return Findings(
            rows=rows, comparisons=tuple(_comparisons(rows)), remarks=_remarks(rows), claims=tuple(_claims(rows))
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw bars of rho, themis next to tiresias, in both set-ups, with the paper's numbers next to ours."""
        figure = new_figure(2, width=9.6, height=3.4, sharey=True)
        groups = [f"{app.name}\n{ends.value}" for app in APPS for ends in ENDS]
        for axes, setup in zip(figure.axes, (SHARED, ALONE), strict=True):
            series = {
                policy: [_rho(findings.rows, setup, policy, ends.value, app.name) for app in APPS for ends in ENDS]
                for policy in dict.fromkeys(str(row["policy"]) for row in findings.rows)
            }
            grouped_bars(axes, groups, series, labels=".2f")
            _draw_paper(axes, list(series))
            fair_line(axes)
            axes.set_title(setup)
        figure.axes[0].set_ylabel("rho at completion (definition themis)")
        legend_below(figure)
        return figure


def _draw_paper(axes: Axes, shown: Sequence[str]) -> None:
    """Draw a diamond at the paper's number above each bar."""
    width = 0.8 / max(1, len(shown))
    points = [
        (group + (place - (len(shown) - 1) / 2) * width, app.rho[policy])
        for group, app in enumerate(app for app in APPS for _ in ENDS)
        for place, policy in enumerate(shown)
    ]
    xs, rhos = zip(*points, strict=True)
    axes.plot(xs, rhos, "D", color="white", markeredgecolor=INK, markersize=5, label=PAPER)
    axes.set_ylim(bottom=0.0)


def _arguments(scale: Scale, seed: int) -> dict[str, object]:
    arguments = workload_arguments(macro.LOADS[scale]["w2"], seed, macro.CLUSTER)
    arguments["around"] = arguments.pop("name")
    return arguments


def pair_app(app: PaperApp, arrival_s: float, divisor: float = 1.0) -> AppTrace:
    """Return one of the two as an app of a workload, with its work divided by `divisor`."""
    model = model_named(MODEL)
    job = JobTrace(
        job_id="0",
        iterations_total=max(1, round(app.gpu_minutes * 60.0 / divisor / model.serial_iteration_s)),
        serial_iteration_s=model.serial_iteration_s,
        slowdown=model.slowdown,
        shape=JobShape(tasks=app.gpus, min_tasks=1),
    )
    return AppTrace(name=app.name, arrival_s=arrival_s, jobs=(job,), model=MODEL)


def _row(app: AppOutcome) -> dict[str, str | float]:
    return {
        "app": app.name,
        **{f"rho_{definition}": app.rho[definition] for definition in DEFINITIONS},
        "bound": app.bound,
        "contention": app.contention,
        "completion_s": app.completion_s,
        "queueing_s": app.queueing_s,
        "gpu_time_min": app.gpu_time_s / 60.0,
        "placement_score": app.placement_score,
        "restarts": app.restarts,
    }


def _of(rows: Sequence[Row], setup: str, policy: str, ends: str, app: str) -> list[Row]:
    wanted = (setup, policy, ends, app)
    return [row for row in rows if (row["set-up"], row["policy"], row["ends"], row["app"]) == wanted]


def _rho(rows: Sequence[Row], setup: str, policy: str, ends: str, app: str) -> Summary:
    return summary(numbers(_of(rows, setup, policy, ends, app), "rho_themis"))


def _comparisons(rows: Sequence[Row]) -> list[Comparison]:
    lines = []
    for setup in (SHARED, ALONE):
        for ends in ENDS:
            for app in APPS:
                values = {policy: _rho(rows, setup, policy, ends.value, app.name) for policy in _POLICIES}
                order = _order(app, {policy: value.median for policy, value in values.items()})
                for policy, value in values.items():
                    if not value.runs:
                        continue
                    what = f"rho of the {app.name} app, {policy}, {setup}, {ends.value}"
                    number = app.rho[policy]
                    paper = f"about {number:g}"
                    apart = _apart(_of(rows, setup, policy, ends.value, app.name), number)
                    later = _later(_rho(rows, LATER, policy, ends.value, app.name)) if apart and setup == ALONE else ""
                    remark = sentence(apart, later, order if policy == macro.OURS else "")
                    lines.append(macro.line(what, value, paper=paper, number=number, remark=remark))
    return lines


def _apart(runs: Sequence[Row], paper: float) -> str:
    """A sentence if rho differs from the paper's: how much longer than alone the app takes, and its bound.

    By definition `themis` t_ideal is N_avg times the time alone.
    """
    rho = median(numbers(runs, "rho_themis"))
    if not runs or not differs(rho, paper):
        return ""
    contention, bound = median(numbers(runs, "contention")), median(numbers(runs, "bound"))
    beyond = bound > paper and differs(bound, paper)
    longer = median(float(run["rho_themis"]) * float(run["contention"]) for run in runs)
    return sentence(
        f"{side(rho, paper)}: at N_avg {contention:.3g} it takes {longer:.3g} times as long as by itself at S = 1, "
        f"which by the paper's rho would be {paper * contention:.3g} times",
        f"its bound is {bound:.3g}"
        + (", above the paper's: no policy could give it that at this N_avg" if beyond else ""),
    )


def _later(rho: Summary) -> str:
    return f"with the long app {LATER_S / 60.0:.0f} min later it is {rho.median:.3g}" if rho.runs else ""


def _claims(rows: Sequence[Row]) -> list[PaperClaim]:
    claims = []
    for app in APPS:
        texts = []
        for setup in (SHARED, ALONE):
            values = [
                f"{policy} {_rho(rows, setup, policy, ENDS[0].value, app.name).median:.2f}" for policy in _POLICIES
            ]
            texts.append(f"{setup}: {', '.join(values)}")
        paper = ", ".join(f"{policy} about {rho:g}" for policy, rho in app.rho.items())
        claims.append(PaperClaim(paper=f"rho of the {app.name} app: {paper} (tab5)", here="; ".join(texts)))
    return claims


def _order(app: PaperApp, values: dict[str, float]) -> str:
    """Whether the app is faster under the same policy as in the paper."""
    paper = app.rho["themis"] < app.rho["tiresias"]
    if values["themis"] == values["tiresias"]:
        return "the same under both policies; the paper: better under " + ("themis." if paper else "tiresias.")
    if (values["themis"] < values["tiresias"]) == paper:
        return ""
    return "better under " + ("tiresias" if paper else "themis") + ", unlike in the paper."


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    shared = [row for row in rows if row["set-up"] == SHARED]
    bounds = {app.name: summary(numbers([row for row in shared if row["app"] == app.name], "bound")) for app in APPS}
    contention = summary(numbers(shared, "contention"))
    texts = ", ".join(f"{name} {value.median:.2f}" for name, value in bounds.items())
    return (
        f"No policy could have brought rho below its bound, here {texts} (median over runs in workload 2); N_avg was "
        f"{contention.median:.3g} ({contention.least:.3g} to {contention.most:.3g}).",
        f"The paper does not give the two apps' model, arrival or neighbours: here both are {MODEL} and come at the "
        "median arrival. By definition `themis` an app that can use few of the cluster's GPUs has rho 1 only if it "
        "takes N_avg times as long as by itself. What of all this makes rho differ from the paper's is not known: "
        "neither the ablations nor `standins` run the two apps.",
        *_arrivals(rows),
    )


def _arrivals(rows: Sequence[Row]) -> tuple[str, ...]:
    """Whether the order of the two policies depends on which app arrived first."""
    texts = []
    for app in APPS:
        values = {policy: _rho(rows, LATER, policy, ENDS[0].value, app.name) for policy in _POLICIES}
        if not all(value.runs for value in values.values()):
            return ()
        medians = {policy: value.median for policy, value in values.items()}
        figures = ", ".join(f"{policy} {median:.2f}" for policy, median in medians.items())
        order = _order(app, medians) or "as in the paper."
        texts.append(f"the {app.name} app {figures} ({order.rstrip('.')})")
    return (
        "Tiresias serves first who has had the least GPU time, so that a short app that comes together with a long one "
        f"is ahead of it. With the long app {LATER_S / 60.0:.0f} min after the short one, alone and aligned, rho is: "
        f"{'; '.join(texts)}.",
    )


EXPERIMENT = LongAndShort()
