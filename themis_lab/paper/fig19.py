"""Figure 19: max rho by the fairness knob and the lease. In the paper f = 0.8 and 10 minutes are best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from rm_plugin.arbiter.round_values import RoundSettings
from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.differences import NOT_KNOWN, differs, sentence, shown
from themis_lab.paper.plans import make_workload, settings_of, workload_arguments
from themis_lab.paper.plotting import fair_line, legend_below, lines, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary, grouped, median

_WHOLE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
POINTS: Mapping[Scale, Mapping[int, Sequence[float]]] = {
    Scale.QUICK: {5: (0.8, 1.0), 10: (0.0, 0.5, 0.8, 1.0), 20: (0.8,), 40: (0.8, 1.0)},
    Scale.PAPER: {5: _WHOLE, 10: _WHOLE, 20: _WHOLE, 40: _WHOLE},
}
"""Values of f by lease in minutes. Runs in which more apps bid take longer."""

BEST_F, BEST_LEASE_MIN = 0.8, 10
PAPER_WORSE = 1.5
_ALIKE = 0.02
_NAMES = {"f": "f", "lease_min": "leases"}


class Knobs(Value, frozen=True, kw_only=True):
    """Figure 19 of NSDI'20: themis on the simulated cluster over f and the lease."""

    name: str = "fig19"
    title: str = "max rho and GPU time over the fairness knob and the lease"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Themis at each f and lease."""
        return [
            _cell(scale, seed, f, lease_min)
            for lease_min, knobs in POINTS[scale].items()
            for f in knobs
            for seed in range(1, seeds + 1)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of runs. Ratios are computed run by run on the same workload."""
        rows = sweeps.rows_of_runs(done)
        compared = (*_best(rows), *_beyond(rows), *_efficiency(rows), *_lease_fairness(rows))
        return Findings(rows=rows, comparisons=compared, remarks=_remarks(rows), claims=(_claim(rows),))

    def draw(self, findings: Findings) -> Figure:
        """Draw max rho and GPU time by f, one line per lease."""
        figure = new_figure(3, width=10.5)
        for axes, column, label in zip(
            figure.axes,
            (sweeps.MAX_RHO, sweeps.BY_FLUID, sweeps.GPU_TIME),
            ("max rho (definition themis)", "max rho (definition fluid)", "GPU time, hours"),
            strict=True,
        ):
            xs = sweeps.axis(findings.rows, "f")
            values = {
                f"lease {lease:g} min": [sweeps.over_seeds(group, column, f=f) for f in xs]
                for (lease,), group in grouped(findings.rows, "lease_min").items()
            }
            lines(axes, xs, values, "fairness knob f", label, apart=0.015)
            axes.set_xticks(xs)
        for axes in figure.axes[:2]:
            fair_line(axes)
        legend_below(figure)
        return figure


def _cell(scale: Scale, seed: int, f: float, lease_min: int) -> Cell:
    cluster = sweeps.SIMULATED[scale]
    return Cell(
        labels={"policy": sweeps.OURS, "ends": sweeps.ALIGNED, "f": f, "lease_min": lease_min, "seed": seed},
        make_workload=make_workload,
        workload_arguments=workload_arguments(sweeps.simulated_load(scale), seed, cluster),
        settings=settings_of(cluster, sweeps.OURS, seed, lease_s=60.0 * lease_min, rounds=RoundSettings(f=f)),
    )


def _ratio(rows: Sequence[Row], column: str, over: Mapping[str, float], under: Mapping[str, float]) -> Summary:
    """A ratio at the paper's lease and f, except for the given values."""
    usual = {"f": BEST_F, "lease_min": float(BEST_LEASE_MIN)}
    return sweeps.ratios(rows, column, {**usual, **over}, {**usual, **under})


def _medians(rows: Sequence[Row], column: str) -> dict[tuple[float, float], float]:
    return {
        (float(f), float(lease)): sweeps.over_seeds(group, column).median
        for (f, lease), group in grouped(rows, "f", "lease_min").items()
    }


def _best(rows: Sequence[Row]) -> list[Comparison]:
    values = _medians(rows, sweeps.MAX_RHO)
    best = min(values, key=lambda key: values[key])
    ours = values[BEST_F, float(BEST_LEASE_MIN)]
    at_lease = {f: value for (f, lease), value in values.items() if lease == BEST_LEASE_MIN}
    at_f = {lease: value for (f, lease), value in values.items() if f == BEST_F}
    near = (
        f"with f = {BEST_F:g} and {BEST_LEASE_MIN} min it is {ours:.3g}, with the best of all, "
        f"f = {best[0]:g} and {best[1]:g} min, {values[best]:.3g}."
    )
    return [
        Comparison(
            what=f"best f for max rho, lease {BEST_LEASE_MIN} min",
            paper=f"{BEST_F:g}",
            paper_value=BEST_F,
            ours=min(at_lease, key=lambda f: at_lease[f]),
            remark=_choice(rows, at_lease, "f", BEST_F),
        ),
        Comparison(
            what=f"best lease for max rho, f = {BEST_F:g} (min)",
            paper=f"{BEST_LEASE_MIN}",
            paper_value=BEST_LEASE_MIN,
            ours=min(at_f, key=lambda lease: at_f[lease]),
            remark=_choice(rows, at_f, "lease_min", float(BEST_LEASE_MIN)),
        ),
        sweeps.line(
            f"max rho, f = {BEST_F:g}, lease {BEST_LEASE_MIN} min",
            sweeps.over_seeds(rows, sweeps.MAX_RHO, f=BEST_F, lease_min=BEST_LEASE_MIN),
            paper="least",
            remark=near if ours > values[best] else "",
        ),
    ]


