"""Shared code of figures 9 and 10: rho of every app under every policy, its maximum and its spread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper import macro
from themis_lab.paper.differences import lead_text, sentence
from themis_lab.paper.plotting import cdf_lines, fair_line, legend_below, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import (
    DEFINITIONS,
    FLUID,
    NEAR_BOUND,
    UNFAIR_RHO,
    Row,
    Summary,
    grouped,
    numbers,
    summary,
)
from themis_lab.simulator.metrics import percentile

PAPER_MIN, PAPER_MAX = 2.2, 3.25


class Fairness(Value, frozen=True, kw_only=True):
    """Figures 9 and 10 of NSDI'20: the distribution of rho on the testbed, for one of the two workloads."""

    name: str
    title: str
    workload: str

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Every policy, aligned and staggered."""
        return macro.macro_cells(self.workload, scale, seeds)

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of apps.

        The comparison covers max rho and the spread, by definition `themis` unless it names another.
        """
        rows = macro.rows_of_apps(done)
        runs = run_rows(rows)
        return Findings(
            rows=rows,
            comparisons=(*_worst(runs), *_spread(runs), *_definitions(runs)),
            remarks=_remarks(runs),
            claims=_claims(runs, self.name),
            causes=(_cause(runs, self.workload),),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw CDFs of rho, all seeds together: by the paper's definition, and by one that no schedule can change."""
        panels = ((macro.ALIGNED, "themis"), (macro.ALIGNED, FLUID[0]), (macro.STAGGERED, "themis"))
        figure = new_figure(len(panels), width=12.0, height=3.6, sharey=True)
        for axes, (ends, definition) in zip(figure.axes, panels, strict=True):
            series = series_by_policy(findings.rows, ends, f"rho_{definition}")
            cdf_lines(axes, series, f"rho at completion (definition {definition})", log=True)
            fair_line(axes, vertical=True)
            axes.set_title(f"{ends} lease ends")
        for axes in figure.axes[1:]:
            axes.set_ylabel("")
        legend_below(figure, 9)
        return figure


def series_by_policy(rows: Sequence[Row], ends: str, column: str) -> dict[str, list[float]]:
    """A column of apps by policy, all seeds together."""
    groups = grouped(macro.picked(rows, ends=ends), "policy")
    return {str(policy): numbers(group, column) for (policy,), group in groups.items()}


def run_rows(rows: Iterable[Row]) -> list[Row]:
    """The metrics of each run that are compared, from the rows of its apps."""
    groups = grouped(rows, "policy", "ends", "seed")
    return [
        {"policy": policy, "ends": ends, "seed": seed, **_of_run(group)}
        for (policy, ends, seed), group in groups.items()
    ]


def _of_run(apps: Sequence[Row]) -> dict[str, float]:
    own = numbers(apps, "rho_themis")
    worst = max(apps, key=lambda app: float(app["rho_themis"]))
    return {
        **{
            f"max_{definition}": max(numbers(apps, f"rho_{definition}"))
            for definition in (*FLUID, *DEFINITIONS)
            if f"rho_{definition}" in worst
        },
        "spread": percentile(own, 0.95) - percentile(own, 0.05),
        "unfair": sum(value > UNFAIR_RHO for value in own) / len(own),
        "bound_of_worst": float(worst["bound"]),
        "unfair_by_bound": sum(bound > UNFAIR_RHO for bound in numbers(apps, "bound")) / len(own),
    }


def _worst(runs: Sequence[Row]) -> list[Comparison]:
    """Max rho, and the ratio of the baselines' to that of themis."""
    lines = [
        macro.line(f"max rho, themis, {ends}", macro.by_policy(runs, ends, "max_themis")[macro.OURS])
        for ends in (macro.ALIGNED, macro.STAGGERED)
    ]
    for theirs, ours in (*macro.both_ends(), (macro.STAGGERED, macro.ALIGNED)):
        ratios = macro.ratios_to_ours(runs, "max_themis", theirs, ours)
        how = theirs if theirs == ours else f"{theirs} / themis {ours}"
        lines += _extremes(macro.of_the_paper(ratios), how)
        if theirs == ours:
            lines += [macro.line(f"max rho, {name} / themis, {how}", ratio) for name, ratio in ratios.items()]
    return lines


def _extremes(ratios: Mapping[str, Summary], how: str) -> list[Comparison]:
    """The baselines with the smallest and the largest ratio."""
    if not ratios:
        return []
    nearest = min(ratios, key=lambda name: ratios[name].median)
    farthest = max(ratios, key=lambda name: ratios[name].median)
    return [
        _extreme(f"max rho, nearest baseline / themis, {how}", nearest, ratios[nearest], PAPER_MIN),
        _extreme(f"max rho, farthest baseline / themis, {how}", farthest, ratios[farthest], PAPER_MAX),
    ]


def _extreme(what: str, name: str, ratio: Summary, paper: float) -> Comparison:
    remark = sentence(f"this is {name}", lead_text(ratio.median, paper))
    return macro.line(what, ratio, paper=f"{paper:g}", number=paper, remark=remark)


def _spread(runs: Sequence[Row]) -> list[Comparison]:
    """The spread of rho from the 5th to the 95th percentile, and the share of apps above their fair share."""
    lines = []
    for ends in (macro.ALIGNED, macro.STAGGERED):
        spreads = macro.by_policy(runs, ends, "spread")
        ours = spreads.pop(macro.OURS)
        narrower = [name for name, value in spreads.items() if value.median < ours.median]
        lines.append(macro.line(f"95th less 5th percentile of rho, themis, {ends}", ours))
        lines.append(
            Comparison(
                what=f"policies with a narrower spread than themis, {ends}",
                paper="0",
                ours=float(len(narrower)),
                remark=f"narrower: {', '.join(narrower)}." if narrower else "",
            )
        )
        unfair = macro.by_policy(runs, ends, "unfair")
        lines.append(macro.line(f"share of apps with rho > {UNFAIR_RHO}, themis, {ends}", unfair.pop(macro.OURS)))
        if unfair:
            low = min(unfair, key=lambda name: unfair[name].median)
            high = max(unfair, key=lambda name: unfair[name].median)
            remark = f"from {low} ({unfair[low].median:.0%}) to {high} ({unfair[high].median:.0%})."
            middle = summary(value.median for value in unfair.values())
            lines.append(macro.line(f"the same, median over the other policies, {ends}", middle, remark=remark))
    return lines


def _definitions(runs: Sequence[Row]) -> list[Comparison]:
    """Max rho by each of the other definitions, for themis and for the policy that is best by that definition."""
    lines = []
    for definition in (*FLUID, *DEFINITIONS[1:]):
        if f"max_{definition}" not in runs[0]:
            continue
        for ends in (macro.ALIGNED, macro.STAGGERED):
            values = macro.by_policy(runs, ends, f"max_{definition}")
            best = min(values, key=lambda name: values[name].median)
            remark = "" if best == macro.OURS else f"by this definition {best} is best, with {values[best].median:.3g}."
            what = f"max rho by definition {definition}, themis, {ends}"
            lines.append(macro.line(what, values[macro.OURS], remark=remark))
    return lines


def _remarks(runs: Sequence[Row]) -> tuple[str, ...]:
    """How close runs are to their lower bounds. At the bound, max rho describes the workload and not the policy."""
    aligned = macro.picked(runs, ends=macro.ALIGNED)
    ours, others = ([run for run in aligned if (run["policy"] == macro.OURS) is own] for own in (True, False))
    unfair = summary(numbers(ours, "unfair_by_bound"))
    return (
        f"The worst app is within {NEAR_BOUND - 1:.0%} of its lower bound, which no policy can undercut at that run's "
        f"N_avg, in {_stuck(ours)} of {len(ours)} aligned runs of themis and in {_stuck(others)} of {len(others)} of "
        "the other policies; in such a run max rho describes the workload, not the policy.",
        f"By their bounds alone {unfair.median:.0%} of the apps end with rho > {UNFAIR_RHO}, at the N_avg of themis's "
        "runs.",
        "All of this is rho by definition `themis` except where a line names another; definitions are never mixed.",
    )


def _claims(runs: Sequence[Row], figure: str) -> tuple[PaperClaim, ...]:
    """The lead of themis with equal lease ends, and how many policies have a narrower spread."""
    leads, fluid_leads, narrower, medians = [], [], [], []
    for ends in (macro.ALIGNED, macro.STAGGERED):
        ratios = macro.of_the_paper(macro.ratios_to_ours(runs, "max_themis", ends, ends))
        if ratios:
            medians += (of_ends := [ratio.median for ratio in ratios.values()])
            leads.append(f"{min(of_ends):.2f} to {max(of_ends):.2f} times with {ends} lease ends")
        if f"max_{FLUID[0]}" in runs[0]:
            by_fluid = macro.of_the_paper(macro.ratios_to_ours(runs, f"max_{FLUID[0]}", ends, ends))
            at = [ratio.median for ratio in by_fluid.values()]
            fluid_leads += [f"{min(at):.2f} to {max(at):.2f} ({ends})"] if at else []
        spreads = macro.by_policy(runs, ends, "spread")
        ours = spreads.pop(macro.OURS).median
        count = sum(value.median < ours for value in spreads.values())
        narrower.append(f"{count} of {len(spreads)} other policies are narrower with {ends} lease ends")
    return (
        PaperClaim(
            paper=f"max rho {PAPER_MIN:g} to {PAPER_MAX:g} times better than the baselines ({figure})",
            here=", ".join(leads) or "no baseline was run",
            ratio=f"{min(medians) / PAPER_MIN:.2f} to {max(medians) / PAPER_MAX:.2f}" if medians else "",
            fluid=", ".join(fluid_leads),
        ),
        PaperClaim(paper=f"narrowest distribution of rho ({figure})", here=", ".join(narrower)),
    )


def _cause(runs: Sequence[Row], workload: str) -> str:
    """How much of max rho is due to the workload, what a rule without auctions achieves, and the other definitions."""
    aligned = macro.picked(runs, ends=macro.ALIGNED)
    ours, others = ([run for run in aligned if (run["policy"] == macro.OURS) is own] for own in (True, False))
    greedy = macro.ratios_to_ours(aligned, "max_themis", macro.ALIGNED, macro.ALIGNED).get(GREEDY)
    auctionless = (
        f" Max rho of {GREEDY}, which holds no auction, is {greedy.median:.2f} times that of themis." if greedy else ""
    )
    return (
        f"**Workload {workload[1:]}: what max rho measures.** In {_stuck(ours)} of {len(ours)} runs of themis, and in "
        f"{_stuck(others)} of {len(others)} of the other policies, the worst app is at its lower bound, which no "
        "policy can undercut at the same N_avg: an app of one long serial job ends no sooner, while t_ideal by the "
        "definition `themis` spreads its work over all GPUs that it can use. Under another policy that app has "
        f"another N_avg, and with it another t_ideal and bound.{auctionless} The best policy by each definition: "
        f"{_best_by_definition(aligned)}."
    )


GREEDY = "worst_rho_first"


def _best_by_definition(runs: Sequence[Row]) -> str:
    texts = []
    for definition in DEFINITIONS:
        values = macro.by_policy(runs, macro.ALIGNED, f"max_{definition}")
        best = min(values, key=lambda name: values[name].median)
        ours = "" if best == macro.OURS else f", {macro.OURS} {values[macro.OURS].median:.2f}"
        texts.append(f"`{definition}`: {best} {values[best].median:.2f}{ours}")
    return "; ".join(texts)


def _stuck(runs: Sequence[Row]) -> int:
    return sum(float(run["max_themis"]) <= NEAR_BOUND * float(run["bound_of_worst"]) for run in runs)
