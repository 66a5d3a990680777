"""Shared code of experiments that vary one parameter: workloads, clusters, rows of runs, ratios run by run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from themis.choices import LeaseEnds
from themis_lab.paper.macro import LOADS
from themis_lab.paper.plans import ENDS, PAPER_POLICIES, Load
from themis_lab.paper.plotting import grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Comparison, Done, Scale
from themis_lab.paper.statistics import FLUID, Row, Summary, grouped, numbers, run_metrics, summary

ALIGNED, STAGGERED = LeaseEnds.ALIGNED.value, LeaseEnds.STAGGERED.value
OURS = "themis"
MAX_RHO = "max_rho_themis"
BY_FLUID = f"max_rho_{FLUID[0]}"
GPU_TIME = "gpu_time_h"
BASELINES = tuple(name for name in PAPER_POLICIES if name != OURS)

SIMULATED: Mapping[Scale, str] = {Scale.QUICK: "7x8+1x4/1+4x1", Scale.PAPER: "paper-256"}
"""The cluster of the paper's simulations; at quick scale a quarter of its machines, 64 GPUs."""

_TESTBED_GPUS, _SIMULATED_GPUS = 64, 256


def simulated_load(scale: Scale, **options: object) -> Load:
    """Workload 2 for the simulated cluster, with the same load as on the testbed. The paper does not state the load.

    Args:
        scale: Size of the runs.
        options: More options of the workload.
    """
    load = LOADS[scale]["w2"]
    pace: dict[str, object] = {"stretch": _TESTBED_GPUS / _SIMULATED_GPUS} if scale is Scale.PAPER else {}
    return Load(name=load.name, options={**load.options, **pace, **options})


def ends_of(scale: Scale, *, both: bool) -> tuple[LeaseEnds, ...]:
    """The kinds of lease ends: both at the paper's scale; at quick scale both only for points with `both`.

    Staggered runs take longest.
    """
    return ENDS if both or scale is Scale.PAPER else (LeaseEnds.ALIGNED,)


def rows_of_runs(done: Iterable[Done]) -> tuple[Row, ...]:
    """Return a row per run: its labels and all its metrics."""
    return tuple({**run.cell.labels, **run_metrics(run.record)} for run in done)


def where(rows: Iterable[Row], **wanted: str | float) -> list[Row]:
    """The rows with these values in these columns."""
    return [row for row in rows if all(row[column] == value for column, value in wanted.items())]


def over_seeds(rows: Iterable[Row], column: str, **wanted: str | float) -> Summary:
    """Statistics of a column over the rows with these values."""
    return summary(numbers(where(rows, **wanted), column))


def series(rows: Sequence[Row], by: str, along: str, column: str) -> dict[str, list[Summary]]:
    """For each value of `by`, in the order of its first row, statistics of `column` at each value of `along`."""
    points = axis(rows, along)
    return {
        str(name): [over_seeds(group, column, **{along: point}) for point in points]
        for (name,), group in grouped(rows, by).items()
    }


def axis(rows: Iterable[Row], column: str) -> list[float]:
    """The distinct values of a column of numbers, in ascending order."""
    return sorted({float(row[column]) for row in rows})


def ratios(
    rows: Sequence[Row],
    column: str,
    over: Mapping[str, str | float],
    under: Mapping[str, str | float],
    like: Sequence[str] = ("seed",),
) -> Summary:
    """`column` of the rows with the values `over`, divided by that of the rows with the values `under`.

    Args:
        rows: Of runs.
        column: The column to divide.
        over: Values by column of the runs in the numerator.
        under: Values by column of the runs in the denominator.
        like: A run is divided by the run with equal values in these columns.
    """
    below = {_key(row, like): float(row[column]) for row in where(rows, **under)}
    pairs = [(float(row[column]), below.get(_key(row, like), 0.0)) for row in where(rows, **over)]
    return summary(top / bottom for top, bottom in pairs if bottom)


def to_ours(
    rows: Sequence[Row], column: str, names: Iterable[str] = BASELINES, ends: str = ALIGNED
) -> dict[str, Summary]:
    """Each policy's column over that of themis, seed by seed, with equal lease ends."""
    present = {str(row["policy"]) for row in rows}
    return {
        name: ratios(rows, column, {"policy": name, "ends": ends}, {"policy": OURS, "ends": ends})
        for name in names
        if name in present
    }