def _choice(rows: Sequence[Row], values: Mapping[float, float], column: str, paper: float) -> str:
    """Which values are as good as the best, and how far, run by run, the best leads the paper's choice."""
    best = min(values, key=lambda point: values[point])
    alike = [point for point, value in sorted(values.items()) if value <= (1.0 + _ALIKE) * values[best]]
    texts = ", ".join(f"{point:g}" for point in alike)
    near = f"alike within {_ALIKE:.0%}: {_NAMES[column]} {texts}" if len(alike) > 1 else ""
    if best == paper or paper in alike:
        return sentence(near)
    ahead = _ratio(rows, sweeps.MAX_RHO, {column: best}, {})
    agree = f"in every run; {NOT_KNOWN}" if ahead.most < 1.0 else "so that runs do not agree which is better"
    return sentence(
        f"max rho is {values[best]:.3g}, with the paper's choice {values[paper]:.3g}",
        near,
        f"run by run it is {ahead.least:.3g} to {ahead.most:.3g} times that, {agree}",
    )


def _beyond(rows: Sequence[Row]) -> list[Comparison]:
    beyond = _ratio(rows, sweeps.MAX_RHO, {"f": 1.0}, {})
    none = _ratio(rows, sweeps.MAX_RHO, {"f": 0.0}, {})
    return [
        sweeps.line(
            f"max rho, f = 1 / f = {BEST_F:g}",
            beyond,
            paper=f"about {PAPER_WORSE:g}",
            number=PAPER_WORSE,
            remark=_worse(rows, beyond),
        ),
        sweeps.line(
            f"max rho, f = 0 / f = {BEST_F:g}",
            none,
            paper="above 1",
            remark="" if none.median >= 1.0 + _ALIKE else "not better with the filter here.",
        ),
    ]


def _worse(rows: Sequence[Row], beyond: Summary) -> str:
    """A sentence if f = 1 is not as bad as in the paper: how far the worst app is above its lower bound."""
    if not differs(beyond.median, PAPER_WORSE):
        return ""
    less = beyond.median < PAPER_WORSE
    apart = (
        f"worse by {'less' if less else 'more'} than in the paper" if beyond.median >= 1.0 + _ALIKE else "no worse here"
    )
    above = {f: _above_bound(rows, f) for f in (1.0, BEST_F)}
    return sentence(
        f"{apart}: max rho is {above[1.0]:.3g} times the largest lower bound of an app with f = 1, {above[BEST_F]:.3g} "
        f"times with f = {BEST_F:g}",
        f"why f = 1 holds the worst app up {'more' if less else 'less'} in the paper is not known",
    )


def _above_bound(rows: Sequence[Row], f: float) -> float:
    """Max rho over the largest lower bound of an app of the same run, at the paper's lease."""
    runs = sweeps.where(rows, f=f, lease_min=BEST_LEASE_MIN)
    return median(float(run[sweeps.MAX_RHO]) / float(run["max_bound"]) for run in runs)


def _efficiency(rows: Sequence[Row]) -> list[Comparison]:
    by_f = _ratio(rows, sweeps.GPU_TIME, {"f": 1.0}, {"f": 0.0})
    shortest, *_, longest = sweeps.axis(rows, "lease_min")
    by_lease = _ratio(rows, sweeps.GPU_TIME, {"lease_min": shortest}, {"lease_min": longest})
    return [
        sweeps.line(
            "GPU time, f = 1 / f = 0",
            by_f,
            paper="above 1",
            remark="" if shown(by_f.median) > 1.0 else "GPU time does not grow with f here.",
        ),
        sweeps.line(
            f"GPU time, lease {shortest:g} min / {longest:g} min",
            by_lease,
            paper="above 1",
            remark="" if shown(by_lease.median) > 1.0 else "shorter leases do not take more GPU time here.",
        ),
    ]


def _lease_fairness(rows: Sequence[Row]) -> list[Comparison]:
    shortest, *_, longest = sweeps.axis(rows, "lease_min")
    ratio = _ratio(rows, sweeps.MAX_RHO, {"lease_min": shortest}, {"lease_min": longest})
    remark = "" if shown(ratio.median) < 1.0 else "shorter leases are not fairer here."
    return [sweeps.line(f"max rho, lease {shortest:g} min / {longest:g} min", ratio, paper="below 1", remark=remark)]


def _claim(rows: Sequence[Row]) -> PaperClaim:
    texts = {}
    for column in (sweeps.MAX_RHO, sweeps.BY_FLUID):
        order = sorted(_medians(rows, column).items(), key=lambda item: item[1])
        first, rank = order[0], 1 + [place for place, _ in order].index((BEST_F, BEST_LEASE_MIN))
        texts[column] = (
            f"f = {first[0][0]:g} and {first[0][1]:g} min are best with {first[1]:.2f}; the paper's are {rank} of "
            f"{len(order)} with {order[rank - 1][1]:.2f}"
        )
    return PaperClaim(
        paper=f"f = {BEST_F:g} and {BEST_LEASE_MIN} min are best for max rho (fig19)",
        here=texts[sweeps.MAX_RHO],
        fluid=texts[sweeps.BY_FLUID],
    )


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    bound = sweeps.over_seeds(rows, "max_bound", f=BEST_F, lease_min=BEST_LEASE_MIN)
    renewed = "Leases are renewed in place, so a short lease costs little if no other app wants the GPUs."
    return (
        f"With f = {BEST_F:g} and {BEST_LEASE_MIN} min {sweeps.bound_text(bound)}.",
        f"{renewed} The paper checkpoints at every end of a lease.",
        "Rho is by definition `themis`; the CSV has all definitions. Leases end aligned.",
    )


EXPERIMENT = Knobs()