def line(what: str, value: Summary, *, paper: str = "", number: float | None = None, remark: str = "") -> Comparison:
    """A line of the comparison from a summary over runs."""
    spread = value.spread if value.runs > 1 else None
    return Comparison(what=what, paper=paper, paper_value=number, ours=value.median, spread=spread, remark=remark)


def nearest_and_farthest(values: Mapping[str, Summary]) -> tuple[str, str]:
    """The names with the smallest and the largest median."""
    return min(values, key=lambda name: values[name].median), max(values, key=lambda name: values[name].median)


def ranking(rows: Sequence[Row], column: str) -> list[tuple[str, float]]:
    """Policies and the medians of a column, in ascending order."""
    medians = [
        (str(name), summary(numbers(group, column)).median) for (name,), group in grouped(rows, "policy").items()
    ]
    return sorted(medians, key=lambda item: item[1])


def ranking_text(rows: Sequence[Row], column: str) -> str:
    """`ranking` as text: names and numbers."""
    return ", ".join(f"{name} {value:.3g}" for name, value in ranking(rows, column))


def fluid_text(rows: Sequence[Row]) -> str:
    """A sentence on max rho of every policy by the definitions that no schedule can change; medians over seeds.

    Args:
        rows: Of runs of equal workloads and settings.
    """
    names = [name for name, _ in ranking(rows, BY_FLUID)]
    values = {
        name: [over_seeds(rows, f"max_rho_{definition}", policy=name).median for definition in FLUID] for name in names
    }
    texts = ", ".join(f"{name} {' / '.join(f'{value:.3g}' for value in values[name])}" for name in names)
    return f"By the fluid fair cluster, max rho ({' / '.join(f'`{name}`' for name in FLUID)}): {texts}."


def left_out(rows: Sequence[Row], along: str) -> str:
    """A sentence on where staggered lease ends are left out, and that definitions of rho are kept apart.

    Args:
        rows: Of runs.
        along: The varied column.
    """
    staggered = axis(where(rows, ends=STAGGERED), along)
    missing = [f"{point:g}" for point in axis(rows, along) if point not in staggered]
    missing_text = f" Staggered lease ends are left out at this scale at: {', '.join(missing)}." if missing else ""
    return f"Rho is by definition `themis`; the CSV has all definitions.{missing_text}"


def bound_text(bound: Summary) -> str:
    """The largest lower bound of an app in the runs of themis. N_avg, and thus rho, differs between policies."""
    return (
        f"in themis's own runs the largest lower bound of an app is {bound.median:.3g} ({bound.least:.3g} to "
        f"{bound.most:.3g}), less than which no policy could have given it at the same N_avg"
    )


def bars_by_policy(
    rows: Sequence[Row],
    along: str,
    column: str,
    name_of: Callable[[float], str],
    decorate: Callable[[Axes], None],
    fluid: bool = False,
) -> Figure:
    """Draw bars of every policy at each value of `along`, one panel per kind of lease ends.

    Args:
        rows: Of runs.
        along: The varied column.
        column: The drawn column.
        name_of: Returns the name of a group.
        decorate: Sets labels and lines of a panel.
        fluid: Draw one more panel: aligned runs by definition `fluid`, which no schedule can change.
    """
    by = " (by themis)" if fluid else " lease ends"
    panels = [(f"{ends}{by}", chosen, column) for (ends,), chosen in grouped(rows, "ends").items()]
    if fluid:
        panels.insert(1, (f"{ALIGNED} (by {FLUID[0]})", where(rows, ends=ALIGNED), BY_FLUID))
    points = [float(len(axis(chosen, along))) for _, chosen, _ in panels]
    width = {1: 8.4, 2: 13.2}.get(len(panels), 16.0)
    figure = new_figure(len(panels), width=width, height=3.6, sharey=True, widths=points)
    for axes, (title, chosen, drawn) in zip(figure.axes, panels, strict=True):
        names = [name_of(point) for point in axis(chosen, along)]
        grouped_bars(axes, names, series(chosen, "policy", along, drawn))
        decorate(axes)
        if len(panels) > 1:
            axes.set_title(title)
    for axes in figure.axes[1:]:
        axes.set_ylabel("")
    legend_below(figure, 9)
    return figure


def _key(row: Row, columns: Sequence[str]) -> tuple[str | float, ...]:
    return tuple(row[column] for column in columns)
